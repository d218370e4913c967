"""A search ends once so many trials in a row have brought nothing better."""

from collections.abc import Sequence
from itertools import cycle, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.search_logic.conftest import Search, check, journal, run_to_the_end
from tuner.search_logic.ends import num_in_vain
from tuner.search_logic.jobs import END, GO, STOP, WAIT, Job, Scheduler
from tuner.search_logic.rungs import Rung
from tuner.settings.space import ChoiceSpec

TABLES = st.lists(  # of each rung, trial number to score
    st.dictionaries(st.integers(0, 11), st.sampled_from([0.1, 0.2, 0.3]), max_size=12),
    min_size=1,
    max_size=3,
)


@given(tables=TABLES, undecided=st.sets(st.integers(0, 11)))
def test_trials_in_vain_are_those_behind_the_best_one_that_have_been_decided(
    tables: list[dict[int, float]], undecided: set[int]
) -> None:
    rungs = [Rung(3) for _ in tables]
    for rung, table in zip(rungs, tables, strict=True):
        for number, score in table.items():
            rung.add(number, score)
    highest = next((table for table in reversed(tables) if table), {})
    holders = [number for number in highest if highest[number] == max(highest.values())]
    behind = range(min(holders, default=-1) + 1, 12)
    assert num_in_vain(rungs, 12, undecided) == len(set(behind) - undecided)


def train_all(search: Search, scores: Sequence[float | None]) -> None:
    """Work off the jobs in one slot: a trial scores the same at each length, None diverges."""
    while isinstance(job := search.jobs.next_job(), Job):
        score = scores[job.trial_number]
        if score is None:
            search.jobs.fail(job, "diverged")
            continue
        for samples in range(job.start_samples + 1000, 9001, 1000):
            if search.report(job, samples, score) is STOP:
                break
    assert job is END
    check(search, {})


def test_without_patience_every_trial_is_tried(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=12)
    train_all(search, [0.9, *[0.1] * 11])
    assert not search.jobs.out_of_patience
    assert len(search.states()) == 12


@pytest.mark.parametrize(
    ("scores", "num_trials"),
    [
        ([0.5, 0.4, 0.3, 0.2, 0.1], 4),
        ([0.5, 0.4, 0.6, 0.4, 0.3, 0.2, 0.9], 6),
        ([0.5, 0.5, 0.5, 0.5, 0.5], 4),  # as good is not better
        ([0.5, None, 0.4, None, 0.9], 4),
        ([None, None, 0.4, 0.1, 0.1, 0.1, 0.9], 6),
        ([None, None, None, 0.9], 3),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], 8),
    ],
)
def test_a_search_without_a_scheduler_ends_after_so_many_trials_in_vain(
    tmp_path: Path, scores: list[float | None], num_trials: int
) -> None:
    search = Search(tmp_path, trials=8, scheduler="none", patience=3, max_failures=0)
    train_all(search, scores)
    assert len(search.states()) == num_trials
    assert search.jobs.is_finished
    search.restart()
    assert search.jobs.is_finished
    assert search.jobs.next_job() is END
    assert len(search.states()) == num_trials


def test_of_promoted_trials_the_highest_rung_decides(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=20, patience=4)
    for top1 in (0.1, 0.5, 0.2):
        assert search.report(search.next_job(), 1000, top1) is STOP
    search.report(search.next_job(), 3000, 0.55)  # trial 1
    search.report(search.next_job(), 1000, 0.2)
    better = search.next_job()
    assert search.report(better, 1000, 0.6) is GO
    assert search.report(better, 3000, 0.52) is STOP
    assert not search.jobs.out_of_patience
    last = search.next_job()
    assert not search.jobs.out_of_patience
    search.report(last, 1000, 0.1)
    assert search.jobs.out_of_patience  # 2 to 5: trial 4 was the best no longer


def test_what_has_begun_when_patience_ends_goes_on_and_may_turn_it(tmp_path: Path) -> None:
    search = Search(tmp_path, scheduler="none", patience=2, trials=9)
    jobs = [search.next_job() for _ in range(4)]
    search.report(jobs[0], 9000, 0.5)
    search.report(jobs[1], 9000, 0.4)
    assert search.next_job().trial_number == 4
    search.report(jobs[2], 9000, 0.3)
    assert search.jobs.next_job() is WAIT
    search.report(jobs[3], 9000, 0.6)
    assert search.next_job().trial_number == 5


def test_a_trial_that_waits_is_stopped_and_the_best_trained_in_full(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=9, patience=1)
    train_all(search, [0.5, 0.4, 0.9])
    assert search.states() == ["complete", "stopped"]
    assert search.jobs.is_finished


def test_more_patience_goes_on_with_new_trials(tmp_path: Path) -> None:
    scores = [0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1]
    search = Search(tmp_path, trials=9, scheduler="none", patience=2)
    train_all(search, scores)
    before = list(search.record.trials)
    assert len(before) == 3
    search.restart(patience=4)
    assert not search.jobs.is_finished
    train_all(search, scores)
    assert list(search.record.trials)[:3] == before
    assert len(search.states()) == 5
    search.restart(patience=None)
    train_all(search, scores)
    assert len(search.states()) == 9


def test_given_points_are_tried_whatever_the_patience(tmp_path: Path) -> None:
    points = [{"optim.lr": 0.1 + k / 100, "train.batch_size": 32} for k in range(5)]
    search = Search(tmp_path, trials=9, scheduler="none", patience=2, points=points)
    train_all(search, [0.9, *[0.1] * 8])
    assert [trial.settings for trial in search.record.trials] == points


def test_patience_ends_nothing_that_a_space_or_the_time_has_ended_before(tmp_path: Path) -> None:
    few = {"train.batch_size": ChoiceSpec((32, 64, 128))}
    search = Search(tmp_path / "few", specs=few, scheduler="none", patience=3)
    train_all(search, [0.5, 0.4, 0.3])
    assert search.jobs.exhausted
    assert not search.jobs.out_of_patience
    search = Search(tmp_path / "late", scheduler="none", patience=1)
    for top1 in (0.5, 0.4):
        search.report(search.next_job(), 9000, top1)
    assert search.jobs.next_job(0.0) is END
    assert search.jobs.is_finished


@pytest.mark.parametrize("scheduler", ["asha", "asha_stopping", "none"])
@pytest.mark.parametrize("patience", [1, 3, 6])
def test_a_search_killed_after_every_event_ends_where_it_would_have_ended(
    quick_path: Path, scheduler: Scheduler, patience: int
) -> None:
    whole = Search(quick_path / "whole", scheduler=scheduler, trials=20, patience=patience)
    run_to_the_end(whole)
    assert whole.jobs.is_finished
    assert len(whole.states()) < 20
    often = Search(quick_path / "killed", scheduler=scheduler, trials=20, patience=patience)
    run_to_the_end(often, cycle([True, True, False]).__next__)
    assert journal(often) == journal(whole)


def test_more_patience_tries_no_fewer_trials(quick_path: Path) -> None:
    tried = []
    for patience in (1, 2, 4, 8):
        search = Search(quick_path / f"{patience}", trials=20, patience=patience)
        run_to_the_end(search)
        tried.append(len(search.states()))
    assert all(fewer <= more for fewer, more in pairwise(tried))
    assert tried[0] < tried[-1]
