"""Optuna's own samplers and pruners: ask, report, should_prune, tell."""

from collections.abc import Callable

import optuna
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    SuccessiveHalvingPruner,
)
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.trial import Trial, TrialState

from tests.benchmarks.search.simulate import Setup, Stint
from tuner.study.record import distribution

SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed),
    "gp": lambda seed: GPSampler(seed=seed),
}
PRUNERS: dict[str, Callable[[int], BasePruner]] = {
    "none": lambda num_epochs: NopPruner(),
    "sha": lambda num_epochs: SuccessiveHalvingPruner(),
    "hyperband": lambda num_epochs: HyperbandPruner(min_resource=1, max_resource=num_epochs),
    "median": lambda num_epochs: MedianPruner(),
}


class OptunaSearch:
    """A study in memory, every trial asked for in full and pruned where the pruner says so."""

    def __init__(self, setup: Setup, *, sampler: str, pruner: str = "none") -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(
            direction="maximize",
            sampler=SAMPLERS[sampler](setup.seed),
            pruner=PRUNERS[pruner](setup.num_epochs),
        )
        self._prunes = pruner != "none"
        self._num_epochs = setup.num_epochs
        self._distributions = {key: distribution(spec) for key, spec in setup.specs.items()}
        self._trials: dict[int, Trial] = {}
        self._scores: dict[int, float] = {}

    def next(self, now: float) -> Stint | None:
        trial = self._study.ask(self._distributions)
        self._trials[trial.number] = trial
        return Stint(trial.number, trial.params, 0, self._num_epochs)

    def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
        trial = self._trial(stint)
        self._scores[trial.number] = score
        if not self._prunes:
            return False
        trial.report(score, epoch)
        return epoch < self._num_epochs and trial.should_prune()

    def end(self, stint: Stint, epoch: int, now: float) -> None:
        trial = self._trial(stint)
        if epoch < self._num_epochs:
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, self._scores[trial.number])

    def _trial(self, stint: Stint) -> Trial:
        assert isinstance(stint.trial, int)
        return self._trials[stint.trial]
