"""What every sampler promises, whatever it makes of the history."""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, get_args

import pytest

from tuner.search_logic.cube import settings_key
from tuner.search_logic.history import Observation
from tuner.search_logic.rung_data import Lengths
from tuner.search_logic.sampling import START_UP_TRIALS, Sampler, propose
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec, can_take

HAS_CMAES = find_spec("cmaes") is not None
SAMPLERS: Sequence[Any] = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name == "cmaes" and not HAS_CMAES, reason="the extra cmaes is not installed"
        ),
    )
    for name in get_args(Sampler)
]
LENGTHS = Lengths(100, 900)
RUNGS = (100, 300, 900)

EVERY_KIND: Mapping[str, ParameterSpec] = {
    "momentum": FloatSpec(0.5, 0.99, when=(("optimizer", "sgd"),)),
    "optimizer": ChoiceSpec(("sgd", "adam")),
    "lr": FloatSpec(1e-4, 1.0, log=True),
    "layers": IntSpec(2, 9, step=3),
    "width": IntSpec(1, 1000, log=True),
    "nesterov": ChoiceSpec((True, False), when=(("optimizer", "sgd"),)),
    "fixed": FloatSpec(0.3, 0.3),
}
EVERY_LISTED_KIND: Mapping[str, ParameterSpec] = {
    "momentum": ChoiceSpec((0.5, 0.9, 0.99), when=(("optimizer", "sgd"),)),
    "optimizer": ChoiceSpec(("sgd", "adam")),
    "lr": ChoiceSpec((1e-4, 1e-3, 0.01, 0.1, 1.0)),
    "layers": IntSpec(2, 9, step=3),
    "width": IntSpec(1, 10, log=True),
    "nesterov": ChoiceSpec((True, False), when=(("optimizer", "sgd"),)),
    "fixed": FloatSpec(0.3, 0.3),
}
SMALL: Mapping[str, ParameterSpec] = {
    "workers": IntSpec(0, 2),
    "optimizer": ChoiceSpec(("sgd", "adam")),
    "momentum": ChoiceSpec((0.0, 0.9), when=(("optimizer", "sgd"),)),
}


def every_kind(sampler: Sampler) -> Mapping[str, ParameterSpec]:
    return EVERY_LISTED_KIND if sampler == "grid" else EVERY_KIND


def enough_trials(sampler: Sampler) -> int:
    """As many as a test can wait for: Optuna's gp takes about a second for each."""
    return START_UP_TRIALS + (2 if sampler == "gp" else 15)


def search(
    specs: Mapping[str, ParameterSpec], sampler: Sampler, *, num_trials: int, seed: int = 0
) -> list[dict[str, Any]]:
    """The settings of a search that scores every trial but a failed, a lost and a running one."""
    trials: list[dict[str, Any]] = []
    history: list[Observation] = []
    for number in range(num_trials):
        proposed = propose(
            specs,
            history,
            sampler=sampler,
            seed=seed,
            trial_number=number,
            tried={settings_key(each) for each in trials},
            lengths=LENGTHS,
        )
        if proposed is None:
            break
        trials.append(proposed)
        history.append(observation(proposed, number))
    return trials


def observation(trial: Mapping[str, Any], number: int) -> Observation:
    match number:
        case 3:
            return Observation(trial, state="failed")
        case 4:
            return Observation(trial, state="infeasible")
        case 5:
            return Observation(trial, state="running")
    reached = RUNGS[: 1 + (number % 3 == 0) + (number % 9 == 0)]
    return Observation(trial, {length: math.sin(number) + length / 900 for length in reached})


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_proposal_is_a_setting_of_the_space(sampler: Sampler) -> None:
    specs = every_kind(sampler)
    trials = search(specs, sampler, num_trials=enough_trials(sampler))
    assert len(trials) == enough_trials(sampler)
    for trial in trials:
        conditional = {"momentum", "nesterov"} if trial["optimizer"] == "sgd" else set()
        assert trial.keys() == {"optimizer", "lr", "layers", "width", "fixed"} | conditional
        for key, value in trial.items():
            assert can_take(specs[key], value)
        assert type(trial["layers"]) is type(trial["width"]) is int
        assert type(trial["lr"]) is float


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_seed_proposes_the_same(sampler: Sampler) -> None:
    specs, num_trials = every_kind(sampler), enough_trials(sampler)
    trials = search(specs, sampler, num_trials=num_trials)
    assert search(specs, sampler, num_trials=num_trials) == trials
    assert search(specs, sampler, num_trials=num_trials, seed=1) != trials


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_space_is_used_up_without_trying_anything_twice(sampler: Sampler) -> None:
    trials = search(SMALL, sampler, num_trials=50)
    assert len({settings_key(trial) for trial in trials}) == len(trials) == 9


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_space_without_parameters_holds_one_setting(sampler: Sampler) -> None:
    assert search({}, sampler, num_trials=3) == [{}]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("spec", [IntSpec(0, 2), IntSpec(1, 3, log=True), ChoiceSpec((1, 2, 3))])
def test_both_ends_of_a_range_are_proposed(spec: ParameterSpec, sampler: Sampler) -> None:
    rest = ChoiceSpec(tuple(range(20))) if sampler == "grid" else FloatSpec(0.0, 1.0)
    specs = {"rest": rest, "range": spec}
    trials = search(specs, sampler, num_trials=enough_trials(sampler))
    assert len({trial["range"] for trial in trials}) == 3
