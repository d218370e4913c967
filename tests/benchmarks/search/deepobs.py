"""Real test-accuracy curves of image classifiers (DeepOBS): optimizer and learning rate alone.

Recorded for 36 learning rates an optimizer; between two of them the curves are mixed evenly in the
logarithm. Every epoch costs one second.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.search.tasks import Curve, Reference, Settings, Task
from tuner.settings.space import ChoiceSpec, FloatSpec, ParameterSpec

TASKS = ("cifar10_3c3d", "fmnist_2c2d")
SEED = 42  # the one seed with which every learning rate was run
STEPS_PER_DECADE = 5
MOST_EPOCHS = 100

Array = np.ndarray[Any, np.dtype[np.float64]]


class DeepOBSTask(Task):
    """One network on one data set; `folder` holds the recorded runs."""

    def __init__(self, name: str, folder: Path) -> None:
        rows = json.loads((folder / f"{name}.json").read_text())
        runs = {
            (row["optimizer"], _step(row["lr"])): _scores(row["test_acc"])
            for row in rows
            if row["seed"] == SEED
        }
        num_epochs = min(max(len(scores) for scores in runs.values()), MOST_EPOCHS)
        optimizers = tuple(sorted({optimizer for optimizer, _ in runs}))
        specs: dict[str, ParameterSpec] = {
            "optimizer": ChoiceSpec(optimizers),
            "lr": FloatSpec(1e-5, 1e2, log=True),
        }
        super().__init__(name, specs, num_epochs)
        self._runs = {key: _padded(scores, num_epochs) for key, scores in runs.items()}

    def reference(self) -> Reference:
        scores = np.array(list(self._runs.values()))
        return Reference(
            best=float(scores.max()),
            median=float(np.median(scores[:, -1])),
            floor=float(np.quantile(scores[:, 0], 0.02)),
            full_s=float(self.num_epochs),
        )

    def _look_up(self, settings: Settings) -> Curve:
        place = math.log10(settings["lr"]) * STEPS_PER_DECADE
        steps = sorted(step for name, step in self._runs if name == settings["optimizer"])
        below = max((step for step in steps if step <= place + 1e-6), default=steps[0])
        above = min((step for step in steps if step >= place - 1e-6), default=steps[-1])
        share = (place - below) / (above - below) if above > below else 0.0
        low, high = (self._runs[settings["optimizer"], step] for step in (below, above))
        seconds = [float(epoch + 1) for epoch in range(self.num_epochs)]
        return Curve(seconds, ((1 - share) * low + share * high).tolist())


def _step(lr: float) -> int:
    return round(math.log10(lr) * STEPS_PER_DECADE)


def _scores(recorded: list[float]) -> Array:
    """After each epoch; the first that is recorded is of the untrained net."""
    return np.nan_to_num(np.array(recorded[1:], float))


def _padded(scores: Array, num_epochs: int) -> Array:
    missing = max(num_epochs - len(scores), 0)
    return np.concatenate([scores[:num_epochs], np.full(missing, scores[-1])])
