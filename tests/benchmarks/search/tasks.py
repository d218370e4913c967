"""What is searched in a benchmark: a space, and for each point of it a recorded learning curve."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Curve:
    """One training: what each epoch reached and when.

    Attributes:
        seconds: From the start of training to the end of each epoch; never falls.
        scores: Accuracy after each epoch, a fraction.
    """

    seconds: Sequence[float]
    scores: Sequence[float]


@dataclass(frozen=True, slots=True)
class Reference:
    """What random trainings of a task give: the scale on which searches are judged.

    Attributes:
        best: The highest score of any epoch.
        median: Of the scores after the last epoch.
        floor: The 2 % quantile after the first epoch; what a search counts as before a result.
        full_s: Median seconds of a full training.
    """

    best: float
    median: float
    floor: float
    full_s: float


class Task(ABC):
    """A space and its recorded curves. Each curve is worked out once.

    Attributes:
        name: Names the task in results.
        num_epochs: Length of a full training.
    """

    def __init__(self, name: str, specs: Mapping[str, ParameterSpec], num_epochs: int) -> None:
        self.name = name
        self.specs = specs
        self.num_epochs = num_epochs
        self._curves: dict[tuple[Any, ...], Curve] = {}

    def curve(self, settings: Settings) -> Curve:
        """The full curve of a setting of every parameter."""
        key = tuple(settings[name] for name in self.specs)
        if key not in self._curves:
            self._curves[key] = self._look_up(settings)
        return self._curves[key]

    @abstractmethod
    def reference(self) -> Reference:
        """The scale of the task."""

    @abstractmethod
    def _look_up(self, settings: Settings) -> Curve: ...


def settings_at(specs: Mapping[str, ParameterSpec], point: Iterable[float]) -> dict[str, Any]:
    """The settings at a point of the unit cube, one coordinate for each parameter."""
    return {
        key: _value_at(spec, float(u)) for (key, spec), u in zip(specs.items(), point, strict=True)
    }


def _value_at(spec: ParameterSpec, u: float) -> Any:
    match spec:
        case ChoiceSpec(choices=choices):
            return choices[min(int(u * len(choices)), len(choices) - 1)]
        case FloatSpec(low=low, high=high, log=log):
            return _between(low, high, log, u)
        case IntSpec(low=low, high=high, log=log):
            return min(max(round(_between(low - 0.5, high + 0.5, log, u)), low), high)


def _between(low: float, high: float, log: bool, u: float) -> float:
    if log:
        return math.exp(math.log(low) + u * (math.log(high) - math.log(low)))
    return low + u * (high - low)
