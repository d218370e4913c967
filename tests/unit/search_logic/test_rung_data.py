"""The model sees the scores that tell most, and differences between the good ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search_logic.history import Observation
from tuner.search_logic.rung_data import Lengths, Score, as_targets, chosen, spread


def test_lengths_lie_evenly_in_their_logarithm_and_the_full_one_at_the_end() -> None:
    lengths = Lengths(shortest=100, full=700)
    assert [lengths.place(each) for each in (0, 100, 700)] == pytest.approx([0, 1 / 3, 1])
    assert Lengths(700, 700).place(700) == 1


def test_long_scores_go_before_short_ones_and_a_third_is_left_for_the_shortest() -> None:
    history = [
        Observation({}, {1: -number, **({3: number} if number < 20 else {})})
        for number in range(60)
    ]
    found = chosen(history, 30)
    assert len(set(found)) == len(found) == 30
    assert sorted(each.trial for each in found if each.length == 3) == list(range(20))
    shortest = sorted(each.trial for each in found if each.length == 1)
    assert shortest[:3] == [0, 1, 2]  # the best ones
    assert shortest[-1] == 59  # and the worst
    assert set(chosen(history, 80)) == set(chosen(history, 240))  # all there are


def test_all_scores_are_seen_where_there_is_room() -> None:
    history = [Observation({}, {1: 0.5, 3: 0.7}), Observation({}), Observation({}, {1: 0.6})]
    found = chosen(history, 10)
    assert sorted(found) == [Score(0.5, 0, 1), Score(0.6, 2, 1), Score(0.7, 0, 3)]


@given(number=st.integers(0, 50), room=st.integers(0, 60))
def test_what_is_spread_is_some_of_it_in_order(number: int, room: int) -> None:
    ranked = list(range(number))
    found = spread(ranked, room)
    assert len(found) == min(number, room)
    assert found == sorted(set(found))
    assert room == 0 or found[:1] == ranked[:1]
    assert room < 2 or found[-1:] == ranked[-1:]


def test_a_gap_among_good_scores_counts_more_than_one_among_poor_ones() -> None:
    targets = as_targets(np.array([0.1, 0.2, 0.6, 0.7, 0.8, 0.9]))
    assert targets[5] - targets[4] > 2 * (targets[1] - targets[0])
    assert targets.mean() == pytest.approx(0)
    assert targets.std() == pytest.approx(1)


def test_one_very_poor_score_does_not_hide_the_differences_between_the_others() -> None:
    others = np.linspace(0.5, 0.9, 20)
    targets = as_targets(np.append(others, -1e12))
    assert np.ptp(targets[:-1]) > 1.4
    assert targets.argmin() == 20


@given(
    scores=st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 1.0]), min_size=1
    )
)
def test_any_finite_scores_become_finite_targets_in_the_same_order(scores: list[float]) -> None:
    targets = as_targets(np.array(scores))
    assert np.isfinite(targets).all()
    assert (np.diff(targets[np.argsort(scores)]) >= -1e-9).all()


@pytest.mark.parametrize("score", [0.0, -0.0, 1e308, -5e-324, 0.3])
def test_equal_scores_become_zeros(score: float) -> None:
    assert not as_targets(np.full(5, score)).any()
