"""What Optuna's own samplers propose, each asked in a study that is thrown away."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import (
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    GridSampler,
    RandomSampler,
    TPESampler,
)
from optuna.study import Study
from optuna.trial import TrialState, create_trial

from tuner.search_logic.cube import Cube
from tuner.search_logic.history import OneScore

Distributions = Mapping[str, BaseDistribution]

# Optuna takes at most 25 trials as good; a view beyond a few hundred costs time and shows no more.
NUM_BEST_SHOWN = 25
NUM_SHOWN = 250
MODEL_DRAWS = 10


def model_proposals(
    name: str, cube: Cube, history: Sequence[OneScore], *, seed: int
) -> Iterator[dict[str, Any]]:
    """A few values for all parameters from ``tpe``, ``gp`` or ``cmaes``, the best one first.

    Each draw stays in the study as running, which drives the next away.

    Args:
        history: With at least one score.
        seed: A whole number below 2**32.
    """
    sampler, tell = MODELS[name]
    study = _study(sampler(cube, seed))
    distributions = _distributions(cube)
    worst = min(seen.outcome for seen in history if type(seen.outcome) is float)
    for seen in _shown(history):
        tell(study, seen, worst, distributions)
    for _ in range(MODEL_DRAWS):
        yield study.ask(distributions).params


def random_proposals(cube: Cube, *, seed: int) -> Iterator[dict[str, Any]]:
    """Values for all parameters, drawn at random without an end."""
    study = _study(RandomSampler(seed=seed))
    while True:
        yield study.ask(_distributions(cube)).params


def grid_proposals(cube: Cube, *, seed: int, trial_number: int) -> Iterator[dict[str, Any]]:
    """Every combination from that of the trial number on, in an order drawn from the seed.

    Each trial takes the first from its number on that has not been tried, so those before it have
    been, but where given points came first: they come last then (`sampling.candidates`). With a
    range of numbers there are none.
    """
    if not cube.axes or math.isinf(cube.num_settings):
        return
    rng = np.random.default_rng(seed)  # draws nothing: no value comes from a range of numbers
    values = {key: list(axis.values(rng)) for key, axis in cube.axes.items()}
    study = _study(GridSampler(values, seed=seed))
    study.add_trials([create_trial(state=TrialState.FAIL)] * trial_number)
    for _ in range(trial_number, int(cube.num_settings)):
        yield study.ask(_distributions(cube)).params


def _distributions(cube: Cube) -> dict[str, BaseDistribution]:
    return {key: axis.distribution for key, axis in cube.axes.items()}


def _study(sampler: BaseSampler) -> Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _tpe(cube: Cube, seed: int) -> BaseSampler:
    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):  # group
        return TPESampler(
            seed=seed,
            n_startup_trials=0,
            multivariate=True,
            group=any(axis.when for axis in cube.axes.values()),
            constant_liar=True,
        )


def _gp(cube: Cube, seed: int) -> BaseSampler:
    """Optuna imports torch for it, here and only where this sampler is asked for."""
    return GPSampler(
        seed=seed,
        n_startup_trials=0,
        deterministic_objective=False,
        warn_independent_sampling=False,  # parameters with a condition, and at first
    )


def _cmaes(cube: Cube, seed: int) -> BaseSampler:
    """Choices are drawn at random: the strategy knows numbers alone."""
    return CmaEsSampler(seed=seed, n_startup_trials=1, warn_independent_sampling=False)


def _add(study: Study, seen: OneScore, worst: float, distributions: Distributions) -> None:
    """Adds an observation as Optuna takes it: a failed one has the worst score there is.

    Optuna leaves failed trials out. Where a high rate diverges beside the best one, 9 of 60 trials
    then diverge instead of 43, and the best is better (16 seeds, a synthetic score, 2026-11).
    """
    settings = dict(seen.settings)
    tell = partial(
        create_trial,
        params=settings,
        distributions={key: distributions[key] for key in settings},
    )
    match seen.outcome:
        case "running":
            study.add_trial(tell(state=TrialState.RUNNING))
        case "infeasible":
            study.add_trial(tell(state=TrialState.PRUNED, constraints={"memory": 1.0}))
        case "failed":
            study.add_trial(tell(value=worst))
        case score:
            study.add_trial(tell(value=score))


def _add_scored(study: Study, seen: OneScore, worst: float, distributions: Distributions) -> None:
    """Adds an observation for a sampler that knows no constraints."""
    outcome = "failed" if seen.outcome == "infeasible" else seen.outcome
    _add(study, OneScore(seen.settings, outcome), worst, distributions)


def _replay(study: Study, seen: OneScore, worst: float, distributions: Distributions) -> None:
    """Asks and tells an observation again: the strategy's state is kept in the trials it asked."""
    study.enqueue_trial(dict(seen.settings))
    trial = study.ask(dict(distributions))
    if seen.outcome != "running":
        study.tell(trial, seen.outcome if type(seen.outcome) is float else worst)


def _shown(history: Sequence[OneScore]) -> Sequence[OneScore]:
    """The best and the newest observations, in their order."""
    if len(history) <= NUM_SHOWN:
        return history
    scored = [(-seen.outcome, i) for i, seen in enumerate(history) if type(seen.outcome) is float]
    best = {i for _, i in sorted(scored)[:NUM_BEST_SHOWN]}
    newest = range(len(history) - NUM_SHOWN + len(best), len(history))
    return [history[i] for i in sorted(best.union(newest))]


Tell = Callable[[Study, OneScore, float, Distributions], None]
MODELS: Mapping[str, tuple[Callable[[Cube, int], BaseSampler], Tell]] = {
    "tpe": (_tpe, _add),
    "gp": (_gp, _add_scored),
    "cmaes": (_cmaes, _replay),
}
