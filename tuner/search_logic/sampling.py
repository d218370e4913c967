"""The next settings to try: a pure function of the search's history, its seed and the trial number."""

import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy.stats import qmc

from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec
from tuner.study.record import distribution

Specs = Mapping[str, ParameterSpec]
Settings = dict[str, Any]
Sampler = Literal["auto", "tpe", "random", "qmc"]

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
    outcome: float | Literal["running", "failed", "infeasible"]


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
    specs = _parents_first(specs)
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
    has_scores = any(isinstance(observation.outcome, float) for observation in history)
    if sampler in ("auto", "tpe") and has_scores and trial_number >= START_UP_TRIALS:
        yield from _model_draws(specs, history, int(rng.integers(2**32)))
    elif sampler != "random":
        yield _at(specs, _sobol_point(len(specs), seed, trial_number))
    for _ in range(RANDOM_DRAWS):
        yield _at(specs, rng.random(len(specs)))
    yield from _every(specs, list(specs), {}, rng)
