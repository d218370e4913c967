"""LCBench by its surrogate (YAHPO Gym): nets for tabular data, seven parameters, 51 epochs.

The model was fitted on real runs of 35 data sets; it gives accuracy and seconds for any setting.
Its first epoch is an untrained net and is left out.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.search.tasks import Curve, Reference, Settings, Task, settings_at
from tuner.settings.space import FloatSpec, IntSpec, ParameterSpec

SPACE: Mapping[str, ParameterSpec] = {
    "batch_size": IntSpec(16, 512, log=True),
    "learning_rate": FloatSpec(1e-4, 1e-1, log=True),
    "momentum": FloatSpec(0.1, 0.99),
    "weight_decay": FloatSpec(1e-5, 1e-1),
    "num_layers": IntSpec(1, 5),
    "max_units": IntSpec(64, 1024, log=True),
    "max_dropout": FloatSpec(0.0, 1.0),
}
EPOCHS = range(2, 53)
# The tasks to develop on; the others are kept for a last look.
DEVELOPMENT = (
    *("126025", "126029", "167083", "167149", "167161", "167181", "167185", "167200", "168329"),
    *("168331", "168868", "168910", "189862", "189866", "189905", "189908", "34539"),
)
REFERENCE_SEED = 12345
NUM_REFERENCE = 2000

Array = np.ndarray[Any, np.dtype[np.float64]]


class LCBenchTask(Task):
    """One data set of LCBench, by its OpenML number; `folder` holds the model."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, SPACE, len(EPOCHS))
        self._session = _open_session(folder)
        encoding = json.loads((folder / "encoding.json").read_text())
        self._code = encoding["OpenML_task_id"][name]

    def reference(self) -> Reference:
        rng = np.random.default_rng(REFERENCE_SEED)
        curves = [
            self._ask(settings_at(SPACE, rng.random(len(SPACE)))) for _ in range(NUM_REFERENCE)
        ]
        seconds = np.array([each[0][-1] for each in curves])
        scores = np.array([each[1] for each in curves])
        return Reference(
            best=float(scores.max()),
            median=float(np.median(scores[:, -1])),
            floor=float(np.quantile(scores[:, 0], 0.02)),
            full_s=float(np.median(seconds)),
        )

    def _look_up(self, settings: Settings) -> Curve:
        seconds, scores = self._ask(settings)
        return Curve(seconds.tolist(), scores.tolist())

    def _ask(self, settings: Settings) -> tuple[Array, Array]:
        """Seconds and accuracy of every epoch, in one call of the model."""
        rows = np.empty((len(EPOCHS), 1 + len(SPACE)), np.float32)
        rows[:, 0] = EPOCHS
        rows[:, 1:] = [settings[name] for name in SPACE]
        codes = np.full((len(EPOCHS), 1), self._code, np.int32)
        answers = self._session.run(None, {"x_cat": codes, "x_cont": rows})[0].astype(float)
        # The model's times are not quite monotone.
        seconds = np.maximum(np.maximum.accumulate(answers[:, 0]), 1e-6)
        return seconds, answers[:, 1] / 100


def list_tasks(folder: Path) -> Sequence[str]:
    """Every task that the model knows."""
    names: dict[str, int] = json.loads((folder / "encoding.json").read_text())["OpenML_task_id"]
    return list(names)


@cache
def _open_session(folder: Path) -> Any:
    import onnxruntime  # the tasks' names are known without it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # several runs go side by side
    return onnxruntime.InferenceSession(
        folder / "model.onnx", options, providers=["CPUExecutionProvider"]
    )
