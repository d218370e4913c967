"""Stage hand over: leaderboard, confirm table, `best.yaml` and the model folder of the winner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.data.prepare import PreparedData
from tuner.errors import CheckpointError
from tuner.handover import (
    describe_winner,
    forget_weights,
    is_handed_over,
    write_best_yaml,
    write_model_folder,
)
from tuner.reporting.terminal import say, say_under
from tuner.settings.config import Config
from tuner.settings.wording import shown_path
from tuner.stages.course import Course
from tuner.stages.opening import Search
from tuner.stages.tables import write_confirm_table, write_leaderboard
from tuner.study.confirmed import Confirmed, confirmed, describe_confirmed
from tuner.study.record import Record, Report, TrialRecord
from tuner.training.checkpoint import CheckpointFolder
from tuner.trial import checkpoint_folder


@dataclass(frozen=True, slots=True)
class Winner:
    """The configuration that is handed over, and the training whose weights go with it.

    Attributes:
        trial: Of the search.
        run: The best of its confirm runs; the trial itself where there is none.
        report: The best of `run`.
        checkpoints: Where those of `run` lie.
        confirmed: What its confirm runs say; None without them.
    """

    trial: TrialRecord
    run: TrialRecord
    report: Report
    checkpoints: Path
    confirmed: Confirmed | None


def hand_over(course: Course, data: PreparedData, record: Record, runs: Record | None) -> Winner:
    """Writes what the search leaves behind, and returns the winner.

    Raises:
        CheckpointError: The winner's weights cannot be read; `best.yaml` is there all the same.
    """
    search = course.search
    ranking = confirmed(record, runs) if runs else []
    write_leaderboard(course, record, ranking)
    if runs:
        write_confirm_table(course, record, runs)
    else:  # not asked for any more
        (search.folder / "confirm.csv").unlink(missing_ok=True)
    if runs and not ranking:
        say_under("confirm", "no run is complete: the best trial of the search is handed over")
    winner = choose(search, record, runs, ranking)
    config = search.config.with_overrides(winner.run.settings)
    described = describe_winner(
        config,
        winner.report,
        classes=data.train.classes,
        data_fingerprint=data.fingerprint,
        threads=winner.report["threads"],
        device=winner.report["device"],
        trial_number=winner.trial.number,
    )
    if winner.confirmed:
        described["confirmed"] = describe_confirmed(record, winner.confirmed)
    write_winner(search, winner, described, config)
    return winner


def choose(
    search: Search, record: Record, runs: Record | None, ranking: Sequence[Confirmed]
) -> Winner:
    """The confirmed configuration with the best mean, or the best trial where none is confirmed."""
    first = ranking[0] if ranking else None
    trial = record.trials[first.trial_number] if first else record.ranked()[0]
    source, run, stage = record, trial, "search"
    if runs and first:
        source, run, stage = runs, first.best_run(record.direction), "confirm"
    report = source.best_report(run.number)
    assert report is not None
    checkpoints = checkpoint_folder(search.folder, stage, run.number)
    return Winner(trial, run, report, checkpoints, first)


def write_winner(
    search: Search, winner: Winner, described: Mapping[str, Any], config: Config
) -> None:
    """Writes `best.yaml` and `best/`, unless they hold this winner already."""
    if is_handed_over(search.folder, described):
        return
    best_yaml = search.folder / "best.yaml"
    try:
        weights = CheckpointFolder(winner.checkpoints, say).load(winner.report["samples_seen"])
    except CheckpointError as error:
        forget_weights(search.folder / "best")
        write_best_yaml(best_yaml, described)
        raise CheckpointError(f"{error}; train it again: {retrain_command(search)}") from error
    write_model_folder(search.folder / "best", weights["model"], described, config)
    write_best_yaml(best_yaml, described)


def retrain_command(search: Search) -> str:
    """The command that trains the winner again."""
    return f"python -m tuner.retrain config={shown_path(search.folder / 'best.yaml')}"
