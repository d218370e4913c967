"""Settings of which a Gaussian process on settings and length expects most at the full length.

It learns from all lengths that trials were compared at, so that early scores say what a longer
training is worth. Every constant here was chosen on recorded learning curves; what was tried is in
results/benchmarks/search_log.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from tuner.search_logic.cube import Cube, Floats, Settings
from tuner.search_logic.gp import (
    Prior,
    Process,
    fit_scales,
    log_expected_improvement,
    on_one_thread,
)
from tuner.search_logic.history import Observation, State
from tuner.search_logic.rung_data import Lengths, Score, as_targets, chosen, spread

# Scores that the model sees, and how much of all that it sees its scales are fitted on: what both
# cost.
NUM_SEEN = 140
NUM_FITTED = 90
MAX_ITERATIONS = 7
MAX_ITERATIONS_OF_ROOM = 4
# Of so many scores one is also shown as the trial was before it trained.
SCORES_TO_AN_UNTRAINED = 8
# Trials without a score that the model sees, and as many that fit into memory beside those that do
# not.
NUM_WITHOUT_SCORE = 20
# What settings that rather do not fit into memory are put behind the others by.
UNFIT = -1e6
# Median and spread of the log-normal priors. That of a parameter's lengthscale grows with the root
# of their number, as distances do (Hvarfner et al. 2024, arXiv:2402.02229).
LENGTHSCALE = (0.53, 0.8)
LENGTHSCALE_OF_LENGTH = (1.5, 0.6)
NOISE = (0.01, 1.5)
# The search for the most promising point: anywhere, near the leaders, then ever nearer to the best.
NUM_ANYWHERE = 120
NUM_LEADERS = 4
NEAR_LEADERS = ((100, 0.15), (50, 0.04))
NUM_PARENTS = 5
NUM_CHILDREN = 40
STEPS = (0.2, 0.1, 0.05, 0.025, 0.012, 0.006)
MOST_LISTED = 300


def proposals(
    cube: Cube, history: Sequence[Observation], lengths: Lengths, rng: np.random.Generator
) -> Iterator[Settings]:
    """Settings in the order of their promise; where the space has few, all of them.

    Args:
        history: With at least one score.
    """
    explore = _listed if cube.num_settings <= MOST_LISTED else _explored
    with on_one_thread():
        points, promise = explore(_learned(cube, history, lengths), rng)
    for i in np.argsort(-promise, kind="stable"):
        yield cube.settings_at(points[i])


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of a search.

    Attributes:
        process: Of points with their length.
        fits: Of points, 1 where settings fit into memory and -1 where not; None where all have.
        leaders: The points of which most is expected at the full length, best first.
        best: What is expected of the first one.
    """

    cube: Cube
    process: Process
    fits: Process | None
    leaders: Floats
    best: float

    def promise(self, points: Floats) -> Floats:
        """The logarithm of how much better than the best one the points are expected to be.

        Those that rather do not fit into memory come behind all others: a large hope would outweigh
        a small chance.
        """
        features = self.cube.features(points)
        mean, sd = self.process.mean_and_sd(_at(features, 1.0))
        promise = log_expected_improvement(mean, sd, self.best)
        if self.fits is not None:
            mean, sd = self.fits.mean_and_sd(features)
            promise += log_ndtr(mean / sd)
            promise[mean < 0] += UNFIT
        return promise


def _learned(cube: Cube, history: Sequence[Observation], lengths: Lengths) -> Model:
    scores = chosen(history, NUM_SEEN)
    inputs, targets = _shown(cube, history, scores, lengths)
    fitted = np.unique(np.linspace(0, len(inputs) - 1, NUM_FITTED).astype(int))
    prior = _prior(cube)
    scales = fit_scales(inputs[fitted], targets[fitted], prior, max_iterations=MAX_ITERATIONS)
    process = Process.seen(inputs, targets, scales, prior)
    running = _in_state(history, "running")
    if running:
        believed = cube.features(_points(cube, history, running))
        process = process.believing(_at(believed, 1.0))
    trials = dict.fromkeys([*(each.trial for each in scores), *running])
    known = _points(cube, history, list(trials))
    expected = process.mean(_at(cube.features(known), 1.0))
    order = np.argsort(-expected, kind="stable")
    return Model(cube, process, _room(cube, history), known[order], float(expected[order[0]]))


