"""Simulated searches on disk: one file each, so that a rerun does only what is missing."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.benchmarks.search.algorithms import find_algorithm
from tests.benchmarks.search.optimum import climb
from tests.benchmarks.search.simulate import Run, as_plain
from tests.benchmarks.search.tasks import Reference, Task
from tuner.files import write_text


@dataclass(frozen=True, slots=True)
class Setting:
    """One world in which searches are compared.

    Attributes:
        full_trainings: The time of each slot, in median full trainings.
        start_epochs: What the start of a stint costs, in median epochs.
    """

    slots: int
    full_trainings: float
    start_epochs: float = 0.2

    def __str__(self) -> str:
        return f"W{self.slots}-B{self.full_trainings:g}-S{self.start_epochs:g}"


@dataclass(frozen=True, slots=True)
class Case:
    """One search: an algorithm with a seed on a task in a setting.

    Attributes:
        algorithm: Its name, with ``@`` and the version of its code behind it.
    """

    setting: Setting
    algorithm: str
    task: str
    seed: int


@dataclass(frozen=True, slots=True)
class Store:
    """The folder of results."""

    folder: Path

    def path(self, case: Case) -> Path:
        """Where the result of a case is, or will be."""
        name = f"{case.task}-{case.seed}.json"
        return self.folder / "runs" / str(case.setting) / case.algorithm / name

    def write(self, case: Case, run: Run) -> None:
        """Keeps a result, whole or not at all."""
        path = self.path(case)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(as_plain(run)) + "\n")

    def read(self, case: Case) -> Run:
        """The result of a case.

        Raises:
            FileNotFoundError: There is none yet.
        """
        plain: dict[str, Any] = json.loads(self.path(case).read_text())
        steps = {key: [tuple(step) for step in plain[key]] for key in ("seen", "handed_over")}
        return Run(**{**plain, **steps})

    def reference(self, task: Task) -> Reference:
        """The scale of a task, worked out at its first use."""
        path = self.folder / "references" / f"{task.name}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(_reference_plain(task.reference())) + "\n")
        return Reference(**json.loads(path.read_text()))

    def optimum(self, task: Task) -> float:
        """The best score that the task is known to hold, worked out at its first use."""
        path = self.folder / "references" / f"{task.name}.optimum.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(climb(task)) + "\n")
        return float(json.loads(path.read_text()))

    def best_seen(self, task: str) -> float:
        """The best score that any search of the folder has seen, in any setting; 0 without."""
        files = self.folder.glob(f"runs/*/*/{task}-*.json")
        ends = (json.loads(file.read_text())["seen"][-1:] for file in files)
        return max((end[0][1] for end in ends if end), default=0.0)


@cache  # of code that stays as it is while this process runs
def versioned(name: str) -> str:
    """The name with the version of the present code, unless it names an older one itself."""
    return name if "@" in name else f"{name}@{find_algorithm(name).code_version()}"


def cases(
    setting: Setting, names: Iterable[str], tasks: Iterable[str], num_seeds: int
) -> Iterator[Case]:
    """The cases of a comparison, seed by seed, so that early figures compare all algorithms.

    Those of costly algorithms come last.
    """
    every = [(versioned(name), find_algorithm(name.partition("@")[0])) for name in names]
    cheap = [(name, num_seeds) for name, each in every if each.max_seeds is None]
    costly = [(name, min(each.max_seeds, num_seeds)) for name, each in every if each.max_seeds]
    tasks = list(tasks)
    for group in (cheap, costly):
        for seed in range(num_seeds):
            for name in (name for name, seeds in group if seed < seeds):
                yield from (Case(setting, name, task, seed) for task in tasks)


def _reference_plain(reference: Reference) -> dict[str, float]:
    return {
        "best": reference.best,
        "median": reference.median,
        "floor": reference.floor,
        "full_s": reference.full_s,
    }
