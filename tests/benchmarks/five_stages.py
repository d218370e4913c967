"""The default search as the README gives it, and whether its winner is worth the search.

    python tests/benchmarks/five_stages.py results/benchmarks/five_stages.json

Beside it: the space's defaults on the same fresh seeds, and eight random configurations, all at
full length.
"""

import csv
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median

from tuner.planning.environment import git_commit, processor, versions

SPACE = "space=imagenet_small"
NUM_RANDOM = 8
RANDOM = (
    f"search.trials={NUM_RANDOM}",
    *("search.sampler=random", "search.scheduler=none", "search.confirm_top=0", "search.seed=1"),
)


def main() -> None:
    to = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        seconds, lines = run(folder, "search", SPACE)
        print("\n".join(lines), flush=True)
        summary = json.loads((results / "imagenet_small" / "summary.json").read_text())
        seeds = summary["confirmed"]["seeds"]
        defaults = [retrained(folder, seed) for seed in seeds]
        print(f"defaults on the same seeds: {defaults}", flush=True)
        run(folder, "search", SPACE, "name=random", *RANDOM)
        with (results / "random" / "leaderboard.csv").open(newline="") as file:
            random_top1 = [float(row["top1"] or 0) for row in csv.DictReader(file)]
    winner = summary["confirmed"]["mean"]
    figures = {
        "command": f"python tests/benchmarks/five_stages.py {to}",
        "machine": {"processor": processor(), "system": platform.platform()},
        "versions": versions(),
        "git_commit": git_commit(),
        "search": {
            "command": f"python -m tuner.search {SPACE}",
            "seconds_with_start": round(seconds, 1),
            **summary,
        },
        "defaults_top1": {"seeds": seeds, "scores": defaults, "mean": fmean(defaults)},
        "random_top1": {"scores": sorted(random_top1), "median": median(random_top1)},
        "winner_above_defaults": winner > fmean(defaults),
        "winner_above_median_of_random": winner > median(random_top1),
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


def retrained(folder: str, seed: int) -> float:
    """Train the space's defaults on a seed and return the best top-1 of the run."""
    output = f"results/defaults-{seed}"
    run(folder, "retrain", SPACE, f"train.seed={seed}", f"output={output}")
    summary = json.loads((Path(folder) / output / "summary.json").read_text())
    return float(summary["result"]["top1"])


def run(folder: str, command: str, *arguments: str) -> tuple[float, list[str]]:
    """Run a command in a folder; return its seconds and what it printed."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", f"tuner.{command}", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return time.monotonic() - started, done.stdout.splitlines()


if __name__ == "__main__":
    main()
