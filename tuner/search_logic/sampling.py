"""The next settings to try: a pure function of a search's history, seed and trial number."""

import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy.stats import qmc

from tuner.settings.space import (
    ChoiceSpec,
    FloatSpec,
    IntSpec,
    ParameterSpec,
    holds,
    parents_first,
)
from tuner.study.record import distribution

Specs = Mapping[str, ParameterSpec]
Settings = dict[str, Any]
Point = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Sampler = Literal["auto", "tpe", "random", "qmc"]
Outcome = float | Literal["running", "failed", "infeasible"]

MODEL_SAMPLERS = ("auto", "tpe")

START_UP_TRIALS = 10
# Optuna takes at most 25 trials as good; a view beyond a few hundred costs time and shows no more.
NUM_BEST_SHOWN = 25
NUM_SHOWN = 250
MODEL_DRAWS = 10
RANDOM_DRAWS = 100


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one trial: a finite score (higher is better), or why it has none."""

    settings: Mapping[str, Any]
    outcome: Outcome


def propose(
    specs: Specs,
    history: Iterable[Observation],
    *,
    sampler: Sampler,
    seed: int,
    trial_number: int,
    tried: Collection[frozenset[tuple[str, Any]]],
) -> Settings | None:
    """Settings that are not among `tried`, or None where the space holds no others.

    Args:
        history: Observations for the model, scored at one length; without any score the model
            sampler takes the scrambled Sobol point of the trial number, as it does at first.
        tried: The ``settings_key`` of every trial so far.
    """
    specs = parents_first(specs)
    rng = np.random.default_rng([seed, trial_number])
    for settings in _candidates(specs, list(history), sampler, seed, trial_number, rng):
        if settings_key(settings) not in tried:
            return settings
    return None


def settings_key(settings: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """What makes two settings the same."""
    return frozenset(settings.items())


def _candidates(
    specs: Specs,
    history: list[Observation],
    sampler: Sampler,
    seed: int,
    trial_number: int,
    rng: np.random.Generator,
) -> Iterator[Settings]:
    """Settings in order of preference; the last of them is the last that the space holds."""
    has_scores = any(type(observation.outcome) is float for observation in history)
    if sampler in MODEL_SAMPLERS and has_scores and trial_number >= START_UP_TRIALS:
        yield from _model_draws(specs, history, int(rng.integers(2**32)))
    elif sampler != "random" and specs:
        yield _at(specs, _sobol_point(len(specs), seed, trial_number))
    for _ in range(RANDOM_DRAWS):
        yield _at(specs, rng.random(len(specs)))
    yield from _every(specs, list(specs), {}, rng)


def _model_draws(specs: Specs, history: list[Observation], seed: int) -> Iterator[Settings]:
    """What TPE proposes. Each draw stays in the study as running, which drives the next away."""
    distributions = {key: distribution(spec) for key, spec in specs.items()}
    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):  # group
        sampler = TPESampler(
            seed=seed,
            n_startup_trials=0,
            multivariate=True,
            group=any(spec.when for spec in specs.values()),
            constant_liar=True,
        )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    worst = min(seen.outcome for seen in history if type(seen.outcome) is float)
    study.add_trials(_told(seen, worst, distributions) for seen in _shown(history))
    for _ in range(MODEL_DRAWS):
        yield _active(specs, study.ask(distributions).params)


def _shown(history: list[Observation]) -> list[Observation]:
    """The best and the newest observations, in their order."""
    if len(history) <= NUM_SHOWN:
        return history
    scored = [(-seen.outcome, i) for i, seen in enumerate(history) if type(seen.outcome) is float]
    best = {i for _, i in sorted(scored)[:NUM_BEST_SHOWN]}
    newest = range(len(history) - NUM_SHOWN + len(best), len(history))
    return [history[i] for i in sorted(best.union(newest))]


def _told(
    seen: Observation, worst: float, distributions: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """An observation as Optuna takes it: a failed one has the worst score there is.

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
            return tell(state=TrialState.RUNNING)
        case "infeasible":
            return tell(state=TrialState.PRUNED, constraints={"memory": 1.0})
        case "failed":
            return tell(value=worst)
        case score:
            return tell(value=score)


def _sobol_point(num_dimensions: int, seed: int, index: int) -> Point:
    sobol = qmc.Sobol(num_dimensions, scramble=True, rng=seed)
    if index:  # scipy cannot skip nothing
        sobol.fast_forward(index)
    point: Point = sobol.random(1)[0]
    return point


def _at(specs: Specs, point: Point) -> Settings:
    """The settings at a point of the unit cube, one coordinate for each parameter."""
    drawn = {
        key: _value_at(spec, float(u)) for (key, spec), u in zip(specs.items(), point, strict=True)
    }
    return _active(specs, drawn)


def _value_at(spec: ParameterSpec, u: float) -> Any:
    match spec:
        case FloatSpec(low=low, high=high, log=log):
            return _between(low, high, log, u)
        case IntSpec(low=low, high=high, log=True):
            return min(max(round(_between(low - 0.5, high + 0.5, True, u)), low), high)
        case IntSpec(low=low, high=high, step=step):
            return low + step * int(u * ((high - low) // step + 1))
        case ChoiceSpec(choices=choices):
            return choices[int(u * len(choices))]


def _between(low: float, high: float, log: bool, u: float) -> float:
    if log:
        value = math.exp(math.log(low) + u * (math.log(high) - math.log(low)))
    else:
        value = low + u * (high - low)
    return min(max(value, low), high)


def _active(specs: Specs, drawn: Mapping[str, Any]) -> Settings:
    """The drawn values whose conditions hold, parents first."""
    settings: Settings = {}
    for key, spec in specs.items():
        if holds(spec, settings):
            settings[key] = drawn[key]
    return settings


def _every(
    specs: Specs, keys: list[str], settings: Settings, rng: np.random.Generator
) -> Iterator[Settings]:
    """Every settings of the space, one after another."""
    if not keys:
        yield settings
    elif not holds(specs[keys[0]], settings):
        yield from _every(specs, keys[1:], settings, rng)
    else:
        for value in _values(specs[keys[0]], rng):
            yield from _every(specs, keys[1:], {**settings, keys[0]: value}, rng)


def _values(spec: ParameterSpec, rng: np.random.Generator) -> Iterable[Any]:
    match spec:
        case FloatSpec(low=low, high=high):  # a range of numbers is never used up
            return [low] if low == high else (_value_at(spec, rng.random()) for _ in count())
        case IntSpec(low=low, high=high, step=step):
            return range(low, high + 1, step)
        case ChoiceSpec(choices=choices):
            return choices
