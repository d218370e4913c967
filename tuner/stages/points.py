"""What an earlier search gives this one to begin with: its best settings."""

import os
from dataclasses import replace
from pathlib import Path

from tuner.errors import StudyError
from tuner.reporting.terminal import count_text, say_under
from tuner.search_logic.points import Points, map_points
from tuner.settings.config import flatten
from tuner.settings.wording import shown_path
from tuner.stages.opening import Search
from tuner.study.reading import read_record
from tuner.study.record import Record


def find_points(search: Search) -> Points:
    """Returns the best settings of the search that `search.points` names, for this one's space.

    They are at most a quarter of the trials. That search may be running: nothing is written there.
    They are taken when a search begins; of one that has begun its own are returned.

    Raises:
        StudyError: There is no such search, it is this one, or its scores mean something else.
    """
    asked = search.config.search
    if asked.points is None:
        return Points()
    folder = Path(asked.points)
    if folder.resolve() == search.folder.resolve():
        raise StudyError(
            f"search.points: {shown_path(folder)} is this search's own folder; "
            "leave search.points out to go on, or add resume=never for a new search"
        )
    if begun := begun_record(search.folder):
        return Points(tuple(begun.points), source=begun.points_from)
    earlier = read_earlier(search, folder)
    found = map_points(
        [
            trial.settings
            for trial in earlier.ranked()
            if earlier.best_score(trial.number) is not None
        ],
        search.space.parameters,
        flatten(search.config),
        most=max(1, asked.trials // 4),
    )
    return replace(found, source=source_of(search, folder))


def begun_record(run_folder: Path) -> Record | None:
    """Returns the record of a search that has begun; None where it has not, or is damaged."""
    try:
        return read_record(run_folder)
    except StudyError:  # opening it will say so
        return None


def source_of(search: Search, folder: Path) -> str:
    """Returns how a search remembers the folder of an earlier one."""
    return os.path.relpath(folder.resolve(), search.folder.resolve())


def read_earlier(search: Search, folder: Path) -> Record:
    """Returns the record of an earlier search whose scores can be compared with this one's.

    Raises:
        StudyError: As `find_points` says.
    """
    where, metric = shown_path(folder), search.config.search.metric
    try:
        earlier = read_record(folder)
    except StudyError as error:
        raise StudyError(*(f"search.points: {problem}" for problem in error.problems)) from error
    if earlier.metric != metric:
        raise StudyError(
            f"search.points: {where} was searched by {earlier.metric} and this search goes by "
            f"{metric}; use search.metric={earlier.metric}, or leave search.points out"
        )
    if all(earlier.best_score(trial.number) is None for trial in earlier.trials):
        raise StudyError(f"search.points: no trial in {where} has a score; leave search.points out")
    return earlier


def say_points(search: Search, points: Points) -> None:
    """Prints how many settings are taken from where, and how many of them do not fit."""
    asked = search.config.search.points
    if asked is None:
        return
    if points.source != source_of(search, Path(asked)):
        first = "without any"
        if points.source is not None:
            folder = Path(os.path.normpath(search.folder.resolve() / points.source))
            first = f"with those of {shown_path(folder)}"
        say_under(
            "points",
            f"not taken from {shown_path(Path(asked))}: this search has begun {first}; "
            "resume=never begins another",
        )
        return
    taken = count_text(len(points.settings), "configuration")
    lines = [f"first the best of {shown_path(Path(asked))}: {taken}"]
    if points.num_outside:
        outside = count_text(points.num_outside, "configuration")
        lines.append(f"{outside} left out, with values outside this space")
    say_under("points", *lines)
