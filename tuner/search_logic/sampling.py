"""The next settings to try: a pure function of a search's history, seed and trial number."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import numpy as np

from tuner.search_logic import rung_gp
from tuner.search_logic.cube import Axis, Cube, Settings, settings_key
from tuner.search_logic.history import Observation, at_one_length, has_enough
from tuner.search_logic.optuna_samplers import (
    grid_proposals,
    model_proposals,
    random_proposals,
)
from tuner.search_logic.rung_data import Lengths
from tuner.settings.space import ParameterSpec, parents_first
from tuner.study.record import distribution

Specs = Mapping[str, ParameterSpec]
Sampler = Literal["auto", "rung_gp", "tpe", "gp", "cmaes", "random", "qmc", "grid"]

# The samplers that learn from the history; auto is rung_gp.
MODEL_SAMPLERS = ("auto", "rung_gp", "tpe", "gp", "cmaes")

START_UP_TRIALS = 7
RANDOM_DRAWS = 100


def propose(
    specs: Specs,
    history: Sequence[Observation],
    *,
    sampler: Sampler,
    seed: int,
    trial_number: int,
    tried: Collection[frozenset[tuple[str, Any]]],
    lengths: Lengths,
) -> Settings | None:
    """Settings that are not among `tried`, or None where the space holds no others.

    Args:
        history: Observations for the model; while it is short of scores the model samplers take
            the scrambled Sobol point of the trial number, as they do at first.
        tried: The ``settings_key`` of every trial so far.
        lengths: Those between which trials are compared.
    """
    proposed = candidates(
        cube_of(specs),
        history,
        sampler=sampler,
        seed=seed,
        trial_number=trial_number,
        lengths=lengths,
    )
    return next((each for each in proposed if settings_key(each) not in tried), None)


def cube_of(specs: Specs) -> Cube:
    """The unit cube of the parameters that are searched."""
    return Cube(
        {key: Axis(distribution(spec), spec.when) for key, spec in parents_first(specs).items()}
    )


def candidates(
    cube: Cube,
    history: Sequence[Observation],
    *,
    sampler: Sampler,
    seed: int,
    trial_number: int,
    lengths: Lengths,
) -> Iterator[Settings]:
    """Settings in order of preference; the last of them is the last that the space holds.

    With a range of numbers they have no end.
    """
    rng = np.random.default_rng([seed, trial_number])
    if sampler == "grid":
        for values in grid_proposals(cube, seed=seed, trial_number=trial_number):
            yield cube.searched(values)
    if sampler in MODEL_SAMPLERS and trial_number >= START_UP_TRIALS:
        yield from _modelled(cube, history, sampler, lengths, rng)
    if sampler in (*MODEL_SAMPLERS, "qmc") and cube.axes:
        yield cube.settings_at(cube.sobol_point(seed, trial_number))
    for values in islice(random_proposals(cube, seed=_seed(rng)), RANDOM_DRAWS):
        yield cube.searched(values)
    yield from cube.every_settings(rng)


def _modelled(
    cube: Cube,
    history: Sequence[Observation],
    sampler: Sampler,
    lengths: Lengths,
    rng: np.random.Generator,
) -> Iterator[Settings]:
    """What a model proposes; nothing while it knows too little."""
    if sampler in ("auto", "rung_gp"):
        if has_enough(history, len(cube.axes)):
            yield from rung_gp.proposals(cube, history, lengths, rng)
    elif compared := at_one_length(history, len(cube.axes)):
        for values in model_proposals(sampler, cube, compared, seed=_seed(rng)):
            yield cube.searched(values)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**32))
