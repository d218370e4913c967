"""What an earlier search gives this one to begin with: its best settings."""

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

    Raises:
        StudyError: There is no such search, it is this one, or its scores mean something else.
    """
    asked = search.config.search
    if asked.points is None:
        return Points()
    earlier = read_earlier(search, Path(asked.points))
    return map_points(
        [
            trial.settings
            for trial in earlier.ranked()
            if earlier.best_score(trial.number) is not None
        ],
        search.space.parameters,
        flatten(search.config),
        most=max(1, asked.trials // 4),
    )


def read_earlier(search: Search, folder: Path) -> Record:
    """Returns the record of an earlier search whose scores can be compared with this one's.

    Raises:
        StudyError: As `find_points` says.
    """
    where, metric = shown_path(folder), search.config.search.metric
    if folder.resolve() == search.folder.resolve():
        raise StudyError(
            f"search.points: {where} is this search's own folder; "
            "leave search.points out to go on, or add resume=never for a new search"
        )
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
    taken = count_text(len(points.settings), "configuration")
    lines = [f"first the best of {shown_path(Path(asked))}: {taken}"]
    if points.num_outside:
        outside = count_text(points.num_outside, "configuration")
        lines.append(f"{outside} left out, with values outside this space")
    say_under("points", *lines)
