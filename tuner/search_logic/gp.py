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
from scipy.linalg import cho_solve, lapack
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr
from threadpoolctl import ThreadpoolController

from tuner.search_logic.cube import Floats

Indices = np.ndarray[Any, np.dtype[np.intp]]
Pairs = tuple[Indices, Indices]

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
    groups: Indices


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
    below = np.tril_indices(len(points), -1)
    found = minimize(
        _loss,
        prior.mean,
        (below, _squares(points, below, prior), targets, prior),
        method="L-BFGS-B",
        jac=True,
        bounds=np.column_stack([prior.mean - reach, prior.mean + reach]),
        options={"maxiter": max_iterations, "maxfun": max_iterations + 3},
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
        solved, _ = lapack.dtrtrs(self._factor, near.T, lower=1)
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
    points, others = points / lengths, others / lengths
    squares = points @ (-2 * others.T)
    squares += np.einsum("ij,ij->i", points, points)[:, None]
    squares += np.einsum("ij,ij->i", others, others)
    distances = _distances(np.maximum(squares, 0.0, out=squares))
    return _polynomial(distances) * np.exp(-distances)


def _distances(squares: Floats) -> Floats:
    """The distances as the kernel takes them, in place of their squares."""
    squares *= 5
    distances: Floats = np.sqrt(squares, out=squares)
    return distances


def _polynomial(distances: Floats) -> Floats:
    """Matérn 5/2 without its exponential."""
    polynomial: Floats = distances / 3
    polynomial += 1
    polynomial *= distances
    polynomial += 1
    return polynomial


def _squares(points: Floats, below: Pairs, prior: Prior) -> Floats:
    """The squared distance of every pair below the diagonal, a row for each lengthscale."""
    squares = (points[below[0]] - points[below[1]]) ** 2
    is_in_group = prior.groups == np.arange(len(prior.mean) - 1)[:, None]
    by_group: Floats = is_in_group.astype(float) @ squares.T
    return by_group


def _loss(
    log_scales: Floats, below: Pairs, squares: Floats, targets: Floats, prior: Prior
) -> tuple[float, Floats]:
    """The negative log posterior but for a constant, and its gradient.

    The variance of the signal is the one that makes the targets likeliest.
    """
    number = len(targets)
    nearness = np.exp(-2 * log_scales[:-1])
    distances = _distances(nearness @ squares)
    decay = np.exp(-distances)
    noise = np.exp(log_scales[-1])
    kernel = np.zeros((number, number), order="F")
    kernel[below] = _polynomial(distances) * decay
    kernel[np.diag_indices(number)] = 1 + noise + JITTER
    factor, _ = lapack.dpotrf(kernel, lower=1, clean=0, overwrite_a=1)
    weights, _ = lapack.dpotrs(factor, targets, lower=1)
    variance = max(targets @ weights / number, SMALLEST_VARIANCE)
    away = (log_scales - prior.mean) / prior.sd
    loss = number / 2 * np.log(variance) + np.log(factor.diagonal()).sum() + away @ away / 2
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    # d loss / d kernel, times d kernel / d log length, which is 5/3 (1 + r) exp(-r) d².
    slope = inverse[below] - weights[below[0]] * weights[below[1]] / variance
    pull = squares @ (slope * (1 + distances) * decay)
    gradient = away / prior.sd
    gradient[:-1] += 5 / 3 * nearness * pull
    gradient[-1] += noise * (inverse.trace() - weights @ weights / variance) / 2
    return float(loss), gradient
