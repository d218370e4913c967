"""A plan keeps the machine busy and never exceeds it."""

from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import ResourceError
from tuner.planning.machine import Gpu, Machine
from tuner.planning.resources import Plan, plan_resources


def machine(cpus: float, num_gpus: int = 0) -> Machine:
    return Machine(cpus, 2**34, 2**30, (Gpu("card", 2**34, 2**34),) * num_gpus)


def plan_here(here: Machine, **asked: Any) -> Plan:
    """Return the plan for what is asked, all else left to the program."""
    auto = {"cpus_per_trial": "auto", "gpus_per_trial": "auto", "max_concurrent": "auto"}
    return plan_resources(here, **{"num_trials": 12, **auto, **asked})


@given(
    cpus=st.floats(0.1, 256),
    num_gpus=st.integers(0, 8),
    cpus_per_trial=st.one_of(st.just("auto"), st.floats(0.05, 300)),
    gpus_per_trial=st.one_of(st.just("auto"), st.floats(0.05, 1), st.just(0.0)),
    max_concurrent=st.one_of(st.just("auto"), st.integers(1, 64)),
    num_trials=st.integers(1, 300),
)
def test_a_plan_never_exceeds_the_machine(
    cpus: float,
    num_gpus: int,
    cpus_per_trial: float | str,
    gpus_per_trial: float | str,
    max_concurrent: int | str,
    num_trials: int,
) -> None:
    try:
        plan = plan_resources(
            machine(cpus, num_gpus),
            cpus_per_trial=cpus_per_trial,
            gpus_per_trial=gpus_per_trial,
            max_concurrent=max_concurrent,
            num_trials=num_trials,
        )
    except ResourceError:
        return
    assert plan.slots >= 1
    # As Ray counts, in ten-thousandths; it is started with whole CPUs.
    assert plan.slots * round(plan.cpus_per_trial * 10_000) <= ceil(cpus) * 10_000
    assert plan.slots * plan.cpus_per_trial <= cpus * (1 + 1e-3)
    assert 1 <= plan.threads <= max(1, plan.cpus_per_trial)
    if plan.gpus_per_trial:
        # No trial straddles two cards: every card holds a whole number of them.
        trials_per_card = -(-plan.slots // plan.num_gpus)
        assert plan.num_gpus == num_gpus
        assert trials_per_card * round(plan.gpus_per_trial * 10_000) <= 10_000


def test_auto_fills_the_cpus() -> None:
    plan = plan_here(machine(7.5), cpus_per_trial=2.0)

    assert plan == Plan(slots=3, cpus_per_trial=2.0, gpus_per_trial=0.0, num_gpus=0, threads=2)


def test_auto_gives_each_trial_a_card() -> None:
    plan = plan_here(machine(16, 2), cpus_per_trial=4.0)

    assert plan == Plan(slots=2, cpus_per_trial=4.0, gpus_per_trial=1.0, num_gpus=2, threads=4)


def test_three_thirds_of_a_card_are_three_trials() -> None:
    plan = plan_here(machine(16, 1), cpus_per_trial=1.0, gpus_per_trial=1 / 3)

    assert plan.slots == 3


@pytest.mark.parametrize(
    ("here", "asked", "slots", "cpus"),
    [
        (machine(2), {}, 2, 1.0),
        (machine(16), {}, 12, 1.0),
        (machine(16), {"max_concurrent": 1}, 1, 16.0),
        (machine(16), {"num_trials": 5}, 5, 3.0),
        (machine(1.5), {}, 1, 1.0),
        (machine(0.5), {}, 1, 0.5),
        (machine(16, 2), {}, 2, 8.0),
        (machine(16, 2), {"gpus_per_trial": 0.25}, 8, 2.0),
        (machine(2, 1), {"gpus_per_trial": 0.25}, 4, 0.5),
        (machine(2, 1), {"gpus_per_trial": 0.33}, 3, 0.6666),
        (machine(6, 1), {"gpus_per_trial": 1 / 6}, 5, 1.0),
        (machine(8, 1), {"max_concurrent": 4}, 4, 2.0),
        (machine(8, 2), {"max_concurrent": 3}, 3, 2.0),
    ],
)
def test_auto_shares_out_the_cpus(
    here: Machine, asked: dict[str, Any], slots: int, cpus: float
) -> None:
    plan = plan_here(here, **asked)

    assert (plan.slots, plan.cpus_per_trial) == (slots, cpus)


@pytest.mark.parametrize(
    ("cpus_per_trial", "gpus_per_trial", "max_concurrent", "problems"),
    [
        (
            64.0,
            "auto",
            "auto",
            ["resources.cpus_per_trial: 64 wanted, this process may use 2; use at most that"],
        ),
        (
            1.0,
            1.0,
            "auto",
            ["resources.gpus_per_trial: 1 wanted, torch finds no GPU here; use 0"],
        ),
        (
            2.5,
            0.5,
            8,
            [
                "resources.cpus_per_trial: 2.5 wanted, this process may use 2; use at most that",
                "resources.gpus_per_trial: 0.5 wanted, torch finds no GPU here; use 0",
            ],
        ),
        (
            1.0,
            0.0,
            3,
            [
                "search.max_concurrent: 3 trials of 1 CPU and 0 GPU wanted, 2 CPU and 0 GPU "
                "hold 2; use at most 2"
            ],
        ),
    ],
)
def test_what_the_machine_cannot_give_is_named(
    cpus_per_trial: float,
    gpus_per_trial: float | str,
    max_concurrent: int | str,
    problems: list[str],
) -> None:
    with pytest.raises(ResourceError) as caught:
        plan_resources(
            machine(2),
            cpus_per_trial=cpus_per_trial,
            gpus_per_trial=gpus_per_trial,
            max_concurrent=max_concurrent,
            num_trials=12,
        )

    assert list(caught.value.problems) == problems


def test_a_card_that_other_programs_have_taken_is_named() -> None:
    cards = (Gpu("one", 12 * 10**9, 3 * 10**8), Gpu("two", 12 * 10**9, 12 * 10**9))
    with pytest.raises(ResourceError) as caught:
        plan_resources(
            Machine(8, 2**34, 2**30, cards),
            cpus_per_trial="auto",
            gpus_per_trial=0.5,
            max_concurrent="auto",
            num_trials=12,
        )

    assert str(caught.value) == (
        "GPU 0 (one): 0.3 of 12.0 GB are free, 2 trials need 1.3 GB before they train; "
        "end what uses it, or leave it out by CUDA_VISIBLE_DEVICES"
    )
