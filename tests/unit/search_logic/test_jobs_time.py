"""No time is spent on what cannot be ended in it, and none is left where something could."""

import tempfile
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import cycle
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.search_logic.conftest import RUNGS, Search, check, journal, killed, score
from tuner.search_logic.jobs import END, GO, STOP, WAIT, Decision, Job, NoJob, Scheduler
from tuner.search_logic.sampling import Sampler
from tuner.settings.space import ChoiceSpec, IntSpec

SECONDS_PER_IMAGE = 0.01  # 10 s to the first rung, then 20 and 60


def report(search: Search, job: Job, samples_seen: int, top1: float) -> Decision:
    """Report with the seconds that the way took."""
    before = search.record.trials[job.trial_number].samples_seen
    seconds = SECONDS_PER_IMAGE * (samples_seen - before)
    return search.report(job, samples_seen, top1, seconds=seconds)


def test_a_new_trial_takes_the_time_that_a_promotion_would_not_end_in(tmp_path: Path) -> None:
    search = Search(tmp_path, seconds_per_image=SECONDS_PER_IMAGE)
    for top1 in (0.5, 0.4, 0.3):
        report(search, search.next_job(), 1000, top1)
    assert search.jobs.lacks_time(9.9)
    assert search.jobs.next_job(9.9) is END
    new = search.jobs.next_job(19.9)
    assert isinstance(new, Job)
    assert (new.trial_number, new.start_samples) == (3, 0)
    promoted = search.jobs.next_job(20.0)
    assert isinstance(promoted, Job)
    assert (promoted.trial_number, promoted.start_samples) == (0, 1000)
    assert search.jobs.next_job(9.9) is WAIT


def test_the_next_best_of_a_rung_takes_the_time_that_is_too_short_for_the_best(
    tmp_path: Path,
) -> None:
    search = Search(tmp_path, trials=6)
    jobs = [search.next_job() for _ in range(6)]
    for job, top1 in zip(jobs, (0.9, 0.8, 0.1, 0.1, 0.1, 0.1), strict=True):
        seconds = 50.0 if job.trial_number == 0 else 10.0
        search.report(job, 1000, top1, seconds=seconds)
    found = search.jobs.next_job(60.0)
    assert isinstance(found, Job)
    assert found.trial_number == 1
    assert search.next_job().trial_number == 0


def test_of_trials_between_two_rungs_one_goes_on_that_gets_there(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=2)
    jobs = [search.next_job(), search.next_job()]
    for job, samples_seen in zip(jobs, (500, 700), strict=True):
        report(search, job, samples_seen, 0.5)
    search.restart()
    assert search.jobs.next_job(2.9) is END
    found = search.jobs.next_job(3.1)
    assert isinstance(found, Job)
    assert found.trial_number == 1


def test_what_waits_where_the_time_is_too_short_goes_on_with_more(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=3, seconds_per_image=SECONDS_PER_IMAGE)
    for top1 in (0.5, 0.4, 0.3):
        report(search, search.next_job(), 1000, top1)
    before = journal(search)
    assert search.jobs.next_job(19.9) is END
    assert journal(search) == before
    assert search.jobs.counts()["waiting"] == 3
    search.restart()
    assert search.next_job().trial_number == 0


def test_where_nothing_is_left_the_time_lacks_for_nothing(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=1, seconds_per_image=SECONDS_PER_IMAGE)
    assert search.jobs.lacks_time(9.9)
    assert not search.jobs.lacks_time(10.0)
    report(search, search.next_job(), 9000, 0.5)
    assert not search.jobs.lacks_time(0.1)
    assert search.jobs.next_job(0.1) is END
    assert search.jobs.is_finished


class Slots:
    """Trains the jobs of a search side by side, on a clock of its own, until none is handed out.

    Every image takes the same time, but for trials of the `slow` batch size, whose images take
    three times as long.
    """

    def __init__(self, search: Search, num_slots: int, budget_s: float, *, slow: int = 0) -> None:
        self.search = search
        self.num_slots = num_slots
        self.budget_s = budget_s
        self.slow = slow
        self.now_s = 0.0
        self.overrun_s = [0.0]  # of each stint that was begun, to its next rung
        self._events: list[tuple[float, int, Job, int]] = []

    def pace(self, job_settings: Mapping[str, Any]) -> float:
        return SECONDS_PER_IMAGE * (3 if job_settings["train.batch_size"] == self.slow else 1)

    def run(self) -> None:
        while True:
            job: Job | NoJob = WAIT
            if len(self._events) < self.num_slots:
                job = self._take()
            if isinstance(job, Job):
                self._advance(job, job.start_samples)
            elif self._events:
                self._hear()
            else:
                assert job is END
                return

    def _take(self) -> Job | NoJob:
        job = self.search.jobs.next_job(self.budget_s - self.now_s)
        if isinstance(job, Job):
            self._begin_rung(job, job.start_samples)
        return job

    def _begin_rung(self, job: Job, samples_seen: int) -> None:
        rung = next(length for length in RUNGS if length > samples_seen)
        end_s = self.now_s + self.pace(job.settings) * (rung - samples_seen)
        self.overrun_s.append(end_s - self.budget_s)

    def _advance(self, job: Job, samples_seen: int) -> None:
        end_s = self.now_s + self.pace(job.settings) * 1000
        heappush(self._events, (end_s, job.trial_number, job, samples_seen + 1000))

    def _hear(self) -> None:
        self.now_s, _, job, samples_seen = heappop(self._events)
        top1 = score(job.settings, samples_seen)
        seconds = self.pace(job.settings) * 1000
        if self.search.report(job, samples_seen, top1, seconds=seconds) is STOP:
            return
        if self.search.jobs.pace.goes_on(job.trial_number, self.budget_s - self.now_s):
            if samples_seen in RUNGS:
                self._begin_rung(job, samples_seen)
            self._advance(job, samples_seen)
        else:
            self.search.jobs.lost([job])


