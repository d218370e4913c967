"""Stage hand over: leaderboard, confirm table, `best.yaml` and the model folder of the winner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.data.prepare import PreparedData
from tuner.errors import CheckpointError
from tuner.handover import (
    describe_evaluation,
    describe_hard_images,
    describe_winner,
    forget_weights,
    is_handed_over,
    write_best_yaml,
    write_found,
    write_model_folder,
)
from tuner.reporting.terminal import say, say_under
from tuner.settings.wording import shown_path
from tuner.stages.course import Course
from tuner.stages.networks import recorded_sha256
from tuner.stages.opening import Search
from tuner.stages.tables import write_confirm_table, write_leaderboard
from tuner.study.confirmed import Confirmed, confirmed, describe_confirmed, rival
from tuner.study.record import SEED_KEY, Record, Report, TrialRecord
from tuner.training.checkpoint import CheckpointFolder
from tuner.training.state import trained_weights
from tuner.trial import checkpoint_folder

FOUND = ("confirmed",)  # of a winner, by whatever runs there are


@dataclass(frozen=True, slots=True)
class Winner:
    """The configuration that is handed over, and the training whose weights go with it.

    Attributes:
        trial: Of the search.
        run: The best of its confirm runs; the trial itself where there is none.
        report: The best of `run`.
        checkpoints: Where those of `run` lie.
        confirmed: What its confirm runs say; None without them.
        not_told_apart: The next configuration, where the runs do not tell it apart from this one.
        test: What its weights got on the test split, as `best.yaml` has it; None without one.
        evaluation: What `report` found of each class; None where its checkpoint is gone.
    """

    trial: TrialRecord
    run: TrialRecord
    report: Report
    checkpoints: Path
    confirmed: Confirmed | None
    not_told_apart: Confirmed | None = None
    test: Mapping[str, Any] | None = None
    evaluation: Mapping[str, Any] | None = None

    @property
    def files(self) -> CheckpointFolder:
        """What lies there."""
        return CheckpointFolder(self.checkpoints, say)


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
    winner = choose(search, data, record, find_winners(search, record, runs, ranking))
    checkpoint = write_winner(search, data, winner, describe(search, data, record, winner))
    return replace(winner, evaluation=describe_evaluation(checkpoint, data.validation))


def find_winners(
    search: Search, record: Record, runs: Record | None, ranking: Sequence[Confirmed]
) -> list[Winner]:
    """The confirmed configuration with the best mean, or the best trial where none is confirmed.

    Once for each of its complete runs, the best of them first; once where it has none.
    """
    first = ranking[0] if ranking else None
    trial = record.trials[first.trial_number] if first else record.ranked()[0]
    source, trainings, stage = record, [trial], "search"
    if runs and first:
        source, trainings, stage = runs, first.best_first(record.direction), "confirm"
    winners = []
    for run in trainings:
        report = source.best_report(run.number)
        assert report is not None
        checkpoints = checkpoint_folder(search.folder, stage, run.number)
        winners.append(Winner(trial, run, report, checkpoints, first, rival(ranking)))
    return winners


def choose(search: Search, data: PreparedData, record: Record, winners: Sequence[Winner]) -> Winner:
    """The first of them whose weights are there, or the first where none are.

    A tight budget takes the checkpoint of a best run whose configuration cannot win; once more
    seeds or configurations are asked for, it may win after all.
    """
    for winner in winners:
        is_there = winner.files.path(winner.report["samples_seen"]).exists()
        if is_there or is_handed_over(search.folder, describe(search, data, record, winner)):
            break
    else:
        return winners[0]
    if winner is not winners[0]:
        lost_seed, seed = (each.run.settings[SEED_KEY] for each in (winners[0], winner))
        say_under(
            "confirm",
            f"trial {winner.trial.number} did best on seed {lost_seed}, whose checkpoint is gone: "
            f"that of seed {seed} is handed over",
        )
    return winner


def describe(search: Search, data: PreparedData, record: Record, winner: Winner) -> dict[str, Any]:
    """What `best.yaml` says of a winner, as plain values."""
    config = search.config.with_overrides(winner.run.settings)
    described = describe_winner(
        config,
        winner.report,
        classes=data.train.classes,
        data_fingerprint=data.fingerprint if config.mining.ratio else data.images_fingerprint,
        threads=winner.report["threads"],
        device=winner.report["device"],
        trial_number=winner.trial.number,
        weights_sha256=recorded_sha256(search, record.settings, config.model.weights),
    )
    if winner.confirmed:
        described["confirmed"] = describe_confirmed(record, winner.confirmed, winner.not_told_apart)
    return described


def write_winner(
    search: Search, data: PreparedData, winner: Winner, described: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Writes `best.yaml` and `best/`; of a winner that they hold already what is new alone.

    Returns:
        The winner's checkpoint; None where it cannot be read and is not needed any more.
    """
    is_there = is_handed_over(search.folder, described)
    if is_there:
        write_found(search.folder, {key: described[key] for key in FOUND if key in described})
    best_yaml = search.folder / "best.yaml"
    try:
        checkpoint = winner.files.load(winner.report["samples_seen"])
    except CheckpointError as error:
        if is_there:
            return None
        forget_weights(search.folder / "best")
        write_best_yaml(best_yaml, described)
        raise CheckpointError(f"{error}; train it again: {retrain_command(search)}") from error
    if not is_there:
        config = search.config.with_overrides(winner.run.settings)
        mining_labels = describe_hard_images(checkpoint, data.train, config)
        write_model_folder(
            search.folder / "best", trained_weights(checkpoint), described, config, mining_labels
        )
        write_best_yaml(best_yaml, described)
    return checkpoint


def retrain_command(search: Search) -> str:
    """The command that trains the winner again."""
    return f"python -m tuner.retrain config={shown_path(search.folder / 'best.yaml')}"
