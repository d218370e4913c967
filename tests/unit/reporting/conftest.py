"""A stage to look at, and what it is shown on."""

import io
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from tuner.reporting.live import LiveView
from tuner.settings.space import ChoiceSpec, FloatSpec, ParameterSpec
from tuner.study.record import EndState, Record

SPACE: dict[str, ParameterSpec] = {
    "optim.lr": FloatSpec(1e-3, 1.0, log=True),
    "train.batch_size": ChoiceSpec((32, 64)),
    "optim.weight_decay": FloatSpec(1e-6, 1e-2, log=True),
    "model.name": ChoiceSpec(("resnet8", "[red]x[/red]", "漢字" * 20, "\x1b[31mred\n")),
}
SETTINGS = {
    "optim.lr": 0.03125,
    "train.batch_size": 64,
    "optim.weight_decay": 1.234e-5,
    "model.name": "resnet8",
}


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Stage:
    """A record and a view of it, told of the same."""

    def __init__(self, folder: Path, console: Console, **changes: Any) -> None:
        self.record = Record.open(
            folder,
            name="x",
            metric=changes.pop("metric", "top1"),
            direction=changes.pop("direction", "maximize"),
            parameters=SPACE,
            data_fingerprint="",
            settings_plain={},
        )
        if changes.get("stage") == "confirm":
            self.record = self.record.open_confirm()
        self.clock = Clock()
        asked: dict[str, Any] = {
            "stage": "search",
            "rungs": [100, 300, 900],
            "num_images": 100,
            "expected_samples": 2000,
            "num_trials": 20,
            "slots": 2,
            "parameters": list(SPACE),
            "images_per_s": 10.0,
            "console": console,
            "clock": self.clock,
        }
        self.view = LiveView(self.record, **{**asked, **changes})

    def begin(self, **changes: Any) -> int:
        trial = self.record.add_trial({**SETTINGS, **changes})
        self.view.begin(trial.number, trial.settings, 0)
        return trial.number

    def report(
        self,
        number: int,
        samples: int,
        score: float,
        *,
        goes_on: bool = False,
        message: str = "",
        end: EndState | None = None,
    ) -> None:
        result = {
            "samples_seen": samples,
            "epoch": samples / 100,
            self.record.metric: score,
            "seconds": 10.0,
            "message": message,
        }
        self.record.add_report(number, result)
        if end:
            self.record.end(number, end)
        self.view.report(number, result, goes_on=goes_on)

    def fail(self, number: int, message: str) -> None:
        self.record.end(number, "failed", "diverged", message)
        self.view.fail(number, "diverged", message, is_final=True)

    def try_again(self, number: int, message: str) -> None:
        self.record.add_failure(number, "killed", message)
        self.view.fail(number, "killed", message, is_final=False)


def terminal(width: int = 80, height: int = 24) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=width,
        height=height,
        soft_wrap=True,
        _environ={"TERM": "xterm"},
    )


def pipe() -> Console:
    return Console(file=io.StringIO(), width=80, soft_wrap=True, _environ={})


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def quick_folder() -> tempfile.TemporaryDirectory[str]:
    """In memory where there is one: the record syncs every event."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
