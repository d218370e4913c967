"""`leaderboard.csv`: one row a trial, the best first, times and speed beside scores."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.files import write_text
from tuner.settings.config import Config
from tuner.study.record import Record, TrialRecord

Row = dict[str, Any]


def best_trial(record: Record) -> TrialRecord | None:
    """The trial with the best finite report, the earliest of equals; None where none has one.

    A trial that failed is never it, whatever it had reported before.
    """
    first = next(iter(ranked(record)), None)
    return first if first and _is_sound(record, first) else None


def ranked(record: Record) -> list[TrialRecord]:
    """All trials, best report first; those that failed or have no score last, by number."""

    def rank(trial: TrialRecord) -> tuple[bool, float, int]:
        report = record.best_report(trial.number)
        if report is None or not _is_sound(record, trial):
            return True, 0.0, trial.number
        score = report[record.metric]
        return False, -score if record.direction == "maximize" else score, trial.number

    return sorted(record.trials, key=rank)


def _is_sound(record: Record, trial: TrialRecord) -> bool:
    has_failed = trial.state in ("failed", "infeasible")
    return not has_failed and record.best_report(trial.number) is not None


def leaderboard_rows(
    record: Record, config: Config, rungs: Sequence[int], parameters: Sequence[str]
) -> list[Row]:
    """One row a trial, best first.

    Args:
        record: The trials.
        config: The settings of the space, which hold what a trial does not set itself.
        rungs: The lengths in images at which trials were compared.
        parameters: The searched keys, in the order of the last columns.
    """
    return [_row(record, trial, config, rungs, parameters) for trial in ranked(record)]


def write_leaderboard(path: Path, rows: Sequence[Row]) -> None:
    """Writes the rows as CSV, whole or not at all. There must be one row at least."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _row(
    record: Record,
    trial: TrialRecord,
    config: Config,
    rungs: Sequence[int],
    parameters: Sequence[str],
) -> Row:
    settings = config.with_overrides(trial.settings)
    best = record.best_report(trial.number) or {}
    last: Mapping[str, Any] = trial.reports[-1] if trial.reports else {}
    train_s = sum(report["train_s"] + report["data_wait_s"] for report in trial.reports)
    return {
        "trial_number": trial.number,
        "state": "waiting" if trial.state == "running" else trial.state,
        "reason": trial.reason,
        "top1": best.get("top1"),
        "top5": best.get("top5"),
        "epochs": last.get("epoch", 0.0),
        "samples_seen": trial.samples_seen,
        "rung": sum(length <= trial.samples_seen for length in rungs),
        "seconds": round(trial.seconds, 2),
        "images_per_s": round(trial.samples_seen / train_s, 1) if train_s else None,
        "batch_size": settings.train.batch_size,
        "micro_batch_size": last.get("micro_batch_size"),
        "accumulate_steps": settings.train.accumulate_steps,
        "num_workers": settings.loader.num_workers,
    } | {key: trial.settings.get(key) for key in parameters}
