"""What a search begins with: the defaults, the best of an earlier one, or a list of settings."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.errors import StudyError
from tuner.reporting.terminal import count_text, say_under
from tuner.search_logic.points import Points, map_points
from tuner.settings.config import flatten
from tuner.settings.points import is_list, load_points
from tuner.settings.wording import shown, shown_path
from tuner.stages.opening import Search
from tuner.study.reading import read_record
from tuner.study.record import Record


def find_points(search: Search) -> Points:
    """Returns the settings of the list or earlier search that `search.points` names.

    Without either they are the defaults, with a drawn value where one lies outside of its range. A
    list is taken whole. Of an earlier search the best are taken, at most as many as a quarter of
    the trials; it may be running, nothing is written there. They are taken when a search begins; of
    one that has begun its own are returned.

    Raises:
        SettingsError: The list cannot be read, or a row of it is no point of the space.
        StudyError: There is no such search, it is this one, or its scores mean something else.
    """
    asked = search.config.search
    path = Path(asked.points) if asked.points is not None else None
    if path is not None and path.resolve() == search.folder.resolve():
        raise StudyError(
            f"search.points: {shown_path(path)} is this search's own folder; "
            "leave search.points out to go on, or add resume=never for a new search"
        )
    if begun := begun_record(search.folder):
        return Points(tuple(begun.points), source=begun.points_from)
    specs, fixed = search.space.parameters, flatten(search.config)
    if path is None:
        return map_points([{}], specs, fixed, most=1, seed=asked.seed)
    if is_list(path):
        given = load_points(path, specs, fixed)
        found = map_points(given, specs, fixed, most=len(given), seed=asked.seed)
    else:
        best = best_settings(read_earlier(search, path))
        found = map_points(best, specs, fixed, most=max(1, asked.trials // 4), seed=asked.seed)
    return replace(found, source=source_of(search, path))


def best_settings(earlier: Record) -> list[Mapping[str, Any]]:
    """Returns the settings of all trials that have a score, the best first."""
    return [
        trial.settings for trial in earlier.ranked() if earlier.best_score(trial.number) is not None
    ]


def begun_record(run_folder: Path) -> Record | None:
    """Returns the record of a search that has begun; None where it has not, or is damaged."""
    try:
        return read_record(run_folder)
    except StudyError:  # opening it will say so
        return None


def source_of(search: Search, path: Path) -> str:
    """Returns how a search remembers a list, or the folder of an earlier one."""
    return os.path.relpath(path.resolve(), search.folder.resolve())


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
    """Prints how many settings are taken from where, and what was done with them."""
    asked = search.config.search.points
    if asked is None:
        say_defaults(search, points)
        return
    path = Path(asked)
    if points.source != source_of(search, path):
        first = "with the defaults" if points.settings else "without any"
        if points.source is not None:
            folder = Path(os.path.normpath(search.folder.resolve() / points.source))
            first = f"with those of {shown_path(folder)}"
        say_under(
            "points",
            f"not taken from {shown_path(path)}: this search has begun {first}; "
            "resume=never begins another",
        )
        return
    taken = count_text(len(points.settings), "configuration")
    what = "those" if is_list(path) else "the best"
    say_under("points", f"first {what} of {shown_path(path)}: {taken}", *notes(search, points))


def say_defaults(search: Search, points: Points) -> None:
    """Prints the defaults where a new search begins with them."""
    if points.filled:
        own = flatten(search.config)
        filled = ", ".join(f"{key} {shown(own[key])}" for key in points.filled)
        drawn = f"; drawn: {', '.join(points.drawn)}" if points.drawn else ""
        say_under("points", f"first the defaults: {filled}{drawn}")


def notes(search: Search, points: Points) -> Iterator[str]:
    """Yields, for people, what was left out and filled in."""
    if points.num_outside:
        outside = count_text(points.num_outside, "configuration")
        yield f"{outside} left out, with values outside this space"
    if points.num_repeated:
        repeated = count_text(points.num_repeated, "configuration")
        yield f"{repeated} left out, being there already"
    own = flatten(search.config)
    for key in points.filled:
        yield f"{key} is {shown(own[key])}, as in the space, where it is not set"
    for key in points.drawn:
        yield f"{key} is drawn where it is not set: its own value ({shown(own[key])}) lies outside"
    if (trials := search.config.search.trials) < len(points.settings):
        yield f"{trials} of them are tried; a larger search.trials goes on with the others"
