"""Rungs against the rule written out in full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search_logic.rungs import Rung, rung_lengths


@pytest.mark.parametrize(
    ("grace_samples", "total_samples", "factor", "lengths"),
    [
        (1000, 9000, 3, (1000, 3000, 9000)),
        (1000, 13_000, 3, (1000, 3000, 13_000)),
        (1000, 14_000, 3, (1000, 3000, 9000, 14_000)),
        (1000, 8000, 2, (1000, 2000, 4000, 8000)),
        (1000, 1500, 3, (1000, 1500)),
        (1000, 1400, 3, (1400,)),
        (1000, 1000, 3, (1000,)),
    ],
)
def test_rungs_grow_by_the_factor_and_stay_clear_of_the_end(
    grace_samples: int, total_samples: int, factor: int, lengths: tuple[int, ...]
) -> None:
    assert rung_lengths(grace_samples, total_samples, factor) == lengths


# Few distinct scores, so that ties are common.
SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=20)


@given(scores=SCORES, promoted=st.sets(st.integers(0, 19)), factor=st.integers(2, 4))
def test_the_best_waiting_trial_of_the_top_share_is_promotable(
    scores: list[float], promoted: set[int], factor: int
) -> None:
    rung = Rung(factor)
    for number, score in enumerate(scores):
        rung.add(number, score)
        rung.wait(number)
    for number in promoted & rung.scores.keys():
        rung.leave(number)
    ranking = sorted(rung.scores, key=lambda number: (-scores[number], number))
    assert rung.waiting == [number for number in ranking if number not in promoted]
    for at_least in (0, 1):
        top = ranking[: max(at_least, len(scores) // factor)]
        assert [n for n in ranking if rung.is_top(n, at_least)] == top
        expected = [number for number in top if number not in promoted]
        assert rung.promotable(at_least) == (expected[0] if expected else None)


@given(scores=SCORES, discarded=st.sets(st.integers(0, 19)), data=st.data())
def test_a_discarded_trial_leaves_no_trace_whatever_the_order(
    scores: list[float], discarded: set[int], data: st.DataObject
) -> None:
    rung, never = Rung(3), Rung(3)
    for number in data.draw(st.permutations(range(len(scores)))):
        rung.add(number, scores[number])
        rung.wait(number)
    for number in discarded:
        rung.discard(number)
    for number, score in enumerate(scores):
        if number not in discarded:
            never.add(number, score)
            never.wait(number)
    assert rung.scores == never.scores
    assert rung.waiting == never.waiting
    assert rung.promotable() == never.promotable()
