"""Stock Ray Tune: its real scheduler and searcher, called in the order of its TuneController.

One suggestion is made ahead of a free slot (Ray keeps one pending trial). At a result the
scheduler is asked first; a trial that it stops is told to the searcher as complete, with the score
it had. Defaults of both but for the lengths (Ray 2.60).
"""

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.tune.search.optuna import OptunaSearch

from tests.benchmarks.search.simulate import Setup, Stint
from tuner.study.record import distribution


class RaySearch:
    """OptunaSearch with AsyncHyperBandScheduler, rungs at 1, 4, 16 … epochs."""

    def __init__(self, setup: Setup) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        logging.getLogger("ray").setLevel(logging.ERROR)
        np.random.seed(setup.seed)  # from there the scheduler draws its bracket
        self._scheduler = AsyncHyperBandScheduler(
            time_attr="training_iteration",
            metric="top1",
            mode="max",
            max_t=setup.num_epochs,
            grace_period=1,
            reduction_factor=4,
        )
        self._searcher = OptunaSearch(
            {key: distribution(spec) for key, spec in setup.specs.items()},
            metric="top1",
            mode="max",
            seed=setup.seed,
        )
        self._num_epochs = setup.num_epochs
        self._num_trials = 0
        self._trials: dict[str, Any] = {}
        self._ahead = self._suggest()

    def next(self, now: float) -> Stint | None:
        (name, settings), self._ahead = self._ahead, self._suggest()
        self._trials[name] = SimpleNamespace(trial_id=name)
        self._scheduler.on_trial_add(None, self._trials[name])
        return Stint(name, settings, 0, self._num_epochs)

    def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
        name = str(stint.trial)
        result = {"top1": score, "training_iteration": epoch, "time_total_s": now}
        decision = self._scheduler.on_trial_result(None, self._trials[name], result)
        if decision == "STOP":
            self._scheduler.on_trial_complete(None, self._trials[name], result)
            self._searcher.on_trial_complete(name, result)
            return True
        self._searcher.on_trial_result(name, result)
        return False

    def end(self, stint: Stint, epoch: int, now: float) -> None:
        pass

    def _suggest(self) -> tuple[str, dict[str, Any]]:
        name, self._num_trials = str(self._num_trials), self._num_trials + 1
        return name, self._searcher.suggest(name)
