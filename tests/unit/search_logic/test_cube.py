"""Settings and points of the unit cube stand for each other."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tuner.search_logic.cube import Axis, Cube

FINITE = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(1e-300, 1e308)  # below it, floats are few and far between
SHARES = st.floats(0, 1)


def bounds(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=2, max_size=2).map(sorted)


AXES: st.SearchStrategy[BaseDistribution] = st.one_of(
    bounds(FINITE).map(lambda ends: FloatDistribution(ends[0], ends[1])),
    bounds(POSITIVE).map(lambda ends: FloatDistribution(ends[0], ends[1], log=True)),
    st.builds(
        lambda low, step, number: FloatDistribution(low, low + number * step, step=step),
        st.integers(-9, 9),
        st.sampled_from([0.125, 0.25, 3.0]),
        st.integers(0, 20),
    ),
    st.builds(
        lambda low, step, number: IntDistribution(low, low + number * step, step=step),
        st.integers(-(10**6), 10**6),
        st.integers(1, 9),
        st.integers(0, 10**6),
    ),
    bounds(st.integers(1, 10**6)).map(lambda ends: IntDistribution(ends[0], ends[1], log=True)),
    st.lists(
        st.booleans() | st.integers(2, 9) | st.text(max_size=3) | st.none(),
        min_size=1,
        max_size=5,
        unique=True,
    ).map(CategoricalDistribution),
    st.lists(st.integers(-99, 99), min_size=1, max_size=9, unique=True).map(
        CategoricalDistribution
    ),
)


@given(distribution=AXES, share=SHARES)
def test_a_value_lies_where_it_came_from(distribution: BaseDistribution, share: float) -> None:
    axis = Axis(distribution)
    value = axis.value_at(share)
    assert distribution._contains(distribution.to_internal_repr(value))
    place = axis.coordinate_of(value)
    assert 0 <= place <= 1
    again = axis.value_at(place)
    if isinstance(distribution, FloatDistribution) and distribution.step is None:
        largest = max(abs(distribution.low), abs(distribution.high))
        assert again == pytest.approx(value, rel=1e-9, abs=1e-9 * largest)
    else:
        assert again == value
        assert type(again) is type(value)


@given(distribution=AXES, shares=st.lists(SHARES, min_size=1, max_size=9))
def test_points_snap_to_where_their_settings_lie(
    distribution: BaseDistribution, shares: list[float]
) -> None:
    cube = Cube({"x": Axis(distribution)})
    points = np.array(shares)[:, None]
    there = cube.points_of([cube.settings_at(point) for point in points])
    np.testing.assert_allclose(cube.snapped(points), there, rtol=0, atol=1e-6)


def test_conditions_are_kept_on_the_way_to_settings_and_back() -> None:
    cube = Cube(
        {
            "optimizer": Axis(CategoricalDistribution(["sgd", "adam", "lamb"])),
            "nesterov": Axis(CategoricalDistribution([True, False]), (("optimizer", "sgd"),)),
            "momentum": Axis(FloatDistribution(0.0, 1.0), (("nesterov", False),)),
        }
    )
    points = np.array([[0.1, 0.9, 0.4], [0.1, 0.1, 0.4], [0.5, 0.9, 0.4]])
    assert [cube.settings_at(point) for point in points] == [
        {"optimizer": "sgd", "nesterov": False, "momentum": 0.4},
        {"optimizer": "sgd", "nesterov": True},
        {"optimizer": "adam"},
    ]
    assert cube.searched({"optimizer": "adam", "nesterov": False, "momentum": 0.4}) == {
        "optimizer": "adam"
    }
    snapped = [[1 / 6, 0.75, 0.4], [1 / 6, 0.25, math.nan], [0.5, math.nan, math.nan]]
    np.testing.assert_allclose(cube.snapped(points), snapped)
    there = cube.points_of([cube.settings_at(point) for point in points])
    np.testing.assert_allclose(there, snapped)


def test_choices_of_numbers_lie_in_their_order_and_others_each_as_far_from_every_other() -> None:
    cube = Cube(
        {
            "size": Axis(CategoricalDistribution([128, 32, 64])),
            "fixed": Axis(IntDistribution(3, 3)),
            "kind": Axis(CategoricalDistribution(["a", "b", "c"])),
        }
    )
    settings = [
        {"size": size, "fixed": 3, "kind": kind}
        for size, kind in zip((32, 64, 128), "abc", strict=True)
    ]
    features = cube.features(cube.points_of([*settings, {"size": 32, "fixed": 3}]))
    np.testing.assert_allclose(features[:3, 0], [1 / 6, 1 / 2, 5 / 6])
    assert list(cube.groups) == [0, 1, 1, 1]
    kinds = features[:, 1:]
    distances = np.linalg.norm(kinds[:, None] - kinds, axis=2)
    np.testing.assert_allclose(distances[:3, :3], 1 - np.eye(3))
    assert len(set(distances[3, :3].round(9))) == 1  # none, as near to one as to another
    assert distances[3, 0] < 1


def test_sobol_points_of_one_seed_fill_the_cube_evenly() -> None:
    cube = Cube({"x": Axis(FloatDistribution(0.0, 1.0)), "y": Axis(FloatDistribution(0.0, 1.0))})
    points = np.array([cube.sobol_point(seed=7, index=index) for index in range(8)])
    assert sorted((8 * points[:, 0]).astype(int)) == list(range(8))
    assert sorted((8 * points[:, 1]).astype(int)) == list(range(8))
    assert not np.array_equal(points[0], cube.sobol_point(seed=8, index=0))
