"""SMAC's own multi-fidelity search by ask and tell: random forest, expected improvement, Hyperband.

SMAC's budgets are 51/27, 51/9, 51/3 and 51 epochs here; they are rounded to whole epochs. A
configuration that comes back at a larger budget goes on from where it was; at a smaller one, from
the beginning.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
from smac import MultiFidelityFacade, Scenario
from smac.runhistory import TrialInfo, TrialValue

from tests.benchmarks.search.simulate import Setup, Stint
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec

# No search comes to it; also the initial design's size follows from it (at most 10 a parameter).
MANY_TRIALS = 100_000


class SmacSearch:
    """The multi-fidelity facade with its defaults."""

    def __init__(self, setup: Setup) -> None:
        warnings.filterwarnings("ignore", module="smac|ConfigSpace|sklearn")
        scenario = Scenario(
            _space(setup.specs),
            output_directory=setup.folder,
            deterministic=True,
            n_trials=MANY_TRIALS,
            min_budget=1,
            max_budget=setup.num_epochs,
            seed=setup.seed,
        )
        self._smac = MultiFidelityFacade(scenario, None, overwrite=True, logging_level=False)
        self._asked: dict[int, TrialInfo] = {}
        self._numbers: dict[Any, int] = {}
        self._done: dict[int, int] = {}
        self._scores: dict[int, float] = {}

    def next(self, now: float) -> Stint | None:
        info = self._smac.ask()
        number = self._numbers.setdefault(info.config, len(self._numbers))
        self._asked[number] = info
        settings = {key: _plain(value) for key, value in info.config.items()}
        done, stop = self._done.get(number, 0), round(info.budget)
        return Stint(number, settings, done if done < stop else 0, stop)

    def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
        assert isinstance(stint.trial, int)
        self._scores[stint.trial] = score
        return False

    def end(self, stint: Stint, epoch: int, now: float) -> None:
        assert isinstance(stint.trial, int)
        self._done[stint.trial] = epoch
        value = TrialValue(cost=1 - self._scores[stint.trial])
        self._smac.tell(self._asked.pop(stint.trial), value, save=False)


def _space(specs: Mapping[str, ParameterSpec]) -> ConfigurationSpace:
    space = ConfigurationSpace()
    for key, spec in specs.items():
        match spec:
            case ChoiceSpec(choices=choices):
                space.add(Categorical(key, list(choices)))
            case FloatSpec(low=low, high=high, log=log):
                space.add(Float(key, (low, high), log=log))
            case IntSpec(low=low, high=high, log=log):
                space.add(Integer(key, (low, high), log=log))
    return space


def _plain(value: Any) -> Any:
    """Numbers and texts of numpy as Python's own."""
    return value.item() if hasattr(value, "item") else value
