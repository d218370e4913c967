"""A search whose driver is killed with SIGKILL ten times, beside one that was not.

    python tests/benchmarks/search_kills.py results/benchmarks/search_kills.json

The moments are random within each of the five stages. One slot and a fixed seed; the measure stage
runs, but has one setting to choose from, so that both searches train with the same.
"""

import csv
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tuner.planning.environment import git_commit, processor, versions
from tuner.settings.text import read_yaml

ARGUMENTS = (
    "space=imagenet_small",
    "search.trials=10",
    "search.max_concurrent=1",
    "resources.cpus_per_trial=1",
    "throughput.loader.num_workers=[0]",
    "throughput.train.accumulate_steps=[1]",
)
# The stage to kill in, the line that the stage before ends with, and how long it may last then.
KILLS = (
    ("prepare", "time", 8.0),
    ("measure", "prepare", 8.0),
    ("prepare", "time", 2.0),
    ("measure", "prepare", 8.0),
    ("search", "measure", 15.0),
    ("search", "measure", 25.0),
    ("search", "measure", 25.0),
    ("confirm", "search ", 15.0),
    ("confirm", "search ", 20.0),
    ("hand over", "confirm ", 0.05),
)
TIMES = ("seconds", "images_per_s")


def main() -> None:
    to = Path(sys.argv[1])
    moments = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        whole, torn = Path(folder) / "whole", Path(folder) / "torn"
        for each in (whole, torn):
            each.mkdir()
        assert start(whole).wait() == 0
        print("the whole search is done", flush=True)
        kills = [kill(torn, *each, moments) for each in KILLS]
        assert start(torn).wait() == 0
        found = {name: outcome(path) for name, path in (("whole", whole), ("torn", torn))}
    same = {part: found["whole"][part] == found["torn"][part] for part in found["whole"]}
    figures = {
        "command": f"python tests/benchmarks/search_kills.py {to}",
        "arguments": ARGUMENTS,
        "kills": kills,
        "same": same,
        "winner": found["whole"]["winner"],
        "processor": processor(),
        "versions": versions(),
        "git_commit": git_commit(),
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(same, indent=2))


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "tuner.search", *ARGUMENTS],
        cwd=folder,
        stdout=(folder / "told.txt").open("w"),
        text=True,
    )


def kill(
    folder: Path, stage: str, begins_after: str, longest_s: float, moments: random.Random
) -> dict[str, Any]:
    """Start the search, kill it within a stage, and say where it was."""
    process = start(folder)
    while not any(line.startswith(begins_after) for line in stage_lines(folder)):
        assert process.poll() is None, f"it ended before {stage}"
        time.sleep(0.005)
    delay_s = moments.uniform(0, longest_s)
    time.sleep(delay_s)
    was_over = process.poll() is not None
    process.kill()
    process.wait()
    lines = stage_lines(folder)
    print(f"killed {delay_s:.2f} s into {stage}: {lines[-1]}", flush=True)
    return {
        "stage": stage,
        "delay_s": round(delay_s, 3),
        "was_over": was_over,
        "last_line": lines[-1],
    }


def stage_lines(folder: Path) -> list[str]:
    """Return what was printed, without the lines on a running stage's progress."""
    lines = (folder / "told.txt").read_text().splitlines()
    return [line for line in lines if " images, " not in line and "best so far" not in line]


def outcome(folder: Path) -> dict[str, Any]:
    """Return all that must be the same: tables without times, the winner and its weights."""
    run = folder / "results" / "imagenet_small"
    best = read_yaml(run / "best.yaml")
    weights = (run / "best" / "model.safetensors").read_bytes()
    return {
        "leaderboard": rows(run / "leaderboard.csv"),
        "confirm_table": rows(run / "confirm.csv"),
        "winner": {"result": best["result"], "confirmed": best["confirmed"]},
        "settings": best["settings"],
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [{key: row[key] for key in row if key not in TIMES} for row in csv.DictReader(file)]


if __name__ == "__main__":
    main()
