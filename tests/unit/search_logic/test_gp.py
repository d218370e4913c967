"""The Gaussian process fits its data, knows what it does not know, and takes any finite input."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from tuner.search_logic import gp
from tuner.search_logic.cube import Floats
from tuner.search_logic.gp import Prior, Process, fit_scales, log_expected_improvement


def prior(num_lengths: int) -> Prior:
    mean = np.log([0.7] * num_lengths + [0.01])
    return Prior(mean, np.array([0.8] * num_lengths + [1.5]), np.arange(num_lengths))


def data(num_points: int = 30) -> tuple[Floats, Floats]:
    """Points of three columns, of which the first alone matters."""
    points = np.random.default_rng(0).random((num_points, 3))
    targets = np.sin(6 * points[:, 0])
    return points, (targets - targets.mean()) / targets.std()


def test_the_gradient_of_the_fit_is_that_of_its_loss() -> None:
    points, targets = data()
    shared = Prior(prior(2).mean, prior(2).sd, np.array([0, 1, 1]))
    scales = shared.mean + [0.3, -0.4, 0.5]
    pairs = np.tril_indices(len(points), -1)
    seen = pairs, gp._squares(points, pairs, shared), targets, shared
    _, gradient = gp._loss(scales, *seen)
    for i, step in enumerate(1e-5 * np.eye(3)):
        above, _ = gp._loss(scales + step, *seen)
        below, _ = gp._loss(scales - step, *seen)
        assert gradient[i] == pytest.approx((above - below) / 2e-5, abs=1e-5)


def test_the_fit_sees_the_kernel_that_the_process_has() -> None:
    points, targets = data()
    scales, number = prior(3).mean, len(points)
    kernel = gp._kernel(points, points, scales, prior(3))
    noisy = kernel + (np.exp(scales[-1]) + gp.JITTER) * np.eye(number)
    variance = targets @ np.linalg.solve(noisy, targets) / number
    loss = (number * np.log(variance) + np.linalg.slogdet(noisy)[1]) / 2
    pairs = np.tril_indices(number, -1)
    squares = gp._squares(points, pairs, prior(3))
    found, _ = gp._loss(scales, pairs, squares, targets, prior(3))
    assert found == pytest.approx(loss)


def test_a_column_that_does_not_matter_gets_a_longer_lengthscale() -> None:
    scales = fit_scales(*data(), prior(3), max_iterations=20)
    assert scales[0] < scales[1] - 0.5
    assert scales[0] < scales[2] - 0.5


def test_what_was_seen_is_expected_again_and_what_is_far_is_uncertain() -> None:
    points, targets = data()
    near = points[:, 0] < 0.5
    scales = fit_scales(points[near], targets[near], prior(3), max_iterations=10)
    process = Process.seen(points[near], targets[near], scales, prior(3))
    mean, sd = process.mean_and_sd(points)
    np.testing.assert_allclose(mean[near], targets[near], atol=0.1)
    np.testing.assert_allclose(mean, process.mean(points))
    assert sd[near].max() < sd[points[:, 0] > 0.8].min()


def test_believing_what_is_expected_makes_it_certain_and_changes_no_expectation() -> None:
    points, targets = data()
    process = Process.seen(points, targets, prior(3).mean, prior(3))
    corners = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    believing = process.believing(corners)
    others = np.random.default_rng(1).random((20, 3))
    np.testing.assert_allclose(believing.mean(others), process.mean(others), atol=0.02)
    assert (believing.mean_and_sd(corners)[1] < process.mean_and_sd(corners)[1] / 2).all()


@pytest.mark.parametrize("z", [3.0, 0.5, 0.0, -0.9, -1.1, -4.0])
def test_the_expected_improvement_is_the_mean_of_the_improvement(z: float) -> None:
    expected, _ = quad(lambda x: x * norm.pdf(x, loc=2 * z, scale=2), 0, 2 * z + 40)
    found = log_expected_improvement(np.array([1 + 2 * z]), np.array([2.0]), 1.0)
    assert found[0] == pytest.approx(math.log(expected), rel=1e-5)


def test_hopeless_points_are_told_apart_by_their_improvement() -> None:
    means = -np.geomspace(1, 1e9, 50)
    improvement = log_expected_improvement(means, np.ones(50), 0.0)
    assert np.isfinite(improvement).all()
    assert (np.diff(improvement) < 0).all()


@given(
    targets=st.lists(st.sampled_from([0.0, 1.0, -3.0, 1e-12]), min_size=1, max_size=12),
    places=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=12, max_size=12),
)
def test_equal_points_and_equal_targets_are_taken(
    targets: list[float], places: list[float]
) -> None:
    points = np.array(places[: len(targets)])[:, None]
    scales = fit_scales(points, np.array(targets), prior(1), max_iterations=10)
    process = Process.seen(points, np.array(targets), scales, prior(1)).believing(points)
    mean, sd = process.mean_and_sd(np.array([[0.0], [0.3]]))
    assert np.isfinite([*mean, *sd]).all()
    assert (sd > 0).all()
