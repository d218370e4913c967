"""Which trials go on at lengths where none is better than guessing."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.search_logic.conftest import Search
from tuner.search_logic.jobs import END, GO, STOP, Decision


@pytest.mark.parametrize(
    ("scores", "decision", "order"),
    [((0.1, 0.1, 0.05), STOP, [0, 1, 2]), ((0.05, 0.1, 0.07), STOP, [1, 2, 0])]
    + [((0.05, 0.07, 0.1), GO, [2, 1, 0])],
)
def test_while_no_trial_is_better_than_guessing_all_go_on_the_best_first(
    tmp_path: Path, scores: Sequence[float], decision: Decision, order: list[int]
) -> None:
    search = Search(tmp_path, chance=0.1)
    jobs = [search.next_job() for _ in range(3)]
    decisions = [search.report(job, 1000, top1) for job, top1 in zip(jobs, scores, strict=True)]
    assert decisions == [STOP, STOP, decision]
    rest = order[1:] if decision is GO else order
    assert [search.next_job().trial_number for _ in rest] == rest
    search.restart()
    assert [search.next_job().trial_number for _ in range(4)] == [*order, 3]


def test_of_two_trials_no_better_than_guessing_both_go_on_once_there_is_no_other(
    tmp_path: Path,
) -> None:
    search = Search(tmp_path, chance=0.1, trials=2)
    for job in (search.next_job(), search.next_job()):
        assert search.report(job, 1000, 0.1) is STOP
    for until in (3000, 9000, 3000):
        search.report(search.next_job(), until, 0.1)
    assert search.jobs.next_job() is END
    assert (search.samples(), search.states()) == ([9000, 3000], ["complete", "stopped"])


def test_stopping_ends_none_while_none_is_better_than_guessing(tmp_path: Path) -> None:
    search = Search(tmp_path, scheduler="asha_stopping", chance=0.1)
    jobs = [search.next_job() for _ in range(5)]
    assert [search.report(job, 1000, 0.1) for job in jobs[:3]] == [GO, GO, GO]
    assert search.report(jobs[3], 1000, 0.11) is GO
    assert search.report(jobs[4], 1000, 0.1) is STOP


def test_the_first_score_above_guessing_ends_that(tmp_path: Path) -> None:
    search = Search(tmp_path, chance=0.1)
    jobs = [search.next_job() for _ in range(4)]
    for job in jobs[:2]:
        assert search.report(job, 1000, 0.1) is STOP
    assert search.report(jobs[2], 1000, 0.11) is GO
    assert search.report(jobs[3], 1000, 0.1) is STOP
    assert search.next_job().trial_number == 4


def test_trials_that_learn_nothing_do_not_all_go_to_the_end(tmp_path: Path) -> None:
    search = Search(tmp_path, chance=0.1)
    jobs = [search.next_job() for _ in range(4)]
    decisions = [search.report(job, 3000, 0.1) for job in jobs]
    assert decisions == [STOP, STOP, STOP, STOP]
    assert search.next_job().trial_number == 0
    assert search.next_job().trial_number == 4
