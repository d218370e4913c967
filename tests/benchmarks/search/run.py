"""Search algorithms on recorded learning curves: this program's own beside its peers.

    python -m tests.benchmarks.search.run development results/benchmarks/search/development.json
    python -m tests.benchmarks.search.run finalists results/benchmarks/search/finalists.json \\
        --algorithms tuner-auto,ray,optuna-tpe,one-epoch-top25

Run from the root of the repository with ``pip install -e '.[benchmarks]'``; README.md here tells
what is measured. Results of single searches stay in the store, and a rerun does what is missing.
"""

import argparse
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.benchmarks.search import deepobs, lcbench
from tests.benchmarks.search.algorithms import EVERY, find_algorithm, peer_versions
from tests.benchmarks.search.figures import DEFINITIONS, compare
from tests.benchmarks.search.goals import SHOWN, goals
from tests.benchmarks.search.play import open_task, play_all
from tests.benchmarks.search.results import Case, Setting, Store, cases, versioned
from tests.benchmarks.search.table import markdown
from tests.benchmarks.search.tasks import Reference
from tuner.files import write_json, write_text
from tuner.planning.environment import git_commit, processor, versions

UNKNOWN_TASK = "#na#"  # the surrogate's code for a task that it does not know


@dataclass(frozen=True, slots=True)
class Block:
    """One comparison: tasks and a setting."""

    title: str
    tasks: Sequence[str]
    setting: Setting


def main() -> None:
    asked = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the workers would stay
    store, blocks = Store(asked.store), list(plan_blocks(asked))
    names = [name for name in asked.algorithms if is_there(name)]
    every = [
        case for block in blocks for case in cases(block.setting, names, block.tasks, asked.seeds)
    ]
    missing = [case for case in every if is_playable(case) and not store.path(case).exists()]
    print(f"{len(every)} searches, {len(every) - len(missing)} of them there", flush=True)
    try:
        failed = play_all(missing, asked.data, store, asked.processes) if missing else []
    except KeyboardInterrupt:
        sys.exit(130)
    write_figures(asked, store, blocks, names)
    sys.exit(1 if failed else 0)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["development", "finalists"])
    parser.add_argument("to", type=Path, help="the JSON file to write, and its table beside it")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/hpo"))
    parser.add_argument("--store", type=Path, default=Path("results/search-runs"))
    parser.add_argument("--algorithms", type=listed, default=EVERY, help="NAME or NAME@VERSION, …")
    parser.add_argument(
        "--tasks",
        type=listed,
        help="default: the development tasks and DeepOBS; "
        "others: those of LCBench that nothing was developed on",
    )
    parser.add_argument("--seeds", type=int, help="default: 5; of finalists 20")
    parser.add_argument("--slots", type=listed, help="default: 4; of finalists 1,4,8")
    parser.add_argument("--full-trainings", type=listed, help="default: 12; of finalists 3,12")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    if not (asked.data / "lcbench").is_dir():
        parser.error(f"--data: no lcbench/ there ({asked.data})")
    if find_spec("onnxruntime") is None:
        parser.error("onnxruntime is not installed; pip install -e '.[benchmarks]'")
    try:
        for name in asked.algorithms:
            find_algorithm(name.partition("@")[0])
    except ValueError as error:
        parser.error(str(error))
    asked.seeds = asked.seeds or (5 if asked.what == "development" else 20)
    return asked


def other_tasks(data: Path) -> list[str]:
    """The tasks of LCBench that nothing was developed on."""
    names = lcbench.list_tasks(data / "lcbench")
    return [name for name in names if name not in (*lcbench.DEVELOPMENT, UNKNOWN_TASK)]


def listed(text: str) -> list[str]:
    return text.split(",")


def plan_blocks(asked: argparse.Namespace) -> Iterable[Block]:
    """The comparisons asked for; DeepOBS, of two parameters, has a quarter of the time."""
    is_short = asked.what == "development"
    slots = asked.slots or (["4"] if is_short else ["1", "4", "8"])
    lengths = asked.full_trainings or (["12"] if is_short else ["3", "12"])
    for num_slots in map(int, slots):
        for length in map(float, lengths):
            tasks = asked.tasks or lcbench.DEVELOPMENT
            tasks = other_tasks(asked.data) if tasks == ["others"] else tasks
            yield Block("LCBench", tasks, Setting(num_slots, length))
        if not asked.tasks:
            yield Block("DeepOBS", deepobs.TASKS, Setting(num_slots, 3))


def is_there(name: str) -> bool:
    """Whether the algorithm's packages are installed; says so where they are not."""
    package = find_algorithm(name.partition("@")[0]).missing()
    if package is not None:
        print(f"{name}: left out, {package} is not installed; pip install -e '.[benchmarks]'")
    return package is None


def is_playable(case: Case) -> bool:
    """Whether the present code is the version that the case asks for."""
    return case.algorithm == versioned(case.algorithm.partition("@")[0])


def write_figures(
    asked: argparse.Namespace, store: Store, blocks: Sequence[Block], names: Sequence[str]
) -> None:
    figures, pages = [], []
    for block in blocks:
        references = {task: open_reference(task, asked.data, store) for task in block.tasks}
        algorithms = compare(store, block.setting, names, references, asked.seeds)
        figures.append(
            {
                "tasks": block.title,
                "setting": asdict(block.setting),
                "references": {task: asdict(each) for task, each in references.items()},
                "algorithms": algorithms,
            }
        )
        pages.append(page(block, algorithms, names))
    asked.to.parent.mkdir(parents=True, exist_ok=True)
    reached = {"goals": goals(figures), "comparisons": figures, "definitions": DEFINITIONS}
    write_json(asked.to, {**provenance(asked), **reached})
    write_text(asked.to.with_suffix(".md"), "\n\n".join(pages) + "\n")
    print("\n\n".join(pages))
    for goal in reached["goals"]:
        print("met   " if goal["met"] else "missed", *(goal[key] for key in SHOWN), sep=" | ")


def open_reference(name: str, data: Path, store: Store) -> Reference:
    """The scale of a task; its best is the best known, of any search in the store, too."""
    task = open_task(name, data)
    reference = store.reference(task)
    best = max(reference.best, store.optimum(task), store.best_seen(name))
    return Reference(**{**asdict(reference), "best": best})


def page(block: Block, algorithms: dict[str, Any], names: Sequence[str]) -> str:
    setting = block.setting
    title = (
        f"{block.title}: {len(block.tasks)} tasks, {setting.slots} slots, "
        f"{setting.full_trainings:g} full trainings of time a slot"
    )
    lines = [title, "", markdown(algorithms)] if algorithms else [title]
    if without := [name for name in names if name not in algorithms]:
        lines += ["", f"No complete seed yet: {', '.join(without)}"]
    return "\n".join(lines)


def provenance(asked: argparse.Namespace) -> dict[str, Any]:
    given = {
        "--algorithms": asked.algorithms if asked.algorithms != EVERY else None,
        "--seeds": [str(asked.seeds)],
        "--tasks": asked.tasks,
        "--slots": asked.slots,
        "--full-trainings": asked.full_trainings,
    }
    changed = "".join(f" {key} {','.join(value)}" for key, value in given.items() if value)
    return {
        "command": f"python -m tests.benchmarks.search.run {asked.what} {asked.to}{changed}",
        "machine": {"processor": processor()},
        "versions": {**versions(), **peer_versions()},
        "git_commit": git_commit(),
    }


if __name__ == "__main__":
    main()
