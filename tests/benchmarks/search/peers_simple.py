"""The two rivals that need no model: random settings in full, and one epoch for all."""

from typing import Any

import numpy as np

from tests.benchmarks.search.simulate import Setup, Stint
from tests.benchmarks.search.tasks import settings_at


class RandomSearch:
    """Every trial has random settings and is trained in full."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._rng = np.random.default_rng(setup.seed)
        self._num_trials = 0

    def next(self, now: float) -> Stint | None:
        number, self._num_trials = self._num_trials, self._num_trials + 1
        return Stint(number, self._draw(), 0, self._setup.num_epochs)

    def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
        return False

    def end(self, stint: Stint, epoch: int, now: float) -> None:
        pass

    def _draw(self) -> dict[str, Any]:
        return settings_at(self._setup.specs, self._rng.random(len(self._setup.specs)))


class OneEpochTopK(RandomSearch):
    """Random settings for one epoch each, then the best of them in full (arXiv:2307.15422).

    Args:
        share: Of the time that goes to first epochs; K follows from what is left.
    """

    def __init__(self, setup: Setup, *, share: float) -> None:
        super().__init__(setup)
        self._first_s = share * setup.budget_s
        self._waiting: dict[int, tuple[float, Stint]] = {}

    def next(self, now: float) -> Stint | None:
        if now < self._first_s:
            number, self._num_trials = self._num_trials, self._num_trials + 1
            return Stint(number, self._draw(), 0, 1)
        if not self._waiting:
            return None
        best = max(self._waiting, key=lambda number: self._waiting[number][0])
        _, stint = self._waiting.pop(best)
        return Stint(best, stint.settings, 1, self._setup.num_epochs)

    def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
        if epoch == 1:
            assert isinstance(stint.trial, int)
            self._waiting[stint.trial] = score, stint
        return False
