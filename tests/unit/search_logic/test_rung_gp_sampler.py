"""The search's own model works as a sampler of any Optuna study."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.search_logic.cube import settings_key
from tuner.search_logic.history import Observation
from tuner.search_logic.rung_data import Lengths
from tuner.search_logic.rung_gp_sampler import RungGPSampler
from tuner.search_logic.sampling import cube_of, propose
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec
from tuner.study.record import Direction, distribution

SPECS: Mapping[str, ParameterSpec] = {
    "lr": FloatSpec(1e-4, 1.0, log=True),
    "optimizer": ChoiceSpec(("sgd", "adam")),
    "layers": IntSpec(1, 9, step=2),
}
SPACE: Mapping[str, BaseDistribution] = {key: distribution(spec) for key, spec in SPECS.items()}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def new_study(direction: Direction = "maximize", **options: Any) -> Study:
    return optuna.create_study(direction=direction, sampler=RungGPSampler(seed=3, **options))


def history_of(number: int) -> tuple[list[FrozenTrial], list[Observation]]:
    """The same trials for a study, and as a search of this program tells them."""
    rng = np.random.default_rng(0)
    trials, history = [], []
    for i in range(number):
        params = cube_of(SPECS).settings_at(rng.random(3))
        scores = {1: rng.random(), 3: rng.random(), 9: rng.random()}
        values = dict(list(scores.items())[: 1 + (i % 3 == 0) + (i % 9 == 0)])
        state, seen = TrialState.PRUNED, Observation(params, values)
        more: dict[str, Any] = {"intermediate_values": values}
        if i == 5:
            state, seen, more = TrialState.FAIL, Observation(params, state="failed"), {}
        elif i == 6:
            seen = Observation(params, state="infeasible")
            more = {"constraints": {"memory": 1.0}}
        elif i % 9 == 0:
            state, more = TrialState.COMPLETE, {**more, "value": max(values.values())}
        elif i == 7:
            state, seen = TrialState.RUNNING, Observation(params, values, "running")
        trials.append(create_trial(state=state, params=params, distributions=dict(SPACE), **more))
        history.append(seen)
    return trials, history


@pytest.mark.parametrize("number", [4, 30])
def test_a_study_gets_the_proposals_of_a_search_with_the_same_trials(number: int) -> None:
    trials, history = history_of(number)
    study = new_study()
    study.add_trials(trials)
    assert study.ask(dict(SPACE)).params == propose(
        SPECS,
        history,
        sampler="rung_gp",
        seed=3,
        trial_number=number,
        tried={settings_key(trial.params) for trial in trials},
        lengths=Lengths(1, 9),
    )


def test_what_is_minimized_is_what_is_maximized_with_the_sign_turned() -> None:
    trials, _ = history_of(30)
    higher, lower = new_study("maximize"), new_study("minimize")
    for trial in trials:
        higher.add_trial(trial)
        trial.intermediate_values = {k: -v for k, v in trial.intermediate_values.items()}
        if trial.state == TrialState.COMPLETE:
            trial.value = -(trial.value or 0)
        lower.add_trial(trial)
    assert higher.ask(dict(SPACE)).params == lower.ask(dict(SPACE)).params


def quadratic(trial: Trial) -> float:
    lr = trial.suggest_float("lr", 1e-4, 1.0, log=True)
    width = trial.suggest_int("width", 8, 512, log=True)
    return -((math.log10(lr) + 2) ** 2) - (math.log2(width) - 6) ** 2


def staged(trial: Trial) -> float:
    value = quadratic(trial)
    for step in range(1, 28):
        trial.report(value - 1 / step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return value


@pytest.mark.parametrize("objective", [quadratic, staged])
def test_an_objective_is_optimized_with_and_without_steps(
    objective: Callable[[Trial], float],
) -> None:
    study = optuna.create_study(
        direction="maximize",
        sampler=RungGPSampler(seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(),
    )
    study.optimize(objective, n_trials=30)
    assert study.best_value > -0.02


def test_a_parameter_that_is_suggested_beside_one_choice_alone_is_learned() -> None:
    def objective(trial: Trial) -> float:
        if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "adam":
            return 0.5
        return 1 - (trial.suggest_float("momentum", 0.0, 1.0) - 0.9) ** 2

    study = new_study()
    study.optimize(objective, n_trials=25)
    assert study.best_params["momentum"] == pytest.approx(0.9, abs=0.02)
    assert sum(trial.params["optimizer"] == "adam" for trial in study.trials[12:]) <= 1


def test_no_configuration_comes_twice_before_the_space_is_used_up() -> None:
    def objective(trial: Trial) -> float:
        if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "adam":
            return 0.5
        return trial.suggest_int("layers", 1, 4) / trial.suggest_categorical("size", [1, 2])

    study = new_study()
    study.optimize(objective, n_trials=12)
    tried = [settings_key(trial.params) for trial in study.trials]
    assert len(set(tried)) == len(set(tried[:9])) == 9


def test_a_trial_that_rules_out_all_others_ends_no_search() -> None:
    study = new_study()
    kind = CategoricalDistribution(["a"])
    study.add_trial(create_trial(value=0.1, params={"kind": "a"}, distributions={"kind": kind}))
    both = {"kind": kind, "rate": FloatDistribution(0.0, 1.0)}
    study.add_trial(create_trial(value=0.2, params={"kind": "a", "rate": 0.5}, distributions=both))
    assert study.ask({"kind": kind}).params == {"kind": "a"}


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_an_infinite_value_is_no_score(value: float) -> None:
    scored, failed = new_study(), new_study()
    for study in (scored, failed):
        trials, _ = history_of(30)
        study.add_trials([trial for trial in trials if trial.state != TrialState.FAIL])
    more: dict[str, Any] = {"params": {"lr": 0.1, "optimizer": "sgd", "layers": 3}}
    scored.add_trial(create_trial(value=value, distributions=dict(SPACE), **more))
    failed.add_trial(create_trial(state=TrialState.FAIL, distributions=dict(SPACE), **more))
    assert scored.ask(dict(SPACE)).params == failed.ask(dict(SPACE)).params


def test_what_the_machine_made_fail_says_nothing() -> None:
    told, untold = new_study(), new_study()
    trials, _ = history_of(30)
    told.add_trials(trials)
    untold.add_trials(trials)
    fault: dict[str, Any] = {"params": {"lr": 0.1, "optimizer": "sgd", "layers": 3}}
    for study, reason in ((told, "killed"), (untold, "diverged")):
        study.add_trial(
            create_trial(
                state=TrialState.FAIL,
                distributions=dict(SPACE),
                user_attrs={"end": {"state": "failed", "reason": reason}},
                **fault,
            )
        )
    without = new_study()
    without.add_trials([*trials, create_trial(state=TrialState.FAIL)])
    assert told.ask(dict(SPACE)).params == without.ask(dict(SPACE)).params
    assert untold.ask(dict(SPACE)).params != without.ask(dict(SPACE)).params


def test_the_first_trial_is_a_point_of_a_given_space_or_at_random() -> None:
    given = new_study(search_space=SPACE).ask(dict(SPACE)).params
    assert given == cube_of(SPECS).settings_at(cube_of(SPECS).sobol_point(3, 0))
    assert new_study().ask(dict(SPACE)).params == new_study().ask(dict(SPACE)).params
    assert new_study().ask(dict(SPACE)).params != given


def test_several_objectives_are_refused() -> None:
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=RungGPSampler(seed=0, search_space=SPACE)
    )
    with pytest.raises(ValueError, match="RungGPSampler cannot be used"):
        study.ask(dict(SPACE))
