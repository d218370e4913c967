"""100,000 images: what preparing them takes of memory and time, first and again.

    python tests/benchmarks/many_files.py results/benchmarks/many_files.json

Memory is what the parent's peak grows by beyond what it had once everything was imported.
"""

import json
import multiprocessing
import resource
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tuner.data.loader import Loader
from tuner.data.prepare import PreparedData, load_prepared, prepare_dataset
from tuner.planning.environment import git_commit, processor, versions

NUM_IMAGES = 100_000
NUM_CLASSES = 100
GOAL_MB = 200


def main() -> None:
    to = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "images"
        render(root)
        parts = {
            name: in_own_process(part, root, Path(folder) / "dataset.json")
            for name, part in (("first", prepare), ("again", prepare), ("trial", open_as_trial))
        }
    figures = {
        "command": f"python tests/benchmarks/many_files.py {to}",
        "processor": processor(),
        "versions": versions(),
        "git_commit": git_commit(),
        "images": NUM_IMAGES,
        "goal_mb": GOAL_MB,
        **parts,
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(parts, indent=2))


def render(root: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(NUM_IMAGES):
        folder = root / f"class {number % NUM_CLASSES:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (16, 16, 3), np.uint8)
        cv2.imwrite(str(folder / f"photo of something {number:06d}.jpg"), pixels)


def prepare(root: Path, record: Path) -> None:
    prepare_dataset(
        root,
        validation_fraction=0.2,
        split_seed=0,
        limit=None,
        decoder="cv2",
        on_bad_image="fail",
        report_path=record,
        num_processes=2,
        progress=lambda done, total: None,
    )


def open_as_trial(root: Path, record: Path) -> None:
    """What a trial's process holds: the index, and two workers that read an epoch's quarter."""
    data: PreparedData = load_prepared(record, root)
    indexes = {"train": data.train, "validation": data.validation}
    options = {"stored_px": 16, "decoder": "cv2", "num_workers": 2, "prefetch_factor": 2}
    wanted = np.random.default_rng(0).permutation(len(data.train))[: len(data.train) // 4]
    with Loader(indexes, **options) as loader:
        with closing(loader.batches("train", np.array_split(wanted, 100))) as batches:
            for _ in batches:
                pass
        workers = [worker_mb(child) for child in children()]
    print("a worker's own memory in MB:", workers)


def children() -> list[str]:
    return Path("/proc/thread-self/children").read_text().split()


def worker_mb(pid: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) // 1000


def in_own_process(part: Any, *arguments: Any) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=watched, args=(theirs, part, arguments))
    process.start()
    told: dict[str, float] = ours.recv()
    process.join()
    return told


def watched(connection: Any, part: Any, arguments: Any) -> None:
    before, started = peak_mb(), time.perf_counter()
    part(*arguments)
    seconds = time.perf_counter() - started
    connection.send({"peak_grew_by_mb": round(peak_mb() - before), "seconds": round(seconds, 1)})


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()
