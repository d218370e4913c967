"""A budget is refused where it cannot hold the trials side by side, and the need is told."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import ResourceError
from tuner.planning.disk import DiskBudget, DiskNeed

NEED = DiskNeed(
    slots=2, trials=20, keep_best=5, confirm_runs=4, can_wait=True, checkpoint_bytes=71_000_000
)
BUDGET = DiskBudget(
    folder=Path("results/tiny"), asked_gb=None, free_bytes=2_000_000_000, held_bytes=0
)
NEEDS = st.builds(
    DiskNeed,
    slots=st.integers(1, 20),
    trials=st.integers(1, 500),
    keep_best=st.integers(1, 600),
    confirm_runs=st.integers(0, 20),
    can_wait=st.booleans(),
    checkpoint_bytes=st.integers(1, 10**10),
)


def refusal(budget: DiskBudget, need: DiskNeed) -> tuple[str, ...]:
    with pytest.raises(ResourceError) as caught:
        budget.check(need)
    return caught.value.problems


def test_slots_the_best_and_confirm_runs_are_the_least() -> None:
    assert NEED.least == 2 * 4 + 2 + 4
    assert replace(NEED, confirm_runs=0, trials=9999).least == 2 * 4 + 2


def test_a_stage_needs_its_slots_and_what_it_hands_over() -> None:
    assert NEED.stage_bytes("search") == (2 * 4 + 2) * 71_000_000
    assert NEED.stage_bytes("confirm") == (2 * 4 + 4) * 71_000_000


def test_what_waits_is_the_most() -> None:
    assert NEED.most_bytes == (2 * 4 + 20 * 3 + 4) * 71_000_000
    assert replace(NEED, can_wait=False).most_bytes == (2 * 4 + 5 + 4) * 71_000_000
    assert replace(NEED, held_runs=3).most_bytes == (2 * 4 + 20 * 3 + 4 + 3) * 71_000_000
    assert replace(NEED, can_wait=False, trials=3).most_bytes == (2 * 4 + 3 + 4) * 71_000_000


def test_a_budget_that_is_too_small_is_refused_with_what_would_do() -> None:
    assert refusal(replace(BUDGET, asked_gb=0.5), NEED) == (
        "resources.disk_budget_gb: 0.5 wanted, the search needs 0.994 (14 checkpoints of 71 MB, "
        "4 for each of 2 side by side); use at least that or a lower search.max_concurrent",
    )


def test_one_slot_cannot_become_fewer() -> None:
    assert refusal(replace(BUDGET, asked_gb=0.5), replace(NEED, slots=1)) == (
        "resources.disk_budget_gb: 0.5 wanted, the search needs 0.71 (10 checkpoints of 71 MB, "
        "4 for each of 1 side by side); use at least that",
    )


def test_a_disk_that_is_too_full_is_refused_with_its_folder() -> None:
    assert refusal(replace(BUDGET, free_bytes=1_000_000_000, held_bytes=100_500_000), NEED) == (
        "results/tiny: 1 GB are free, checkpoints may take 0.99 and need 0.994 (14 checkpoints of "
        "71 MB, 4 for each of 2 side by side); make room, use another output=… or a lower "
        "search.max_concurrent",
    )


def test_without_a_budget_a_tenth_of_what_could_be_free_stays_free() -> None:
    assert replace(BUDGET, free_bytes=900, held_bytes=100).num_bytes == 900
    assert replace(BUDGET, free_bytes=0, held_bytes=100, asked_gb=0.25).num_bytes == 250_000_000


@given(need=NEEDS)
def test_what_a_refusal_asks_for_is_enough(need: DiskNeed) -> None:
    enough_gb = need.least * need.checkpoint_bytes / 1e9
    named = float(refusal(replace(BUDGET, asked_gb=1e-10), need)[0].split()[6])
    assert enough_gb <= named <= enough_gb * 1.001 + 0.001
    replace(BUDGET, asked_gb=named).check(need)


@given(need=NEEDS)
def test_what_cannot_be_done_without_is_never_refused_for_a_disk_that_holds_it(
    need: DiskNeed,
) -> None:
    replace(BUDGET, free_bytes=2 * need.least * need.checkpoint_bytes).check(need)
