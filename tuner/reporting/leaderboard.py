"""`leaderboard.csv` and `confirm.csv`: a row a trial or confirm run, scores beside times."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.files import write_text
from tuner.reporting.terminal import interval_text
from tuner.settings.config import Config
from tuner.study.confirmed import Confirmed, confirmed, confirmed_trials
from tuner.study.record import SEED_KEY, Record, TrialRecord

Row = dict[str, Any]

SCORES = ("top1", "top5", "balanced_top1", "validation_loss")


def leaderboard_rows(
    record: Record,
    config: Config,
    rungs: Sequence[int],
    parameters: Sequence[str],
    ranking: Sequence[Confirmed],
) -> list[Row]:
    """One row a trial, the winner first: the confirmed ones in their order, then the others.

    Args:
        record: The trials.
        config: The settings of the space, which hold what a trial does not set itself.
        rungs: The lengths in images at which trials were compared.
        parameters: The searched keys, in the order of the last columns.
        ranking: The confirmed configurations, the best first.
    """
    by_number = {each.trial_number: each for each in ranking}
    first = [record.trials[number] for number in by_number]
    others = [trial for trial in record.ranked() if trial.number not in by_number]
    return [
        _row(record, trial, config, rungs, parameters, by_number.get(trial.number))
        for trial in (*first, *others)
    ]


def confirm_rows(record: Record, runs: Record, parameters: Sequence[str]) -> list[Row]:
    """One row a confirm run: its trial, its seed, how it ended, and what all of that trial say."""
    found = {each.trial_number: each for each in confirmed(record, runs)}
    return [
        {
            "run_number": run.number,
            "trial_number": number,
            "seed": run.settings[SEED_KEY],
            "state": _state(run),
            "reason": run.reason,
            **_scores(runs, run),
            **_training(run),
            "score_in_search": record.best_score(number),
            "confirmed_mean": found[number].mean if number in found else None,
            **_one_more_run(record.metric, found.get(number)),
        }
        | {key: run.settings.get(key) for key in parameters}
        for run, number in zip(runs.trials, confirmed_trials(record, runs), strict=True)
    ]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
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
    found: Confirmed | None,
) -> Row:
    settings = config.with_overrides(trial.settings)
    last: Mapping[str, Any] = trial.reports[-1] if trial.reports else {}
    return {
        "trial_number": trial.number,
        "state": _state(trial),
        "reason": trial.reason,
        **_scores(record, trial),
        "confirmed_mean": found.mean if found else None,
        "confirmed_spread": found.spread if found else None,
        "confirm_runs": len(found.runs) if found else 0,
        **_one_more_run(record.metric, found),
        **_training(trial),
        "rung": sum(length <= trial.samples_seen for length in rungs),
        "batch_size": settings.train.batch_size,
        "micro_batch_size": last.get("micro_batch_size"),
        "accumulate_steps": settings.train.accumulate_steps,
        "num_workers": settings.loader.num_workers,
    } | {key: trial.settings.get(key) for key in parameters}


def _one_more_run(metric: str, found: Confirmed | None) -> Row:
    interval = found.interval if found else None
    low, high = interval or (None, None)
    in_words = interval_text(metric, *interval) if interval else None
    return {"interval_low": low, "interval_high": high, "one_more_run": in_words}


def _state(trial: TrialRecord) -> str:
    return "waiting" if trial.state == "running" else trial.state


def _scores(record: Record, trial: TrialRecord) -> Row:
    best = record.best_report(trial.number) or {}
    return {key: best.get(key) for key in SCORES}


def _training(trial: TrialRecord) -> Row:
    last: Mapping[str, Any] = trial.reports[-1] if trial.reports else {}
    train_s = sum(report["train_s"] + report["data_wait_s"] for report in trial.reports)
    return {
        "epochs": last.get("epoch", 0.0),
        "samples_seen": trial.samples_seen,
        "seconds": round(trial.seconds, 2),
        "images_per_s": round(trial.samples_seen / train_s, 1) if train_s else None,
    }