def left_over(search: Search) -> list[float]:
    """Return the seconds of every job that the search would still hand out, one after another."""
    seconds = []
    while isinstance(job := search.jobs.next_job(), Job):
        samples_seen = job.start_samples
        rung = next(length for length in RUNGS if length > samples_seen)
        seconds.append(SECONDS_PER_IMAGE * (rung - samples_seen))
    return seconds


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    budget_s=st.floats(0.0, 400.0),
    num_slots=st.integers(1, 4),
    scheduler=st.sampled_from(["asha", "asha_stopping"]),
    trials=st.integers(1, 12),
    patience=st.sampled_from([None, 3]),
)
def test_no_stint_ends_behind_the_budget_and_no_time_is_left_that_a_job_would_fit_in(
    quick_path: Path,
    budget_s: float,
    num_slots: int,
    scheduler: Scheduler,
    trials: int,
    patience: int | None,
) -> None:
    with tempfile.TemporaryDirectory(dir=quick_path) as folder:
        search = Search(
            Path(folder),
            scheduler=scheduler,
            trials=trials,
            patience=patience,
            seconds_per_image=SECONDS_PER_IMAGE,
        )
        slots = Slots(search, num_slots, budget_s)
        slots.run()
        check(search, {})
        assert max(slots.overrun_s) <= 1e-6
        left_s = budget_s - slots.now_s
        assert left_s >= -1e-6
        assert all(seconds > left_s - 1e-6 for seconds in left_over(search))


def test_where_images_take_longer_than_they_did_a_stint_ends_behind_the_budget_by_that_much(
    quick_path: Path,
) -> None:
    search = Search(quick_path, trials=40, seconds_per_image=SECONDS_PER_IMAGE)
    slots = Slots(search, 2, 400.0, slow=64)
    slots.run()
    # A new trial may turn out three times as slow as the median; a known one takes what it took.
    assert 0 < max(slots.overrun_s) <= 20.0


def play(search: Search, budget_s: float, after_event: Callable[[], bool] = lambda: False) -> None:
    """Work off the jobs in one slot, whose clock is what the reports tell; maybe killed."""

    def seconds_left() -> float:
        return budget_s - sum(trial.seconds for trial in search.record.trials)

    while isinstance(job := search.jobs.next_job(seconds_left()), Job):
        samples_seen, decision = job.start_samples, GO
        lives = not killed(search, after_event)
        while lives and decision is GO:
            samples_seen += 1000
            decision = report(search, job, samples_seen, score(job.settings, samples_seen))
            goes_on = search.jobs.pace.goes_on(job.trial_number, seconds_left())
            if decision is GO and not goes_on:
                search.jobs.lost([job])
                decision = STOP
            lives = not killed(search, after_event)


@pytest.mark.parametrize("scheduler", ["asha", "asha_stopping", "none"])
@pytest.mark.parametrize("budget_s", [95.0, 205.0, 385.0])
def test_a_search_killed_after_every_event_uses_its_time_as_it_would_have(
    quick_path: Path, scheduler: Scheduler, budget_s: float
) -> None:
    known: dict[str, Any] = {
        "scheduler": scheduler,
        "seconds_per_image": SECONDS_PER_IMAGE,
        "trials": 40,
    }
    whole = Search(quick_path / "whole", **known)
    play(whole, budget_s)
    spent_s = sum(trial.seconds for trial in whole.record.trials)
    assert 0 < spent_s < budget_s
    assert not whole.jobs.is_finished
    often = Search(quick_path / "killed", **known)
    play(often, budget_s, cycle([True, True, False]).__next__)
    assert journal(often) == journal(whole)


FEW = {"optim.lr": IntSpec(1, 4), "train.batch_size": ChoiceSpec((32, 64))}
ENDS: Mapping[str, Mapping[str, Any]] = {
    "patience": {"patience": 4},
    "points": {
        "patience": 2,
        "points": [{"optim.lr": 0.1 * k, "train.batch_size": 32} for k in (1, 2, 3)],
    },
    "space": {"specs": FEW},
    "trials": {"trials": 7},
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_whatever_ends_a_search_first_it_ends_the_same_killed_after_every_event_and_not(
    quick_path: Path, end: str, sampler: Sampler
) -> None:
    asked: dict[str, Any] = {"sampler": sampler, "trials": 30, **ENDS[end]}
    for budget_s in (105.0, inf):
        whole = Search(quick_path / f"whole {budget_s}", **asked)
        play(whole, budget_s)
        assert whole.jobs.is_finished is (budget_s == inf)
        assert len(whole.states()) < 30
        often = Search(quick_path / f"killed {budget_s}", **asked)
        play(often, budget_s, cycle([True, True, False]).__next__)
        assert journal(often) == journal(whole)
        again = Search(quick_path / f"again {budget_s}", **asked)
        play(again, budget_s)
        assert journal(again) == journal(whole)


def test_more_time_goes_on_to_the_end(quick_path: Path) -> None:
    search = Search(quick_path, seconds_per_image=SECONDS_PER_IMAGE)
    for budget_s in (15.0, 95.0, 155.0, inf):
        play(search, budget_s)
        assert search.jobs.is_finished is (budget_s == inf)
        search.restart()
    assert len(search.states()) == 9
    assert "running" not in search.states()
