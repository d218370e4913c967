"""The end of a search: what was found and what it cost, said and written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.files import write_json_rows
from tuner.reporting.classes import uneven_text
from tuner.reporting.confirmed import (
    confirmed_lines,
    confirmed_text,
    held_out_lines,
    luck_text,
    search_text,
)
from tuner.reporting.terminal import count_text, duration_text, metric_text, say, say_under
from tuner.settings.wording import shown_path
from tuner.stages.course import Course
from tuner.stages.hand_over import Winner, retrain_command
from tuner.study.confirmed import describe_confirmed
from tuner.study.record import Record

PLANNED = ("measure", "search", "confirm")  # whose seconds were expected


def sum_up(
    course: Course,
    winner: Winner,
    record: Record,
    runs: Record | None,
    times: Mapping[str, float],
    *,
    is_whole: bool,
) -> None:
    """Prints and writes, as `summary.json`, what was found and what it cost.

    A start that had nothing left to train leaves the file of the start that trained.

    Args:
        course: What had been expected of it.
        winner: What is handed over.
        record: Its trials.
        runs: Its confirm runs.
        times: The seconds of each stage, in this start of the search.
        is_whole: Whether this start did all of it, so that what was expected can be compared.
    """
    folder = course.search.folder
    trained = [*record.trials, *(runs.trials if runs else ())]
    cost: dict[str, Any] = {
        "images_trained": sum(trial.samples_seen for trial in trained),
        "trainings": len(trained),
        "training_s": round(sum(trial.seconds for trial in trained), 1),
    }
    path = folder / "summary.json"
    before = summary_of(path, cost)
    # Where the checkpoint has gone since, what was found then stays true of the same weights.
    evaluation = winner.evaluation or (before or {}).get("evaluation")
    found = describe_found(record, winner)
    say_winner(record, winner)
    if evaluation and (uneven := uneven_text(evaluation)):
        say_under("classes", f"best/: {uneven}")
    say_under(
        "cost",
        f"{count_text(cost['images_trained'], 'image')} in "
        f"{count_text(len(trained), 'training')}, "
        f"{duration_text(cost['training_s'])} of slot time",
    )
    if before is None:
        expected_s = course.expected_s if is_whole else None
        say_times(times, expected_s)
        seconds = {stage: round(each, 2) for stage, each in times.items()}
        cost |= {"seconds_of_this_start": seconds, "is_whole": is_whole}
        cost |= {"expected_s": expected_s and round(expected_s, 1)}
    summary = {**(before or {**found, **cost}), **found, "evaluation": evaluation}
    if summary != before:
        write_json_rows(path, summary)
    say_under("files", f"{shown_path(folder)}: {', '.join(files_of(folder))}")
    say(f"retrain   {retrain_command(course.search)}")


def describe_found(record: Record, winner: Winner) -> dict[str, Any]:
    """Returns what `summary.json` says of the winner."""
    confirmed = winner.confirmed
    return {
        "trial_number": winner.trial.number,
        "confirmed": confirmed and describe_confirmed(record, confirmed, winner.not_told_apart),
        "test": winner.test,
    }


def summary_of(path: Path, cost: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the summary that is there; None where there is none of these trainings."""
    try:
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return before if all(before[key] == value for key, value in cost.items()) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def say_winner(record: Record, winner: Winner) -> None:
    """Prints the configuration that is handed over, and what to expect of it."""
    metric, number, confirmed = record.metric, winner.trial.number, winner.confirmed
    in_search = metric_text(metric, record.best_score(number))
    told, more = f"{in_search} at epoch {winner.report['epoch']:g}", []
    if confirmed:
        told = confirmed_text(metric, confirmed)
        more = [search_text(record, confirmed)]
        more += confirmed_lines(metric, confirmed, winner.not_told_apart)
    judged_by = count_text(winner.report["num_evaluated"], "validation image")
    settings = (f"{key} = {value}" for key, value in winner.trial.settings.items())
    say_under("best", f"trial {number}: {told}, of {judged_by}", *more, *settings)
    if winner.test:
        say_under("test", *held_out_lines(winner.test))
    has_test = winner.test is not None
    say_under("luck", luck_text(is_confirmed=confirmed is not None, has_test=has_test))


def say_times(times: Mapping[str, float], expected_s: float | None) -> None:
    """Prints what each stage took, and what had been expected."""
    planned_s = sum(times[stage] for stage in PLANNED)
    expected = f", expected {duration_text(expected_s)}" if expected_s else ""
    say_under(
        "",
        ", ".join(f"{stage} {duration_text(each)}" for stage, each in times.items()),
        f"{', '.join(PLANNED)} together {duration_text(planned_s)}{expected}",
    )


def files_of(folder: Path) -> list[str]:
    """Returns the names of what a person may want to open."""
    names = ("leaderboard.csv", "confirm.csv", "throughput.csv", "best.yaml", "best")
    return [name for name in names if (folder / name).exists()]
