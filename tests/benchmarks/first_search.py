"""Searches over real images, and what each winner gives when it is trained again.

    python tests/benchmarks/first_search.py FOLDER results/benchmarks/first_search.json

FOLDER holds the unpacked `cifar10-small/` and `imagenette-small/`, each with `train/` and `val/`.
Slot times come from the reports in the journals: a job is what one process reports with one
`started_at`; the gap to the job after it in the same process is what a start costs.
"""

import json
import platform
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tuner.planning.environment import git_commit, processor, versions

SLOTS = 2
LONG_JOB_S = 10
FILES = (
    "best.yaml",
    "best/model.safetensors",
    "best/classes.json",
    "best/preprocess.json",
    "best/best.yaml",
    "leaderboard.csv",
    "config.yaml",
    "dataset.json",
    "study.journal",
)
RUNS = {
    "cifar10-small": ["space=cifar10"],
    "imagenette-small": ["space=imagenet_small", "data.source=folder"],
}


def main() -> None:
    folder, to = Path(sys.argv[1]).absolute(), Path(sys.argv[2])
    figures = {
        "command": "python tests/benchmarks/first_search.py FOLDER " + str(to),
        "machine": {"processor": processor(), "system": platform.platform(), "slots": SLOTS},
        "versions": versions(),
        "git_commit": git_commit(),
        "searches": {
            name: measure(folder / name, [*arguments, f"data.root=FOLDER/{name}"])
            for name, arguments in RUNS.items()
        },
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")


def measure(images: Path, arguments: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as output:
        settings = [*arguments, "search.trials=12", f"search.max_concurrent={SLOTS}"]
        own = [each.replace("FOLDER", str(images.parent)) for each in settings]
        started = time.time()
        run("tuner.search", *own, "name=it", f"output={output}")
        seconds = time.time() - started
        search = Path(output) / "it"
        missing = [name for name in FILES if not (search / name).is_file()]
        assert not missing, missing
        retrained = run("tuner.retrain", f"config={search / 'best.yaml'}").splitlines()[-1]
        best = json.loads((search / "retrain" / "summary.json").read_text())["result"]
        return {
            "command": shown_command(settings),
            "seconds": round(seconds, 1),
            **read_journal(search / "study.journal"),
            "best_top1": best["top1"],
            "retrain": retrained,
        }


def shown_command(settings: list[str]) -> str:
    return " ".join(["python -m tuner.search", *settings])


def run(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    print(done.stdout, flush=True)
    return done.stdout


def read_journal(path: Path) -> dict[str, object]:
    """The slot times of a search: jobs, and the share of it spent in training and evaluating."""
    study = optuna.load_study(
        study_name=None, storage=JournalStorage(JournalFileBackend(str(path)))
    )
    trials = study.get_trials()
    reports = [
        value
        for trial in trials
        for key, value in trial.user_attrs.items()
        if key.startswith("report:")
    ]
    jobs: dict[tuple[int, float], list[dict[str, float]]] = {}
    for report in reports:
        jobs.setdefault((report["worker_pid"], report["started_at"]), []).append(report)
    spans = sorted(
        (pid, started, max(each["reported_at"] for each in done))
        for (pid, started), done in jobs.items()
    )
    starts = [
        after[1] - before[2] + jobs[after[:2]][0]["setup_s"]
        for before, after in pairwise(spans)
        if before[0] == after[0]
    ]
    first_step = min(started + done[0]["setup_s"] for (_, started), done in jobs.items())
    last_handed_out = max(started for _, started in jobs)
    return {
        "trials": len(trials),
        "complete": sum(trial.state.name == "COMPLETE" for trial in trials),
        "jobs": len(jobs),
        "jobs_of_10_s_or_more": sum(end - start >= LONG_JOB_S for _, start, end in spans),
        "median_job_s": round(median(end - start for _, start, end in spans), 2),
        "images_trained": sum(max(r["samples_seen"] for r in done) for done in by_trial(trials)),
        "start_in_reused_actor_s": {
            "median": round(median(starts), 3),
            "max": round(max(starts), 3),
        },
        "share_training_and_evaluating": round(busy_share(jobs, first_step, last_handed_out), 4),
        "window_s": round(last_handed_out - first_step, 1),
    }


def by_trial(trials: list[optuna.trial.FrozenTrial]) -> list[list[dict[str, float]]]:
    found = [
        [value for key, value in trial.user_attrs.items() if key.startswith("report:")]
        for trial in trials
    ]
    return [reports for reports in found if reports]


def busy_share(
    jobs: dict[tuple[int, float], list[dict[str, float]]], start: float, end: float
) -> float:
    """Training and evaluating seconds between `start` and `end` over all slots' seconds.

    A report's work lies in the `seconds` before it; of one that ends after `end` the part before.
    """
    busy = 0.0
    for done in jobs.values():
        for report in done:
            began = report["reported_at"] - report["seconds"]
            inside = min(report["reported_at"], end) - max(began, start)
            worked = report["train_s"] + report["evaluate_s"]
            busy += max(0.0, inside) / report["seconds"] * worked
    return busy / (SLOTS * (end - start))


if __name__ == "__main__":
    main()
