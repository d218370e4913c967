"""A card is shared by as few trials as use it up."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.planning.gpu_share import trials_per_gpu
from tuner.planning.resources import GPU_CONTEXT_BYTES
from tuner.planning.throughput import WITHIN


def trials(
    speeds: Mapping[int, float | None],
    *,
    peak: int = 2**30,
    card: int = 2**37,
    most: int = 64,
    decoded: int = 2**40,
) -> tuple[int, list[int]]:
    """Return the trials chosen, and what was tried."""
    tried = []

    def measure(number: int) -> float | None:
        tried.append(number)
        return speeds[number]

    chosen = trials_per_gpu(
        measure,
        peak_memory_bytes=peak,
        decoded_bytes=decoded,
        card_memory_bytes=card,
        most=most,
    )
    return chosen, tried


@pytest.mark.parametrize(
    ("speeds", "chosen", "tried"),
    [
        ({1: 100.0, 2: 104.0}, 2, [1, 2]),
        ({1: 100.0, 2: 150.0, 4: 152.0}, 2, [1, 2, 4]),
        ({1: 100.0, 2: 106.0, 4: 120.0, 8: 60.0}, 4, [1, 2, 4, 8]),
        ({1: 100.0, 2: 102.0}, 1, [1, 2]),
        ({1: 100.0, 2: 150.0, 4: None}, 2, [1, 2, 4]),
        ({1: None}, 1, [1]),
    ],
)
def test_the_fewest_trials_that_use_a_card_up_share_it(
    speeds: Mapping[int, float | None], chosen: int, tried: list[int]
) -> None:
    assert trials(speeds) == (chosen, tried)


def test_no_more_trials_are_tried_than_memory_and_the_caller_allow() -> None:
    doubling = {number: 100.0 * number for number in (1, 2, 4, 8)}
    each = 2**30 + GPU_CONTEXT_BYTES

    assert trials(doubling, most=3) == (2, [1, 2])
    assert trials(doubling, most=8) == (8, [1, 2, 4, 8])
    assert trials(doubling, card=math.ceil(4 * each / 0.9)) == (4, [1, 2, 4])
    assert trials(doubling, card=math.floor(4 * each / 0.9) - 1) == (2, [1, 2])
    assert trials(doubling, card=each) == (1, [])


def test_decoded_images_count_where_a_trial_keeps_them_on_the_card() -> None:
    doubling = {number: 100.0 * number for number in (1, 2, 4, 8)}
    peak, card = 5 * 2**29, 2**35
    of_eight = card // 4 // 8

    assert trials(doubling, peak=peak, card=card, most=8, decoded=card) == (8, [1, 2, 4, 8])
    assert trials(doubling, peak=peak, card=card, most=8, decoded=of_eight) == (4, [1, 2, 4])
    assert trials(doubling, peak=peak, card=card, most=8, decoded=of_eight + 1)[0] == 8


@given(st.lists(st.floats(1.0, 1e5), min_size=7, max_size=7))
def test_no_fewer_trials_that_were_tried_are_within_three_percent(speeds: list[float]) -> None:
    by_number = dict(zip((1, 2, 4, 8, 16, 32, 64), speeds, strict=True))

    chosen, tried = trials(by_number)

    best = max(by_number[number] for number in tried)
    assert by_number[chosen] >= (1 - WITHIN) * best
    assert all(by_number[number] < (1 - WITHIN) * best for number in tried if number < chosen)
