"""The end of a search: what was found and what it cost, said and written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.files import write_json_rows
from tuner.reporting.classes import uneven_text
from tuner.reporting.terminal import count_text, duration_text, metric_text, say, say_under
from tuner.settings.wording import shown_path
from tuner.stages.course import Course
from tuner.stages.hand_over import Winner, retrain_command
from tuner.study.confirmed import Confirmed, describe_confirmed
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
    found: dict[str, Any] = {
        "trial_number": winner.trial.number,
        "confirmed": describe_confirmed(record, winner.confirmed) if winner.confirmed else None,
        "images_trained": sum(trial.samples_seen for trial in trained),
        "trainings": len(trained),
        "training_s": round(sum(trial.seconds for trial in trained), 1),
    }
    path = folder / "summary.json"
    before = summary_of(path, found)
    evaluation = winner.evaluation if before is None else before.get("evaluation")
    say_winner(record, winner)
    if evaluation and (uneven := uneven_text(evaluation)):
        say_under("classes", f"best/: {uneven}")
    say_under(
        "cost",
        f"{count_text(found['images_trained'], 'image')} in "
        f"{count_text(len(trained), 'training')}, "
        f"{duration_text(found['training_s'])} of slot time",
    )
    if before is None:
        expected_s = course.expected_s if is_whole else None
        say_times(times, expected_s)
        seconds = {stage: round(each, 2) for stage, each in times.items()}
        cost = {"seconds_of_this_start": seconds, "is_whole": is_whole}
        expected = {"expected_s": expected_s and round(expected_s, 1)}
        write_json_rows(path, {**found, **cost, **expected, "evaluation": evaluation})
    say_under("files", f"{shown_path(folder)}: {', '.join(files_of(folder))}")
    say(f"retrain   {retrain_command(course.search)}")


def summary_of(path: Path, found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the summary that is there; None where there is none of this outcome."""
    try:
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return before if all(before[key] == value for key, value in found.items()) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def say_winner(record: Record, winner: Winner) -> None:
    """Prints the configuration that is handed over, and what to expect of it."""
    metric, number = record.metric, winner.trial.number
    in_search = metric_text(metric, record.best_score(number))
    if winner.confirmed:
        told = f"{confirmed_text(metric, winner.confirmed)}; {in_search} in the search"
    else:
        told = f"{in_search} at epoch {winner.report['epoch']:g}"
    judged_by = count_text(winner.report["num_evaluated"], "validation image")
    settings = (f"{key} = {value}" for key, value in winner.trial.settings.items())
    say_under("best", f"trial {number}: {told}, of {judged_by}", *settings)


def say_times(times: Mapping[str, float], expected_s: float | None) -> None:
    """Prints what each stage took, and what had been expected."""
    planned_s = sum(times[stage] for stage in PLANNED)
    expected = f", expected {duration_text(expected_s)}" if expected_s else ""
    say_under(
        "",
        ", ".join(f"{stage} {duration_text(each)}" for stage, each in times.items()),
        f"{', '.join(PLANNED)} together {duration_text(planned_s)}{expected}",
    )


def confirmed_text(metric: str, found: Confirmed) -> str:
    """Returns mean and spread over the seeds, for people."""
    spread = "" if found.spread is None else f" ± {metric_text(metric, found.spread, unit=False)}"
    seeds = count_text(len(found.scores), "fresh seed")
    return f"{metric_text(metric, found.mean)}{spread} over {seeds}"


def files_of(folder: Path) -> list[str]:
    """Returns the names of what a person may want to open."""
    names = ("leaderboard.csv", "confirm.csv", "throughput.csv", "best.yaml", "best")
    return [name for name in names if (folder / name).exists()]
