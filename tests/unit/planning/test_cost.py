"""What a search will cost, against searches that are played through."""

import random
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.planning.cost import (
    LONGEST_MEASURE_S,
    START_S,
    Estimate,
    Work,
    measure_budget_s,
)
from tuner.search_logic.jobs import GO, Job, Jobs, Scheduler
from tuner.search_logic.rungs import rung_lengths
from tuner.settings.space import FloatSpec, ParameterSpec
from tuner.study.record import Record

SPACE: Mapping[str, ParameterSpec] = {"optim.lr": FloatSpec(1e-3, 1.0, log=True)}
WORK = Work(
    num_images=1000,
    num_validation=500,
    report_samples=1000,
    rungs=(1000, 3000, 9000),
    reduction_factor=3,
    trials=20,
    confirm_runs=4,
    checkpoint_bytes=600_000,
)


def test_an_image_takes_its_share_of_an_evaluation_too() -> None:
    assert WORK.seconds_per_image(100.0) == pytest.approx(0.01 * (1 + 500 / 1000 / 3))
    report_s = WORK.report_samples * WORK.seconds_per_image(100.0)
    assert report_s == pytest.approx(1000 / 100 + 500 / 300)


def play(work: Work, slots: int, scheduler: Scheduler, seed: int, folder: Path) -> tuple[int, int]:
    """The images trained, and how many a slot could train meanwhile, where chance gives scores.

    A trial has one score for ever, and all slots are equally fast.
    """
    record = Record.open(
        folder,
        name="s",
        metric="top1",
        direction="maximize",
        parameters=SPACE,
        data_fingerprint="",
        settings_plain={},
    )
    jobs = Jobs(
        record,
        SPACE,
        trials=work.trials,
        sampler="random",
        scheduler=scheduler,
        rungs=work.rungs,
        reduction_factor=work.reduction_factor,
        max_failures=0,
        seed=seed,
    )
    rng = random.Random(seed)
    scores = [rng.random() for _ in range(work.trials)]
    at_work: list[tuple[int, int, int, Job]] = []  # next report's moment, order, images, job
    now = order = 0
    while True:
        while len(at_work) < slots and isinstance(job := jobs.next_job(), Job):
            order += 1
            heappush(at_work, (now + work.report_samples, order, job.start_samples, job))
        if not at_work:
            break
        now, order_then, seen, job = heappop(at_work)
        seen += work.report_samples
        result: dict[str, Any] = {"samples_seen": seen, "top1": scores[job.trial_number]}
        if jobs.report(job, result) is GO:
            heappush(at_work, (now + work.report_samples, order_then, seen, job))
    assert all(trial.state in ("complete", "stopped") for trial in record.trials)
    return sum(trial.samples_seen for trial in record.trials), now


def play_often(
    work: Work, slots: int, folder: Path, scheduler: Scheduler = "asha", times: int = 10
) -> tuple[float, float]:
    """The means of what `play` gives."""
    results = []
    for seed in range(times):
        with tempfile.TemporaryDirectory(dir=folder) as each:
            results.append(play(work, slots, scheduler, seed, Path(each)))
    return fmean(trained for trained, _ in results), fmean(span for _, span in results)


def span_samples(work: Work, slots: int) -> float:
    """The images a slot could train in the search's expected time, evaluations left out."""
    return replace(work, num_validation=0).search_s(1.0, slots) - START_S


@pytest.mark.parametrize(
    ("trials", "rungs", "factor"),
    [
        (1, (1000, 3000, 9000), 3),
        (4, (1000, 3000, 9000), 3),
        (20, (1000, 3000, 9000), 3),
        (20, (1000, 2000, 4000, 8000), 2),
        (40, (1000, 3000, 9000), 3),
        (60, (1000, 3000, 9000, 27_000, 81_000), 3),
    ],
)
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_images_and_time_are_those_of_played_searches(
    quick_path: Path, trials: int, rungs: tuple[int, ...], factor: int, slots: int
) -> None:
    work = replace(WORK, trials=trials, rungs=rungs, reduction_factor=factor)
    trained, span = play_often(work, slots, quick_path)
    assert work.search_samples == pytest.approx(trained, rel=0.2)
    assert span_samples(work, slots) == pytest.approx(span, rel=0.2)


def test_stopping_trains_about_as_much_as_promoting(quick_path: Path) -> None:
    trained, span = play_often(WORK, 2, quick_path, "asha_stopping")
    assert WORK.search_samples == pytest.approx(trained, rel=0.25)
    assert span_samples(WORK, 2) == pytest.approx(span, rel=0.25)


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_without_a_scheduler_every_trial_is_counted_in_full(quick_path: Path, slots: int) -> None:
    work = replace(WORK, rungs=(9000,), trials=8)
    trained, span = play_often(work, slots, quick_path, "none", times=1)
    assert work.search_samples == trained == 8 * 9000
    assert span_samples(work, slots) == span


