"""All that only a GPU can show, in one run: laws, memory, and images per second.

    PYTHONPATH=. python tests/gpu/run.py results/benchmarks/gpu.json

About five minutes on an H200, sized for a card of 80 GB and more; it needs torch, torchvision,
numpy, OpenCV, Pillow and filelock. It prints a table as it goes and writes the same as JSON. Exit
code 1: a check failed or a figure misses its goal. Without a GPU it says so and does nothing, but
for `device=cpu` behind the path, which tries the script itself at tiny sizes.
"""

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.gpu.bench import Examination, Finding
from tests.gpu.checks import CHECKS
from tests.gpu.memory_checks import MEMORY_CHECKS
from tests.gpu.speeds import figures
from tuner.files import write_json
from tuner.planning.environment import git_commit, processor, versions
from tuner.training.loop import set_up_device
from tuner.training.memory import release_memory
from tuner.training.result import describe_error

RESULTS = Path(__file__).parents[2] / "results"
USAGE = "use: PYTHONPATH=. python tests/gpu/run.py results/benchmarks/gpu.json"
NO_GPU = "there is no CUDA device here: nothing was checked, and nothing written"
NO_FIGURES = "tiny sizes on a CPU, to try the script: nothing below is a figure"
LAST_BEGIN_S = 400.0  # the whole takes eight minutes at most: what comes later is left out
WIDTHS = (64, 24, 16)


def main(arguments: Sequence[str]) -> int:
    """Return the exit code, having run what the device can show."""
    path, *options = arguments or [""]
    if not path or "=" in path or options not in ([], ["device=cpu"]):
        print(USAGE, file=sys.stderr)
        return 2
    device, to = torch.device("cpu" if options else "cuda"), Path(path)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(NO_GPU)
        return 0
    if device.type == "cpu":
        if to.resolve().is_relative_to(RESULTS):
            print(f"{path}: a CPU has no figures for results/; give another path", file=sys.stderr)
            return 2
        print(NO_FIGURES)
        torch.set_num_threads(1)
    to.parent.mkdir(parents=True, exist_ok=True)
    report = Report(to, describe_run(arguments, device))
    with tempfile.TemporaryDirectory() as folder:
        examine("checks", {**CHECKS, **MEMORY_CHECKS}, device, Path(folder), report)
        examine("figures", figures(device), device, Path(folder), report)
    return report.close()


def describe_run(arguments: Sequence[str], device: torch.device) -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    described: dict[str, Any] = {
        "command": " ".join(["PYTHONPATH=. python tests/gpu/run.py", *arguments]),
        "device": "cpu: no figures",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "versions": versions(),
        "git_commit": git_commit(),
    }
    if device.type == "cuda":
        described["device"] = torch.cuda.get_device_name(device)
        described["device_bytes"] = torch.cuda.get_device_properties(device).total_memory
        described["cudnn"] = torch.backends.cudnn.version()
    return described


@dataclass
class Report:
    """The table as it grows, and the same in a file, written anew after every part."""

    to: Path
    content: dict[str, Any]
    began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.content |= {"is_complete": False, "num_failed": 0, "seconds": 0.0}
        self._print_line("seconds", "check or figure", "value", "goal", "ok")

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.perf_counter() - self.began

    def begin(self, kind: str, title: str, place: str) -> dict[str, Any]:
        """Return the part that the findings to come are added to."""
        print(f"\n{title} ({kind}, {place})", flush=True)
        part: dict[str, Any] = {"title": title, "error": None, "findings": []}
        self.content.setdefault(kind, []).append(part)
        return part

    def add(self, part: dict[str, Any], finding: Finding) -> None:
        """Take in what was found."""
        part["findings"].append(finding.to_plain())
        self.content["num_failed"] += finding.is_ok is False
        is_ok = {True: "yes", False: "NO", None: ""}[finding.is_ok]
        self._print_line(
            f"{self.seconds:.1f}", finding.name, _text(finding.value), finding.goal, is_ok
        )

    def fail(self, part: dict[str, Any], error: Exception) -> None:
        """Take in why the part broke off."""
        part["error"] = describe_error(error)
        self.content["num_failed"] += 1
        self._print_line(f"{self.seconds:.1f}", part["error"], "", "", "NO")

    def write(self) -> None:
        """Write all there is so far."""
        self.content["seconds"] = round(self.seconds, 1)
        write_json(self.to, self.content)

    def close(self) -> int:
        """Return the exit code, having told the number of failures and where the file is."""
        self.content["is_complete"] = True
        self.write()
        num_failed = self.content["num_failed"]
        print(f"\n{num_failed} failed, {self.seconds:.0f} s; written: {self.to}")
        return int(num_failed > 0)

    def _print_line(self, seconds: str, *cells: str) -> None:
        *cells_before, is_ok = cells
        texts = [text.ljust(width) for text, width in zip(cells_before, WIDTHS, strict=True)]
        print("  ".join([seconds.rjust(8), *texts, is_ok]).rstrip(), flush=True)


def examine(
    kind: str,
    parts: Mapping[str, Examination],
    device: torch.device,
    folder: Path,
    report: Report,
) -> None:
    """Run all parts, each from the same start; an error ends its part alone."""
    for number, (title, examination) in enumerate(parts.items(), start=1):
        part = report.begin(kind, title, f"{number} of {len(parts)}")
        try:
            _start_afresh(device)
            if report.seconds > LAST_BEGIN_S:
                raise TimeoutError(f"left out: {LAST_BEGIN_S:.0f} s are over")
            for finding in examination(device, folder):
                report.add(part, finding)
        except Exception as error:
            report.fail(part, error)
            traceback.print_exc()
        report.write()


def _start_afresh(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0)
    set_up_device(device)
    release_memory(device)


def _text(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
