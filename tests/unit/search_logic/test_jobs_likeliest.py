"""Trials that wait are told by how likely they go on, which is the order they do go on in."""

from pathlib import Path
from random import Random

import pytest

from tests.unit.search_logic.conftest import Search
from tuner.search_logic.jobs import Job


def waiting(search: Search) -> list[int]:
    """The trials that no job works on and that have not ended."""
    going_on = {each.number for each in search.record.trials if each.state == "running"}
    return sorted(going_on - search.jobs._running.keys())


def wait_at(search: Search, scores: dict[int, dict[int, float]]) -> None:
    """Trains new trials, all side by side, up to where each of them waits."""
    jobs = [search.next_job() for _ in scores]
    for job in jobs:
        for samples_seen, score in scores[job.trial_number].items():
            search.report(job, samples_seen, score)


def test_the_better_score_at_a_rung_is_likelier_and_of_equals_the_earlier_trial(
    quick_path: Path,
) -> None:
    search = Search(quick_path)
    wait_at(search, {0: {1000: 0.1}, 1: {1000: 0.2}})
    assert search.jobs.likeliest_first({0, 1}) == [1, 0]
    search = Search(quick_path / "loss", direction="minimize")
    wait_at(search, {0: {1000: 0.2}, 1: {1000: 0.2}})
    assert search.jobs.likeliest_first({1, 0}) == [0, 1]


def test_a_higher_rung_is_likelier_than_a_better_score(quick_path: Path) -> None:
    search = Search(quick_path)
    wait_at(search, {0: {1000: 0.9}, 1: {3000: 0.1}})
    assert search.jobs.likeliest_first([0, 1]) == [1, 0]


def test_what_goes_on_once_a_slot_is_free_comes_before_a_higher_rung(quick_path: Path) -> None:
    search = Search(quick_path)
    wait_at(search, {0: {1000: 0.9}, 1: {3000: 0.1}, 2: {1000: 0.2}})
    assert search.jobs.likeliest_first([2, 1, 0]) == [0, 1, 2]
    job = search.next_job()  # promoted, and given back between two rungs
    assert job.trial_number == 0
    search.report(job, 2000, 0.1)
    search.jobs.lost([job])
    assert search.jobs.likeliest_first([2, 1, 0]) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(5))
def test_of_those_that_wait_the_likeliest_is_the_one_that_goes_on(
    quick_path: Path, seed: int
) -> None:
    search, rng, running = Search(quick_path, trials=40), Random(seed), list[Job]()
    num_checked = 0
    while running or len(search.record.trials) < 40:
        before = waiting(search)
        told = search.jobs.likeliest_first(before)
        job = search.jobs.next_job() if len(running) < 4 else None
        if isinstance(job, Job):
            if job.trial_number in before and running:  # alone, the best of a small rung goes on
                assert job.trial_number == told[0]
                num_checked += 1
            running.append(job)
            continue
        if running:
            job = running.pop(rng.randrange(len(running)))
            samples_seen = search.record.trials[job.trial_number].samples_seen + 1000
            search.report(job, samples_seen, rng.random())
            if job.trial_number in search.jobs._running:
                running.append(job) if rng.random() < 0.9 else search.jobs.lost([job])
    assert num_checked > 5
