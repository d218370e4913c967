"""Jobs keep what they promise through kills and under any order of reports and failures."""

import tempfile
from itertools import count, cycle
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.search_logic.conftest import Search, check, journal, run_to_the_end
from tuner.search_logic.cube import settings_key
from tuner.search_logic.jobs import END, STOP, WAIT, Job, NoJob, Scheduler
from tuner.search_logic.sampling import Sampler


@pytest.mark.parametrize("sampler", ["rung_gp", "tpe", "random", "qmc"])
@pytest.mark.parametrize("scheduler", ["asha", "asha_stopping", "none"])
def test_a_search_killed_after_every_event_does_what_it_would_have_done(
    quick_path: Path, scheduler: Scheduler, sampler: Sampler
) -> None:
    kwargs: dict[str, Any] = {"scheduler": scheduler, "sampler": sampler, "trials": 12}
    whole = Search(quick_path / "whole", **kwargs)
    run_to_the_end(whole)
    often = Search(quick_path / "killed", **kwargs)
    # After every report and, before the next one, with a job just handed out.
    run_to_the_end(often, cycle([True, True, False]).__next__)
    assert journal(often) == journal(whole)


def test_given_points_are_tried_once_and_first_whenever_a_search_is_killed(
    quick_path: Path,
) -> None:
    points = [{"optim.lr": rate, "train.batch_size": 32} for rate in (0.3, 0.1, 0.3, 0.2)]
    whole = Search(quick_path / "whole", points=points, trials=12, sampler="tpe")
    run_to_the_end(whole)
    assert [trial.settings for trial in whole.record.trials[:3]] == [points[k] for k in (0, 1, 3)]
    often = Search(quick_path / "killed", points=points, trials=12, sampler="tpe")
    run_to_the_end(often, cycle([True, True, False]).__next__)
    assert journal(often) == journal(whole)


@pytest.mark.parametrize("chance", [-inf, 0.3])
@pytest.mark.parametrize("scheduler", ["asha", "asha_stopping"])
def test_a_search_killed_once_does_what_it_would_have_done(
    quick_path: Path, scheduler: Scheduler, chance: float
) -> None:
    kwargs: dict[str, Any] = {"scheduler": scheduler, "trials": 6, "chance": chance}
    whole = Search(quick_path / "whole", **kwargs)
    events = count()
    run_to_the_end(whole, lambda: next(events) < 0)
    for moment in range(next(events)):
        once = Search(quick_path / f"{moment}", **kwargs)
        run_to_the_end(once, map(moment.__eq__, count()).__next__)
        assert journal(once) == journal(whole)


ACTIONS = st.tuples(
    st.sampled_from(
        ["job", "job", "report", "report", "report", "fail", "lost", "restart", "time is over"]
    ),
    st.integers(0, 3),
    st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5]),
    st.sampled_from([500, 1000, 1700, 6000]),
    st.sampled_from(["error", "killed", "stalled", "diverged", "out_of_memory"]),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    actions=st.lists(ACTIONS, max_size=40),
    slots=st.integers(1, 4),
    scheduler=st.sampled_from(["asha", "asha_stopping", "none"]),
    patience=st.sampled_from([None, 2]),
    chance=st.sampled_from([-inf, 0.2]),
)
def test_no_order_of_events_loses_a_job_or_hands_it_out_twice(
    quick_path: Path,
    actions: list[tuple[str, int, float, int, str]],
    slots: int,
    scheduler: Scheduler,
    patience: int | None,
    chance: float,
) -> None:
    with tempfile.TemporaryDirectory(dir=quick_path) as folder:
        search = Search(Path(folder), scheduler=scheduler, patience=patience, chance=chance)
        running: dict[int, Job] = {}
        seen: dict[int, int] = {}

        def take_job() -> NoJob | None:
            job = search.jobs.next_job()
            if isinstance(job, NoJob):
                assert job is END or running
                return job
            assert job.trial_number not in running
            assert job.start_samples == search.record.trials[job.trial_number].samples_seen
            running[job.trial_number] = job
            seen[job.trial_number] = job.start_samples
            return None

        def advance(job: Job, samples: int, top1: float) -> None:
            samples_seen = min(seen[job.trial_number] + samples, job.until_samples)
            seen[job.trial_number] = samples_seen
            if search.report(job, samples_seen, top1) is STOP:
                del running[job.trial_number]

        for action, which, top1, samples, reason in actions:
            job = list(running.values())[which % len(running)] if running else None
            if action == "restart":
                search.restart()
                running.clear()
            elif action == "lost":
                search.jobs.lost(running.values())
                running.clear()
            elif action == "time is over":
                before = journal(search)
                assert search.jobs.next_job(0.0) is (WAIT if running else END)
                assert journal(search) == before
            elif action == "job" and len(running) < slots:
                take_job()
            elif action == "report" and job:
                advance(job, samples, top1)
            elif action == "fail" and job:
                search.jobs.fail(running.pop(job.trial_number), reason)
            check(search, running)

        while not search.jobs.is_finished:
            if take_job() is not None or len(running) == slots:
                for job in running.copy().values():
                    advance(job, 1000, 0.3)
            if search.jobs.fatal and not running:
                search.restart()
            check(search, running)
        assert running == {}
        assert search.jobs.next_job() is END
        tried = {settings_key(trial.settings) for trial in search.record.trials}
        assert len(tried) == len(search.states())
        assert len(tried) == 9 or search.jobs.out_of_patience
