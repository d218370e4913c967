"""NePS' own optimizers by ask and tell, on its space with epochs as the fidelity.

A configuration that is promoted goes on from where it was.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import neps
import numpy as np
import torch
from neps import algorithms

from tests.benchmarks.search.simulate import Setup, Stint
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec

EPOCHS = "epochs"
OPTIMIZERS: Mapping[str, Callable[..., Any]] = {
    "asha": algorithms.asha,
    "hyperband": algorithms.hyperband,
}


class NepsSearch:
    """One optimizer of NePS with its defaults."""

    def __init__(self, setup: Setup, *, optimizer: str) -> None:
        warnings.filterwarnings("ignore", module="neps")
        np.random.seed(setup.seed)  # NePS draws from the global generators
        torch.manual_seed(setup.seed)
        space = _space(setup.specs, setup.num_epochs)
        self._search = neps.AskAndTell(OPTIMIZERS[optimizer](space))
        self._scores: dict[str, float] = {}
        self._done: dict[str, int] = {}

    def next(self, now: float) -> Stint | None:
        trial = self._search.ask()
        settings = {key: value for key, value in trial.config.items() if key != EPOCHS}
        number, _, _ = trial.id.partition("_rung_")
        return Stint(trial.id, settings, self._done.get(number, 0), int(trial.config[EPOCHS]))

    def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
        self._scores[str(stint.trial)] = score
        return False

    def end(self, stint: Stint, epoch: int, now: float) -> None:
        name = str(stint.trial)
        self._done[name.partition("_rung_")[0]] = epoch
        self._search.tell(name, 1 - self._scores[name])


def _space(specs: Mapping[str, ParameterSpec], num_epochs: int) -> neps.PipelineSpace:
    attributes: dict[str, Any] = {key: _parameter(spec) for key, spec in specs.items()}
    attributes[EPOCHS] = neps.IntegerFidelity(lower=1, upper=num_epochs)
    return type("Space", (neps.PipelineSpace,), attributes)()


def _parameter(spec: ParameterSpec) -> Any:
    match spec:
        case ChoiceSpec(choices=choices):
            return neps.Categorical(choices=choices)
        case FloatSpec(low=low, high=high, log=log):
            return neps.Float(lower=low, upper=high, log=log)
        case IntSpec(low=low, high=high, log=log):
            return neps.Integer(lower=low, upper=high, log=log)
