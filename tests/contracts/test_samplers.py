"""What every sampler promises, whatever it makes of the history."""

import math
from collections.abc import Mapping
from typing import Any, get_args

import pytest

from tuner.search_logic.sampling import Observation, Sampler, propose, settings_key
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec, can_take

SAMPLERS = get_args(Sampler)

EVERY_KIND: Mapping[str, ParameterSpec] = {
    "momentum": FloatSpec(0.5, 0.99, when=(("optimizer", "sgd"),)),
    "optimizer": ChoiceSpec(("sgd", "adam")),
    "lr": FloatSpec(1e-4, 1.0, log=True),
    "layers": IntSpec(2, 9, step=3),
    "width": IntSpec(1, 1000, log=True),
    "nesterov": ChoiceSpec((True, False), when=(("optimizer", "sgd"),)),
    "fixed": FloatSpec(0.3, 0.3),
}
SMALL: Mapping[str, ParameterSpec] = {
    "workers": IntSpec(0, 2),
    "optimizer": ChoiceSpec(("sgd", "adam")),
    "momentum": ChoiceSpec((0.0, 0.9), when=(("optimizer", "sgd"),)),
}


def search(
    specs: Mapping[str, ParameterSpec], sampler: Sampler, *, num_trials: int, seed: int = 0
) -> list[dict[str, Any]]:
    """The settings of a search that scores every trial but a failed, a lost and a running one."""
    trials: list[dict[str, Any]] = []
    history: list[Observation] = []
    for number in range(num_trials):
        settings = propose(
            specs,
            history,
            sampler=sampler,
            seed=seed,
            trial_number=number,
            tried={settings_key(each) for each in trials},
        )
        if settings is None:
            break
        trials.append(settings)
        outcomes = {3: "failed", 4: "infeasible", 5: "running"}
        outcome: Any = outcomes.get(number, math.sin(number))
        history.append(Observation(settings, outcome))
    return trials


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_proposal_is_a_setting_of_the_space(sampler: Sampler) -> None:
    trials = search(EVERY_KIND, sampler, num_trials=30)
    assert len(trials) == 30
    for settings in trials:
        conditional = {"momentum", "nesterov"} if settings["optimizer"] == "sgd" else set()
        assert settings.keys() == {"optimizer", "lr", "layers", "width", "fixed"} | conditional
        for key, value in settings.items():
            assert can_take(EVERY_KIND[key], value)
        assert type(settings["layers"]) is type(settings["width"]) is int
        assert type(settings["lr"]) is float


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_seed_proposes_the_same(sampler: Sampler) -> None:
    trials = search(EVERY_KIND, sampler, num_trials=15)
    assert search(EVERY_KIND, sampler, num_trials=15) == trials
    assert search(EVERY_KIND, sampler, num_trials=15, seed=1) != trials


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_space_is_used_up_without_trying_anything_twice(sampler: Sampler) -> None:
    trials = search(SMALL, sampler, num_trials=50)
    assert len({settings_key(settings) for settings in trials}) == len(trials) == 9


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_space_without_parameters_holds_one_setting(sampler: Sampler) -> None:
    assert search({}, sampler, num_trials=3) == [{}]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("spec", [IntSpec(0, 2), IntSpec(1, 3, log=True), ChoiceSpec((1, 2, 3))])
def test_both_ends_of_a_range_are_proposed(spec: ParameterSpec, sampler: Sampler) -> None:
    specs = {"rest": FloatSpec(0.0, 1.0), "range": spec}
    proposed = {settings["range"] for settings in search(specs, sampler, num_trials=25)}
    assert len(proposed) == 3
