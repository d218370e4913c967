"""Gaussian process regression on points of the unit cube (Rasmussen & Williams 2006, ch. 2 and 5).

The kernel is Matérn 5/2 with a lengthscale for each group of columns. Lengthscales and noise are
those of the largest posterior under log-normal priors; the signal's variance follows from them.
Nothing here raises for finite input: the noise and a jitter keep every matrix positive definite.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
from scipy.linalg import cho_solve, lapack, solve_triangular
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr
from threadpoolctl import ThreadpoolController

from tuner.search_logic.cube import Floats

JITTER = 1e-5
SMALLEST_VARIANCE = 1e-9
# Scales stay within so many standard deviations of their prior.
FARTHEST = 3.5
# The prior of a process's level: as if so much had been seen of it at zero.
LEVEL_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed of the logarithms of all lengthscales and, last, of the noise variance.

    Attributes:
        groups: For each column of the points the lengthscale that it has.
    """

    mean: Floats
    sd: Floats
    groups: np.ndarray[tuple[int], np.dtype[np.intp]]


def on_one_thread() -> AbstractContextManager[Any]:
    """Keeps linear algebra to one thread within: what is here is too small to share out.

    Beside trials that keep every core busy, two threads that wait for each other made a proposal
    take 1.3 s instead of 80 ms (two cores, 2026-12); and their number changes the last bits.
    """
    return _pools().limit(limits=1, user_api="blas")


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()  # looking for them takes milliseconds


def fit_scales(points: Floats, targets: Floats, prior: Prior, *, max_iterations: int) -> Floats:
    """The log scales of about the largest posterior, sought from the mean of the prior on."""
    reach = FARTHEST * prior.sd
    found = minimize(
        _loss,
        prior.mean,
        (points, targets, prior),
        method="L-BFGS-B",
        jac=True,
        bounds=np.column_stack([prior.mean - reach, prior.mean + reach]),
        options={"maxiter": max_iterations, "maxfun": max_iterations + 4},
    )
    scales: Floats = found.x
    return scales


@dataclass(frozen=True, slots=True)
class Process:
    """A Gaussian process that has seen some points. Made by `seen`.

    Attributes:
        level: Its mean far from all points.
    """

    points: Floats
    targets: Floats
    log_scales: Floats
    prior: Prior
    level: float
    _factor: Floats
    _weights: Floats
    _variance: float

    @classmethod
    def seen(cls, points: Floats, targets: Floats, log_scales: Floats, prior: Prior) -> Self:
        """The process that has the targets at the points."""
        kernel = _kernel(points, points, log_scales, prior)
        kernel[np.diag_indices(len(points))] += np.exp(log_scales[-1]) + JITTER
        factor, _ = lapack.dpotrf(kernel, lower=1, overwrite_a=1)
        ones = cho_solve((factor, True), np.ones(len(points)), check_finite=False)
        level = float(ones @ targets / (ones.sum() + LEVEL_WEIGHT))
        weights = cho_solve((factor, True), targets - level, check_finite=False)
        variance = max(float((targets - level) @ weights) / len(points), SMALLEST_VARIANCE)
        return cls(points, targets, log_scales, prior, level, factor, weights, variance)

    def believing(self, points: Floats) -> Self:
        """The process that has also seen what it expects at these points (kriging believer)."""
        return type(self).seen(
            np.concatenate([self.points, points]),
            np.concatenate([self.targets, self.mean(points)]),
            self.log_scales,
            self.prior,
        )

    def mean(self, points: Floats) -> Floats:
        """What is expected at the points."""
        return self._near(points) @ self._weights + self.level

    def mean_and_sd(self, points: Floats) -> tuple[Floats, Floats]:
        """What is expected at the points, and its standard deviation, without the noise."""
        near = self._near(points)
        solved = solve_triangular(self._factor, near.T, lower=True, check_finite=False)
        shares = np.maximum(1 - np.einsum("ij,ij->j", solved, solved), SMALLEST_VARIANCE)
        return near @ self._weights + self.level, np.sqrt(self._variance * shares)

    def _near(self, points: Floats) -> Floats:
        return _kernel(points, self.points, self.log_scales, self.prior)


def log_expected_improvement(mean: Floats, sd: Floats, best: float) -> Floats:
    """The logarithm of the expected improvement on `best`, exact far below it, too.

    Ament et al. 2023, arXiv:2310.20708, equation 9.
    """
    z = (mean - best) / sd
    log_density = -z * z / 2 - np.log(2 * np.pi) / 2
    near = np.maximum(z, -1.0)
    log_near = np.log(np.exp(-near * near / 2) / np.sqrt(2 * np.pi) + near * ndtr(near))
    far = np.minimum(z, -1.0)
    share = np.log(-far) + log_ndtr(far) - log_density
    log_far = log_density + np.log1p(-np.exp(np.minimum(share, -1e-15)))
    improvement: Floats = np.log(sd) + np.where(z > -1, log_near, log_far)
    return improvement


def _kernel(points: Floats, others: Floats, log_scales: Floats, prior: Prior) -> Floats:
    lengths = np.exp(log_scales[prior.groups])
    distances = _distances(points / lengths, others / lengths)
    kernel: Floats = (1 + distances + distances * distances / 3) * np.exp(-distances)
    return kernel


def _distances(points: Floats, others: Floats) -> Floats:
    """The Euclidean distance of every pair, times the square root of 5."""
    squares = (points * points).sum(1)[:, None] + (others * others).sum(1) - 2 * points @ others.T
    distances: Floats = np.sqrt(5 * np.maximum(squares, 0.0))
    return distances


def _loss(
    log_scales: Floats, points: Floats, targets: Floats, prior: Prior
) -> tuple[float, Floats]:
    """The negative log posterior but for a constant, and its gradient.

    The variance of the signal is the one that makes the targets likeliest.
    """
    scaled = points / np.exp(log_scales[prior.groups])
    distances = _distances(scaled, scaled)
    decay = np.exp(-distances)
    kernel = (1 + distances + distances * distances / 3) * decay
    noise = np.exp(log_scales[-1])
    kernel[np.diag_indices(len(points))] += noise + JITTER
    factor, _ = lapack.dpotrf(kernel, lower=1)
    half, _ = lapack.dpotri(factor, lower=1)
    inverse = np.tril(half) + np.tril(half, -1).T
    weights = inverse @ targets
    variance = max(targets @ weights / len(points), SMALLEST_VARIANCE)
    away = (log_scales - prior.mean) / prior.sd
    loss = len(points) / 2 * np.log(variance) + np.log(factor.diagonal()).sum() + away @ away / 2
    # d loss / d kernel, below the diagonal; then d kernel / d log length, 5/3 (1 + r) exp(-r) d².
    slope, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    slope -= np.outer(weights, weights) / variance
    decay *= distances + 1
    pull = np.tril(slope, -1) * decay * (5 / 3)
    columns = (pull.sum(0) + pull.sum(1)) @ (scaled * scaled)
    columns -= 2 * np.einsum("ij,ij->j", scaled, pull @ scaled)
    gradient = away / prior.sd
    gradient[:-1] += np.bincount(prior.groups, columns, len(log_scales) - 1)
    gradient[-1] += noise * slope.trace() / 2
    return float(loss), gradient