WORKS = st.builds(
    lambda trials, epochs, factor, confirm_runs: replace(
        WORK,
        trials=trials,
        rungs=rung_lengths(1000, 1000 * epochs, factor),
        reduction_factor=factor,
        confirm_runs=confirm_runs,
    ),
    st.integers(1, 300),
    st.integers(1, 200),
    st.integers(2, 5),
    st.integers(0, 20),
)


@given(work=WORKS, slots=st.integers(1, 20))
def test_a_search_never_takes_less_than_its_work_or_one_full_training(
    work: Work, slots: int
) -> None:
    assert span_samples(work, slots) >= max(work.search_samples / slots, work.rungs[-1])
    assert work.search_samples >= max(work.trials * work.rungs[0], work.rungs[-1])
    assert work.search_samples <= work.trials * work.rungs[-1]


@given(work=WORKS, slots=st.integers(1, 20), more=st.integers(1, 50))
def test_more_trials_cost_more(work: Work, slots: int, more: int) -> None:
    larger = replace(work, trials=work.trials + more)
    assert larger.search_samples > work.search_samples
    assert larger.confirm_s(100, slots) == work.confirm_s(100, slots)


@given(work=WORKS, slots=st.integers(1, 20), more=st.integers(1, 50))
def test_longer_trials_cost_more(work: Work, slots: int, more: int) -> None:
    longer = replace(work, rungs=(*work.rungs[:-1], work.rungs[-1] + 1000 * more))
    assert longer.search_samples > work.search_samples
    assert longer.search_s(100, slots) > work.search_s(100, slots)
    assert longer.confirm_s(100, slots) >= work.confirm_s(100, slots)


@given(work=WORKS, slots=st.integers(1, 20))
def test_more_slots_and_more_speed_never_cost_time(work: Work, slots: int) -> None:
    for stage in (work.search_s, work.confirm_s):
        assert stage(100, slots + 1) <= stage(100, slots)
        assert stage(200, slots) <= stage(100, slots)


@given(work=WORKS, slots=st.integers(1, 20), budget_s=st.floats(1, 1e5))
def test_a_search_takes_at_most_its_budget_and_confirm_comes_on_top(
    work: Work, slots: int, budget_s: float
) -> None:
    bounded = replace(work, search_budget_s=budget_s)
    assert bounded.search_s(100, slots) == min(budget_s, work.search_s(100, slots))
    assert bounded.confirm_s(100, slots) == work.confirm_s(100, slots)
    estimate = bounded.estimate(100, slots, has_to_measure=True)
    assert estimate.measure_s <= START_S + budget_s / 10 + 1e-9


@pytest.mark.parametrize(("slots", "rounds"), [(1, 4), (2, 2), (3, 2), (4, 1), (9, 1)])
def test_confirm_runs_go_round_by_round(slots: int, rounds: int) -> None:
    work = replace(WORK, num_validation=0)
    assert work.confirm_s(100, slots) == START_S + rounds * 90


def test_no_confirm_runs_cost_nothing() -> None:
    work = replace(WORK, confirm_runs=0)
    assert work.confirm_s(100, 2) == 0


def test_an_evaluation_counts_a_third_of_its_images_after_every_report() -> None:
    work = replace(WORK, rungs=(9000,), trials=1, confirm_runs=1)
    plain = replace(work, num_validation=0)
    often = replace(work, report_samples=500)
    assert plain.confirm_s(100, 1) == START_S + 90
    assert work.confirm_s(100, 1) == pytest.approx(START_S + 90 + 9 * 500 / 3 / 100)
    assert often.confirm_s(100, 1) == pytest.approx(START_S + 90 + 18 * 500 / 3 / 100)
    assert work.search_s(100, 1) == work.confirm_s(100, 1)


@pytest.mark.parametrize(
    ("search_s", "budget_s"), [(0.0, 0.0), (100.0, 10.0), (600.0, 60.0), (1e6, LONGEST_MEASURE_S)]
)
def test_measuring_takes_a_tenth_of_the_search_and_a_minute_at_most(
    search_s: float, budget_s: float
) -> None:
    assert measure_budget_s(search_s) == budget_s <= 60


def test_an_estimate_names_the_stages_and_adds_them_up() -> None:
    search_s, confirm_s = WORK.search_s(100, 2), WORK.confirm_s(100, 2)
    measured = WORK.estimate(100, 2, has_to_measure=False)
    assert measured == Estimate(0.0, search_s, confirm_s)
    assert measured.seconds == search_s + confirm_s
    unmeasured = WORK.estimate(100, 2, has_to_measure=True)
    assert unmeasured.measure_s == START_S + measure_budget_s(search_s)
    assert unmeasured.seconds - measured.seconds == pytest.approx(unmeasured.measure_s)
