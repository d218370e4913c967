"""How often one more run of a winner falls inside the 90 % interval that its search has stated.

    python tests/benchmarks/intervals.py results/benchmarks/search/intervals.json
    python tests/benchmarks/intervals.py TO space=cifar10 data.root=FOLDER/cifar10-small

Ten small searches, each with its own seeds of proposals and of weights; each winner is trained
again on four fresh seeds. Of the 40 runs 33 or more are wanted inside; as four of them share an
interval, that of two configurations on two seeds, a true 90 % gives fewer one time in nine.
`searches=2` does two; other `key=value` go to the searches. The file is written after every search.
Expect half an hour on two free cores.
"""

import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from tuner.planning.environment import git_commit, processor, versions
from tuner.planning.machine import look
from tuner.reporting.another_seed import ROUNDING
from tuner.settings.text import read_yaml

NUM_SEARCHES = 10
NUM_RUNS = 4
LEAST_SHARE_INSIDE = 33 / 40
SMALL = ("space=imagenet_small", "search.trials=6")
SEEDS_APART = 1000  # between searches: no two of them share a seed
FIRST_FRESH = 100  # behind the search's own seed, and the few that it confirms on


def main() -> None:
    to, asked = Path(sys.argv[1]), dict(each.split("=", 1) for each in (*SMALL, *sys.argv[2:]))
    num_searches = int(asked.pop("searches", NUM_SEARCHES))
    arguments = [f"{key}={value}" for key, value in asked.items()]
    to.parent.mkdir(parents=True, exist_ok=True)
    started, searches = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(num_searches):
            searches.append(search_and_repeat(Path(folder), arguments, number))
            figures = describe(searches, asked, time.monotonic() - started)
            to.write_text(json.dumps(figures, indent=2) + "\n")
            print(json.dumps(searches[-1]), flush=True)
    print(json.dumps({key: figures[key] for key in FOUND}, indent=2))


FOUND = ("num_runs", "num_inside", "is_as_wanted", "median_width")


def search_and_repeat(folder: Path, arguments: Sequence[str], number: int) -> dict[str, Any]:
    """Search, train the winner again on fresh seeds, and return what came out."""
    seed, name = number * SEEDS_APART, f"search-{number}"
    own = (f"search.seed={number}", f"train.seed={seed}", f"name={name}")
    run(folder, "search", *arguments, *own)
    best = read_yaml(folder / "results" / name / "best.yaml")
    seeds = [seed + FIRST_FRESH + each for each in range(NUM_RUNS)]
    # As in the search, so many side by side as the machine has CPUs for.
    num_slots = max(1, int(look().cpus) // best["environment"]["threads"])
    with ThreadPoolExecutor(num_slots) as pool:
        runs = list(pool.map(lambda each: repeat(folder, name, each), seeds))
    low, high = best["confirmed"]["interval"]
    scores = [score for score, _ in runs]
    is_inside = [line.split(", ")[1].startswith("inside") for _, line in runs]
    within = [low - ROUNDING <= score <= high + ROUNDING for score in scores]
    assert is_inside == within, (runs, low, high)
    told = ("mean", "interval", "pooled_spread", "degrees_of_freedom", "shrinkage")
    return {
        "trial_number": best["result"]["trial_number"],
        **{key: best["confirmed"][key] for key in told},
        "width": high - low,
        "seeds": seeds,
        "scores": scores,
        "is_inside": is_inside,
    }


def repeat(folder: Path, name: str, seed: int) -> tuple[float, str]:
    """Train a winner on another seed; return the best score of the run, and what is said of it."""
    output = folder / "retrained" / f"{name}-{seed}"
    arguments = (f"config=results/{name}/best.yaml", f"train.seed={seed}", f"output={output}")
    line = run(folder, "retrain", *arguments)[-1]
    result = json.loads((output / "summary.json").read_text())["result"]
    return result[result["metric"]], line


def run(folder: Path, command: str, *arguments: str) -> list[str]:
    """Run a command in a folder; return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", f"tuner.{command}", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    print(done.stdout, flush=True)
    return done.stdout.splitlines()


def describe(
    searches: Sequence[dict[str, Any]], asked: dict[str, str], seconds: float
) -> dict[str, Any]:
    """Return the figures of the searches so far."""
    is_inside = [each for found in searches for each in found["is_inside"]]
    if "data.root" in asked:
        asked = {**asked, "data.root": f"FOLDER/{Path(asked['data.root']).name}"}
    command = " ".join(f"{key}={value}" for key, value in asked.items())
    return {
        "command": f"python tests/benchmarks/intervals.py TO {command}",
        "machine": {"processor": processor(), "system": platform.platform()},
        "versions": versions(),
        "git_commit": git_commit(),
        "seconds": round(seconds),
        "num_searches": len(searches),
        "num_runs": len(is_inside),
        "num_inside": sum(is_inside),
        "is_as_wanted": sum(is_inside) >= LEAST_SHARE_INSIDE * len(is_inside),
        "median_width": median(found["width"] for found in searches),
        "searches": list(searches),
        "definitions": {
            "is_inside": "the best score of a run of the winner, all as in best.yaml but for "
            "train.seed, lies inside the interval that best.yaml states",
            "width": "of that interval, in units of the metric",
        },
    }


if __name__ == "__main__":
    main()
