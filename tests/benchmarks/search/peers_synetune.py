"""Syne Tune's own schedulers, called in the order of its Tuner.

A suggestion is made when a worker is free. A trial that the scheduler stops is removed from it.
Syne Tune 0.16 has the stopping kind of successive halving alone.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import numpy as np
from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import choice, lograndint, loguniform, randint, uniform
from syne_tune.optimizer.baselines import ASHA, ASHACQR, BOHB
from syne_tune.optimizer.scheduler import SchedulerDecision

from tests.benchmarks.search.simulate import Setup, Stint
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec

SCHEDULERS: Mapping[str, Callable[..., Any]] = {"asha": ASHA, "bohb": BOHB, "cqr": ASHACQR}


class SyneTuneSearch:
    """One scheduler of Syne Tune with its defaults, rungs at 1, 3, 9 … epochs."""

    def __init__(self, setup: Setup, *, scheduler: str) -> None:
        logging.getLogger("syne_tune").setLevel(logging.ERROR)
        np.random.seed(setup.seed)  # from there the scheduler draws its bracket
        self._scheduler = SCHEDULERS[scheduler](
            {key: _domain(spec) for key, spec in setup.specs.items()},
            metric="top1",
            time_attr="epoch",
            max_t=setup.num_epochs,
            do_minimize=False,
            random_seed=setup.seed,
        )
        self._num_epochs = setup.num_epochs
        self._trials: list[Trial] = []

    def next(self, now: float) -> Stint | None:
        suggestion = self._scheduler.suggest()
        if suggestion is None:
            return None
        trial = Trial(len(self._trials), suggestion.config, datetime.fromtimestamp(0))
        self._trials.append(trial)
        self._scheduler.on_trial_add(trial)
        return Stint(trial.trial_id, trial.config, 0, self._num_epochs)

    def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
        assert isinstance(stint.trial, int)
        trial = self._trials[stint.trial]
        decision = self._scheduler.on_trial_result(trial, {"top1": score, "epoch": epoch})
        if decision == SchedulerDecision.STOP:
            self._scheduler.on_trial_remove(trial)
            return True
        return False

    def end(self, stint: Stint, epoch: int, now: float) -> None:
        pass


def _domain(spec: ParameterSpec) -> Any:
    match spec:
        case ChoiceSpec(choices=choices):
            return choice(list(choices))
        case FloatSpec(low=low, high=high, log=log):
            return (loguniform if log else uniform)(low, high)
        case IntSpec(low=low, high=high, log=log):
            return (lograndint if log else randint)(low, high)