def _shown(
    cube: Cube, history: Sequence[Observation], scores: Sequence[Score], lengths: Lengths
) -> tuple[Floats, Floats]:
    """What the model learns from: points with their length, and their targets.

    Beside the scores these are trials that failed, as poor as the poorest at the full length, and
    as poor some trials before they train: that tells what length is worth.
    """
    trials = [each.trial for each in scores]
    failed = spread(_in_state(history, "failed"), NUM_WITHOUT_SCORE)
    untrained = spread(list(dict.fromkeys(trials)), len(scores) // SCORES_TO_AN_UNTRAINED)
    places = [lengths.place(each.length) for each in scores]
    places += [1.0] * len(failed) + [0.0] * len(untrained)
    features = cube.features(_points(cube, history, [*trials, *failed, *untrained]))
    targets = as_targets(np.array([each.score for each in scores]))
    poorest = np.full(len(failed) + len(untrained), targets.min())
    return _at(features, np.array(places)), np.append(targets, poorest)


def _room(cube: Cube, history: Sequence[Observation]) -> Process | None:
    """What is known of which settings fit into memory; None where all have so far."""
    too_large = _in_state(history, "infeasible")
    if not too_large:
        return None
    fitting = [i for i, seen in enumerate(history) if seen.scores]
    shown = spread(fitting[::-1], NUM_WITHOUT_SCORE)
    too_large = spread(too_large[::-1], NUM_WITHOUT_SCORE)
    points = _points(cube, history, [*shown, *too_large])
    verdicts = np.repeat([1.0, -1.0], [len(shown), len(too_large)])
    prior = _prior(cube)
    of_settings = Prior(np.delete(prior.mean, -2), np.delete(prior.sd, -2), cube.groups)
    features = cube.features(points)
    scales = fit_scales(features, verdicts, of_settings, max_iterations=MAX_ITERATIONS_OF_ROOM)
    return Process.seen(features, verdicts, scales, of_settings)


def _prior(cube: Cube) -> Prior:
    """One lengthscale for each parameter that varies, then that of the length, then the noise."""
    num_parameters = int(cube.groups.max(initial=-1)) + 1
    median, spread_of_each = LENGTHSCALE
    of_each = (median * num_parameters**0.5, spread_of_each)
    of_all = [of_each] * num_parameters + [LENGTHSCALE_OF_LENGTH, NOISE]
    medians, spreads = np.array(of_all).T
    return Prior(np.log(medians), spreads, np.append(cube.groups, num_parameters))


def _explored(model: Model, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Points with their promise; the most promising of them is about the best there is."""
    cube = model.cube
    leaders = model.leaders[:NUM_LEADERS]
    anywhere = rng.random((NUM_ANYWHERE, len(cube.axes)))
    near = [_near(cube, leaders, number, step, rng) for number, step in NEAR_LEADERS]
    points = cube.snapped(np.concatenate([anywhere, *near]))
    promise = model.promise(points)
    for step in STEPS:
        best = np.argsort(-promise, kind="stable")[:NUM_PARENTS]
        children = cube.snapped(_near(cube, points[best], NUM_CHILDREN, step, rng))
        points = np.concatenate([points, children])
        promise = np.append(promise, model.promise(children))
    return points, promise


def _near(
    cube: Cube, parents: Floats, number: int, step: float, rng: np.random.Generator
) -> Floats:
    """Points that differ from one of the parents in about half of the coordinates."""
    points = parents[rng.integers(len(parents), size=number)]
    points = np.where(np.isnan(points), rng.random(points.shape), points)
    moved = points + np.maximum(step, cube.least_steps) * rng.standard_normal(points.shape)
    drawn = np.where(cube.has_order, np.clip(moved, 0.0, 1.0), rng.random(points.shape))
    return np.where(rng.random(points.shape) < 0.5, drawn, points)


def _listed(model: Model, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Every point with its promise."""
    points = model.cube.points_of(list(model.cube.every_settings(rng)))
    return points, model.promise(points)


def _at(features: Floats, place: float | Floats) -> Floats:
    """The points with their length as the last column."""
    return np.column_stack([features, np.broadcast_to(place, len(features))])


def _points(cube: Cube, history: Sequence[Observation], trials: Sequence[int]) -> Floats:
    return cube.points_of([history[i].settings for i in trials])


def _in_state(history: Sequence[Observation], state: State) -> list[int]:
    return [i for i, seen in enumerate(history) if seen.state == state]
