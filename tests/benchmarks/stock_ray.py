"""This project's search beside a stock search of Ray Tune, one after the other.

    python tests/benchmarks/stock_ray.py FOLDER results/benchmarks/stock_ray.json

FOLDER holds the unpacked `cifar10-small/`, with `train/` and `val/`. Ours is the command of the
README; stock is `stock_search.py`, with the loader workers that are fastest on this machine. Both
search the same space with the same model and recipe, two trials side by side, each in a process of
its own. The figures come from the times in both sides' reports, by the same code.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from slot_times import (
    DEFINITIONS,
    LONG_JOB_S,
    SLOTS,
    Trial,
    find_jobs,
    read_journal,
    read_reports,
    slot_times,
)

from tuner.planning.environment import git_commit, processor, versions

STOCK = Path(__file__).with_name("stock_search.py")
NUM_WORKERS = (0, 1, 2)
GOAL_START_S = 0.2
GOAL_SHARE = 0.95
GOAL_RATIO = 0.5
MORE_DEFINITIONS = {
    "seconds": "from the start of the command to its end; ours has stages that stock has not",
    "startup_s": "from the start of the command to the first line of the first trial",
    "search_s": "from there to the last report of the search",
    "after_s": "from there to the end of the command; ours hands the winner over",
    "stock_seconds_for_our_images": "search_s of stock / images_trained of stock, times ours",
    "ratio": "search_s of ours over stock_seconds_for_our_images: the product of ratio_training, "
    "as training_images_per_s gives it, and of ratio_rest: starts, evaluations, idle slots",
    "seconds_to_same_top1": "of the search, until a report has the lower of both best_top1",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("to", type=Path)
    parser.add_argument("trials", type=int, nargs="?", default=24)
    parser.add_argument("epochs", type=int, nargs="?", default=9)
    asked = parser.parse_args()
    images = asked.folder.absolute() / "cifar10-small"
    speeds = {workers: stock_speed(images, workers) for workers in NUM_WORKERS}
    num_workers = max(speeds, key=lambda workers: speeds[workers])
    print(f"stock, images/s a slot by loader workers: {speeds}", flush=True)
    ours, our_trials = search_ours(images, asked.trials, asked.epochs)
    stock, stock_trials = search_stock(images, asked.trials, asked.epochs, num_workers)
    compared = compare(ours, stock, our_trials, stock_trials)
    figures = {
        "command": f"python tests/benchmarks/stock_ray.py FOLDER {asked.to}",
        "machine": {"processor": processor(), "system": platform.platform(), "slots": SLOTS},
        "versions": versions(),
        "git_commit": git_commit(),
        "trials": asked.trials,
        "epochs": asked.epochs,
        "stock_loader": {
            "num_workers": num_workers,
            "images_per_s_by_num_workers": speeds,
            "measured": "two trials of an epoch, side by side; images / (train + wait + evaluate)",
        },
        "ours": ours,
        "stock": stock,
        "compared": compared,
        "goals": goals(ours, compared),
        "definitions": DEFINITIONS | MORE_DEFINITIONS,
    }
    asked.to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps({"compared": compared, "goals": figures["goals"]}, indent=2), flush=True)


def stock_speed(images: Path, num_workers: int) -> float:
    """Returns the images/s of a slot over an epoch and its evaluation, two slots at work."""
    _, trials = search_stock(images, SLOTS, 1, num_workers)
    reports = [trial.reports[-1] for trial in trials]
    seen = sum(report["samples_seen"] for report in reports)
    return round(seen / sum(report["seconds"] for report in reports), 1)


def search_ours(images: Path, num_trials: int, epochs: int) -> tuple[dict[str, Any], list[Trial]]:
    settings = [
        "space=cifar10",
        "data.source=folder",
        "data.root=FOLDER/cifar10-small",
        f"search.trials={num_trials}",
        f"search.max_concurrent={SLOTS}",
        f"train.epochs={epochs}",
    ]
    own = [each.replace("FOLDER", str(images.parent)) for each in settings]
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "tuner.search", *own, "name=it", f"output={output}"]
        began, ended = run("ours", command)
        trials = read_journal(Path(output) / "it" / "study.journal")
    shown = " ".join(["python -m tuner.search", *settings])
    return {"command": shown, **side(trials, began, ended)}, trials


def search_stock(
    images: Path, num_trials: int, epochs: int, num_workers: int
) -> tuple[dict[str, Any], list[Trial]]:
    counts = [f"trials={num_trials}", f"epochs={epochs}", f"num_workers={num_workers}"]
    with tempfile.TemporaryDirectory() as output:
        name = f"stock, {num_workers} loader workers"
        folders = [f"images={images}", f"output={output}"]
        began, ended = run(name, [sys.executable, str(STOCK), *folders, *counts])
        trials = read_reports(Path(output) / "reports", epochs)
    command = ["python tests/benchmarks/stock_search.py images=FOLDER/cifar10-small output=OUTPUT"]
    shown = " ".join([*command, *counts])
    return {"command": shown, **side(trials, began, ended)}, trials


def run(name: str, command: list[str]) -> tuple[float, float]:
    """Runs a command to its end; returns when it began and ended, in Unix seconds."""
    began = time.time()
    print(f"{name}: started", flush=True)
    subprocess.run(command, env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}, check=True)
    ended = time.time()
    print(f"{name}: {ended - began:.1f} s", flush=True)
    return began, ended


def side(trials: list[Trial], began: float, ended: float) -> dict[str, Any]:
    """Returns the figures of one side; of the slots only where trials followed one another."""
    jobs = find_jobs(trials)
    first, last = jobs[0].started_at, max(job.ended_at for job in jobs)
    return {
        "seconds": round(ended - began, 1),
        "startup_s": round(first - began, 1),
        "search_s": round(last - first, 1),
        "after_s": round(ended - last, 1),
        "best_top1": best_top1(trials),
        **(slot_times(trials) if len(jobs) > SLOTS else {}),
    }


def best_top1(trials: list[Trial]) -> float:
    reports = (report for trial in trials for report in trial.reports)
    return max(report["top1"] for report in reports if report["top1"] is not None)


def compare(
    ours: dict[str, Any],
    stock: dict[str, Any],
    our_trials: list[Trial],
    stock_trials: list[Trial],
) -> dict[str, Any]:
    same = stock["search_s"] / stock["images_trained"] * ours["images_trained"]
    ratio = ours["search_s"] / same
    ratio_training = stock["training_images_per_s"] / ours["training_images_per_s"]
    top1 = min(ours["best_top1"], stock["best_top1"])
    return {
        "stock_seconds_for_our_images": round(same, 1),
        "ratio": round(ratio, 3),
        "ratio_training": round(ratio_training, 3),
        "ratio_rest": round(ratio / ratio_training, 3),
        "seconds_to_same_top1": {
            "top1": top1,
            "ours": seconds_to(top1, our_trials),
            "stock": seconds_to(top1, stock_trials),
        },
    }


def seconds_to(top1: float, trials: list[Trial]) -> float:
    reports = [report for trial in trials for report in trial.reports]
    reached = min(each["reported_at"] for each in reports if (each["top1"] or 0) >= top1)
    return round(reached - min(each["started_at"] for each in reports), 1)


def goals(ours: dict[str, Any], compared: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns each goal and whether it is met; None where there was nothing to measure it on."""
    start_s, share = ours["start_s"]["median"], ours["share_in_long_jobs"]
    return [
        {
            "what": "ours: seconds of a start in a slot, the median",
            "goal": f"{GOAL_START_S} or less",
            "measured": start_s,
            "met": start_s <= GOAL_START_S,
        },
        {
            "what": "ours: share of slot time spent training and evaluating, "
            f"jobs of {LONG_JOB_S} s or more",
            "goal": f"{GOAL_SHARE} or more",
            "measured": share,
            "met": None if share is None else share >= GOAL_SHARE,
        },
        {
            "what": "ours: seconds for the same number of images, over stock's",
            "goal": f"{GOAL_RATIO} or less",
            "measured": compared["ratio"],
            "met": compared["ratio"] <= GOAL_RATIO,
        },
    ]


if __name__ == "__main__":
    main()
