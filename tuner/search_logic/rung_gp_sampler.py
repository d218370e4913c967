"""The search's own model as a sampler for any Optuna study."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import inf, isfinite
from typing import Any
from zlib import crc32

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search_logic.cube import Axis, Cube, Settings, settings_key
from tuner.search_logic.history import Observation
from tuner.search_logic.rung_data import Lengths
from tuner.search_logic.rungs import LAST_GAP
from tuner.search_logic.sampling import candidates

# Reasons for which a search of this program records that a trial failed by no fault of its own.
MACHINE_FAULTS = ("error", "killed", "stalled")
# A trial that had no values of an endless range beside its own may rule out all there are.
MOST_LOOKED_AT = 20_000


class RungGPSampler(BaseSampler):
    """Proposes what `search.sampler=rung_gp` does: a pure function of seed and trials.

    Intermediate values are scores at the length that is their step; the value of a trial without
    any is one at the full length. A failed trial counts as a poor one, one with a violated
    constraint keeps others away from where it is, one that still runs counts as it is expected to
    turn out. No configuration comes twice while others are left.

    Args:
        seed: From 0 up.
        full_length: The largest step of a full trial; None for the largest one of the study.
        search_space: All parameters; None for those of the trials so far, so that the first one is
            drawn at random.
    """

    def __init__(
        self,
        *,
        seed: int,
        full_length: int | None = None,
        search_space: Mapping[str, BaseDistribution] | None = None,
    ) -> None:
        self._seed = seed
        self._full_length = full_length
        self._search_space = search_space

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The parameters of all trials so far, with or without a condition."""
        if self._search_space is not None:
            return dict(self._search_space)
        space: dict[str, BaseDistribution] = {}
        for each in study.get_trials(deepcopy=False):
            space |= each.distributions
        return space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The values proposed, for all parameters of the search space.

        Raises:
            ValueError: The study has several objectives.
        """
        self._raise_error_if_multi_objective(study)
        if not search_space:
            return {}
        others = [each for each in study.get_trials(deepcopy=False) if each.number != trial.number]
        steps = _steps(others, self._full_length)
        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        proposed = candidates(
            Cube({key: Axis(each) for key, each in search_space.items()}),
            [seen for each in others for seen in _observed(each, sign, steps)],
            sampler="rung_gp",
            seed=self._seed,
            trial_number=trial.number,
            lengths=Lengths(steps[0], steps[-1]),
        )
        return _first_new(proposed, [each.params for each in others])

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """A value at random, of a parameter that no trial has had so far."""
        rng = np.random.default_rng([self._seed, trial.number, crc32(param_name.encode())])
        return Axis(param_distribution).value_at(rng.random())


def _steps(trials: Iterable[FrozenTrial], full_length: int | None) -> list[int]:
    """All lengths that trials have a value at, and the full one, in order."""
    steps = {step for each in trials for step in each.intermediate_values if step > 0}
    return sorted(steps | {full_length or max(steps, default=1)})


def _observed(trial: FrozenTrial, sign: float, steps: Sequence[int]) -> Iterator[Observation]:
    """What a trial tells, if anything."""
    scores = {step: sign * value for step, value in _thinned(trial.intermediate_values)}
    if any(value > 0 for value in trial.constraints.values()):
        yield Observation(trial.params, state="infeasible")
    elif trial.state == TrialState.RUNNING:
        yield Observation(trial.params, scores, "running")
    elif trial.state == TrialState.PRUNED:
        yield Observation(trial.params, scores)
    elif trial.state == TrialState.COMPLETE:
        assert trial.value is not None
        if isfinite(trial.value):
            yield Observation(trial.params, scores or {steps[-1]: sign * trial.value})
        else:
            yield Observation(trial.params, state="failed")
    elif trial.state == TrialState.FAIL and not _is_excused(trial):
        yield Observation(trial.params, state="failed")


def _is_excused(trial: FrozenTrial) -> bool:
    match trial.user_attrs:
        case {"end": {"reason": reason}}:
            return reason in MACHINE_FAULTS
    return False


def _thinned(values: Mapping[int, float]) -> Iterator[tuple[int, float]]:
    """The last finite value, and before it those of steps as far apart as rungs may be."""
    kept = inf
    for step in sorted(values, reverse=True):
        if isfinite(values[step]) and 0 < step * LAST_GAP <= kept:
            kept = step
            yield step, values[step]


def _first_new(proposed: Iterator[Settings], tried: Sequence[Mapping[str, Any]]) -> Settings:
    """The first settings that no trial had; where the space holds no others the first at all.

    A trial has tried all settings that agree with it in its own parameters: others were not
    searched beside these.
    """
    by_keys: defaultdict[frozenset[str], set[frozenset[tuple[str, Any]]]] = defaultdict(set)
    for each in tried:
        by_keys[frozenset(each)].add(settings_key(each))

    def is_new(settings: Settings) -> bool:
        return not any(
            settings_key({key: settings[key] for key in keys if key in settings}) in those
            for keys, those in by_keys.items()
            if keys
        )

    first = next(proposed)
    looked_at = islice(chain([first], proposed), MOST_LOOKED_AT)
    return next((each for each in looked_at if is_new(each)), first)
