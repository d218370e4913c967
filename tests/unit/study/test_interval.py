"""An interval holds what it promises, and luck is not taken for a difference."""

import math
from statistics import stdev, variance

import numpy as np
import pytest

from tuner.study.interval import (
    SeedSpread,
    are_told_apart,
    prediction_interval,
    seed_spread,
    student_quantile,
)


@pytest.mark.parametrize(
    ("degrees_of_freedom", "quantile"),
    [(1, 6.314), (2, 2.920), (3, 2.353), (5, 2.015), (10, 1.812), (30, 1.697), (120, 1.658)],
)
def test_the_quantiles_are_those_of_the_printed_tables(
    degrees_of_freedom: int, quantile: float
) -> None:
    assert round(student_quantile(0.95, degrees_of_freedom), 3) == quantile
    assert student_quantile(0.05, degrees_of_freedom) == pytest.approx(-quantile, abs=5e-4)


def test_the_deviation_of_one_configuration_is_that_of_its_scores() -> None:
    scores = (0.5, 0.75, 0.625)
    spread = seed_spread([scores])
    assert spread == SeedSpread(stdev(scores), 2)


def test_the_pooled_variance_weighs_each_configuration_by_its_repeats() -> None:
    first, second = (0.5, 0.75, 0.625), (0.25, 0.375)
    spread = seed_spread([first, (0.9,), second])
    assert spread is not None
    assert spread.degrees_of_freedom == 3
    assert spread.deviation**2 == pytest.approx((2 * variance(first) + variance(second)) / 3)


@pytest.mark.parametrize("scores_of_each", [[], [(0.5,)], [(0.5,), (0.9,), (0.1,)]])
def test_single_runs_tell_no_deviation(scores_of_each: list[tuple[float, ...]]) -> None:
    assert seed_spread(scores_of_each) is None


def test_an_interval_is_the_mean_and_the_margin_of_one_more_score() -> None:
    spread = SeedSpread(0.01, 2)
    low, high = prediction_interval((0.5, 0.52), spread, highest=1.0)
    margin = 2.919986 * 0.01 * math.sqrt(1.5)
    assert low == pytest.approx(0.51 - margin, abs=1e-7)
    assert high == pytest.approx(0.51 + margin, abs=1e-7)


@pytest.mark.parametrize(
    ("score", "highest", "interval"),
    [
        (0.5, 1.0, (0.0, 1.0)),
        (0.5, math.inf, (0.0, pytest.approx(0.5 + 6.313752 * math.sqrt(2)))),
    ],
)
def test_an_interval_is_kept_within_what_a_score_can_be(
    score: float, highest: float, interval: tuple[float, float]
) -> None:
    assert prediction_interval((score,), SeedSpread(1.0, 1), highest=highest) == interval


def test_nine_in_ten_further_scores_fall_inside() -> None:
    draws = np.random.default_rng(0).normal(0.5, 0.02, (4000, 5))
    inside = 0
    for *scores, further in draws.tolist():
        spread = seed_spread([scores[:2], scores[2:]])
        assert spread is not None
        low, high = prediction_interval(scores[:2], spread, highest=1.0)
        inside += low <= further <= high
    assert inside / len(draws) == pytest.approx(0.9, abs=0.015)


def test_equal_configurations_are_told_apart_one_time_in_ten() -> None:
    draws = np.random.default_rng(1).normal(0.5, 0.02, (4000, 5))
    apart = 0
    for scores in draws.tolist():
        spread = seed_spread([scores[:2], scores[2:]])
        assert spread is not None
        apart += are_told_apart(scores[:2], scores[2:], spread)
    assert apart / len(draws) == pytest.approx(0.1, abs=0.015)


def test_means_are_apart_that_differ_by_more_than_their_margin() -> None:
    spread = SeedSpread(0.01, 2)
    margin = 2.919986 * 0.01 * math.sqrt(1 / 2 + 1 / 2)
    for factor, is_apart in ((0.99, False), (1.01, True)):
        for sign in (-1, 1):
            other = 0.5 + sign * factor * margin
            assert are_told_apart((0.5, 0.5), (other, other), spread) is is_apart


def test_without_any_spread_equal_means_are_not_told_apart_and_others_are() -> None:
    spread = seed_spread([(0.5, 0.5), (0.5, 0.5)])
    assert spread == SeedSpread(0.0, 2)
    assert not are_told_apart((0.5, 0.5), (0.5, 0.5), spread)
    assert are_told_apart((0.5, 0.5), (0.51, 0.51), spread)
