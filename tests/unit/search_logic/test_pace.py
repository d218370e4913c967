"""How long the way to the next rung takes, by what is known of the trial and of the others."""

from collections.abc import Sequence
from math import inf
from pathlib import Path

import pytest

from tests.unit.search_logic.conftest import RUNGS, Search
from tuner.search_logic.pace import NUM_NEWEST, Pace


def pace_of(
    folder: Path, reports: Sequence[Sequence[tuple[int, float]]], measured: float | None = None
) -> Pace:
    """Return the pace of trials that have each reported at these lengths, after these seconds."""
    search = Search(folder, trials=99, scheduler="none")
    for each in reports:
        job = search.next_job()
        for samples_seen, seconds in each:
            search.report(job, samples_seen, 0.5, seconds=seconds)
    return Pace(search.record, RUNGS, measured)


def test_a_trial_keeps_the_pace_of_its_last_report(tmp_path: Path) -> None:
    pace = pace_of(tmp_path, [[(500, 50.0), (1000, 5.0)], [(400, 40.0)], [(3500, 7.0)]])
    assert pace.seconds_to_rung(0) == pytest.approx(2000 * 0.01)
    assert pace.seconds_to_rung(1) == pytest.approx(600 * 0.1)
    assert pace.seconds_to_rung(2) == pytest.approx(5500 * 0.002)


def test_a_trial_without_a_report_takes_what_the_others_do(tmp_path: Path) -> None:
    pace = pace_of(tmp_path, [[(1000, 1.0)], [], [(1000, 2.0)], [(1000, 90.0)]], measured=7.0)
    assert pace.seconds_to_rung() == pace.seconds_to_rung(1) == pytest.approx(2.0)


def test_old_trials_tell_nothing_of_new_ones(tmp_path: Path) -> None:
    pace = pace_of(tmp_path, [[(1000, 90.0)]] * NUM_NEWEST + [[(1000, 1.0)]] * NUM_NEWEST)
    assert pace.seconds_to_rung() == pytest.approx(1.0)


def test_before_any_report_the_measured_pace_counts(tmp_path: Path) -> None:
    assert pace_of(tmp_path, [[], []], measured=0.25).seconds_to_rung() == 250.0


def test_what_nobody_knows_fits_as_long_as_there_is_time(tmp_path: Path) -> None:
    pace = pace_of(tmp_path, [[], [(500, 0.0)]])
    for number in (None, 0, 1):
        assert pace.seconds_to_rung(number) == 0
        assert pace.fits(number, 0.001)
        assert not pace.fits(number, 0.0)
        assert not pace.fits(number, -1.0)


def test_a_way_fits_that_takes_no_more_than_is_left(tmp_path: Path) -> None:
    pace = pace_of(tmp_path, [[(1000, 8.0)]])
    assert [pace.fits(0, seconds_left) for seconds_left in (15.9, 16.0, inf)] == [
        False,
        True,
        True,
    ]
    assert [pace.fits(None, seconds_left) for seconds_left in (7.9, 8.0)] == [False, True]


def test_a_trial_at_work_goes_on_between_rungs_while_there_is_time(tmp_path: Path) -> None:
    pace = pace_of(tmp_path, [[(1000, 8.0), (2000, 8.0)], [(1000, 8.0)], [(990, 8.0), (1040, 0.4)]])
    assert [pace.goes_on(0, seconds_left) for seconds_left in (0.0, 0.1)] == [False, True]
    assert [pace.goes_on(1, seconds_left) for seconds_left in (15.9, 16.0)] == [False, True]
    assert [pace.goes_on(2, seconds_left) for seconds_left in (15.6, 15.7)] == [False, True]
