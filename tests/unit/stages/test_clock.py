"""A stage's time goes on from start to start, and is told by its reports."""

from math import inf

from tests.unit.stages.conftest import OpenCourse, record_of, report
from tuner.stages.clock import StageClock
from tuner.study.record import Record


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def with_reports(record: Record, *seconds: float | None) -> Record:
    """Return the record with a trial for each time at which a report came; None: without one."""
    for each in seconds:
        number = record.add_trial({"optim.lr": 0.1}).number
        stamp = {} if each is None else {"search_s": each}
        record.add_report(number, report(100, 0.5, **stamp))
    return record


def test_a_stage_counts_from_its_first_start(course_of: OpenCourse) -> None:
    now = Clock()
    clock = StageClock(record_of(course_of()), "search", 60, now)
    assert (clock.seconds, clock.seconds_left) == (0.0, 60.0)
    now.now_s += 45.5
    assert (clock.seconds, clock.seconds_left) == (45.5, 14.5)
    now.now_s += 20
    assert clock.seconds_left == -5.5


def test_without_a_budget_the_time_is_never_over(course_of: OpenCourse) -> None:
    now = Clock()
    clock = StageClock(record_of(course_of()), "search", None, now)
    now.now_s += 1e9
    assert clock.seconds_left == inf


def test_a_new_start_goes_on_from_the_latest_report(course_of: OpenCourse) -> None:
    record = with_reports(record_of(course_of()), 3.0, 12.5, None, 7.0)
    now = Clock()
    clock = StageClock(record, "search", 60, now)
    now.now_s += 10
    assert clock.seconds == 22.5


def test_a_kill_loses_at_most_what_came_after_the_last_report(course_of: OpenCourse) -> None:
    course, now = course_of(), Clock()
    for start in range(4):
        record = record_of(course)
        clock = StageClock(record, "search", 60, now)
        now.now_s += 5
        number = record.add_trial({"optim.lr": 0.1}).number
        record.add_report(number, clock.stamped(report(100, 0.5)))
        now.now_s += 2  # and killed
        assert clock.seconds == 5 * start + 7


def test_stages_are_counted_apart(course_of: OpenCourse) -> None:
    record = with_reports(record_of(course_of()), 50.0)
    clock = StageClock(record, "confirm", None, Clock())
    assert clock.stamped({"top1": 0.5}) == {"top1": 0.5, "confirm_s": 0.0}


def test_a_report_behind_the_budget_tells_no_less_than_the_budget(course_of: OpenCourse) -> None:
    now = Clock()
    clock = StageClock(record_of(course_of()), "search", 0.3, now)
    now.now_s += 0.3004
    assert clock.seconds_left <= 0
    assert clock.stamped({})["search_s"] == 0.3
