"""`leaderboard.csv` and `confirm.csv`, from what is recorded."""

from collections.abc import Sequence

from tuner.reporting.leaderboard import confirm_rows, leaderboard_rows, write_rows
from tuner.stages.course import Course
from tuner.study.confirmed import Confirmed
from tuner.study.record import Record


def write_leaderboard(course: Course, record: Record, ranking: Sequence[Confirmed] = ()) -> None:
    """Writes a row for each trial, the winner first.

    Args:
        course: The search; its settings stand where a trial sets none.
        record: Its trials; one at least.
        ranking: The confirmed configurations, the best first.
    """
    search = course.search
    parameters = list(search.space.parameters)
    rows = leaderboard_rows(record, search.config, course.work.rungs, parameters, ranking)
    write_rows(search.folder / "leaderboard.csv", rows)


def write_confirm_table(course: Course, record: Record, runs: Record) -> None:
    """Writes a row for each confirm run; one at least."""
    search = course.search
    rows = confirm_rows(record, runs, list(search.space.parameters))
    write_rows(search.folder / "confirm.csv", rows)
