"""What a search costs beside its training: trials without work through Jobs and the record.

    python tests/benchmarks/jobs_overhead.py results/benchmarks/jobs_overhead.json --trials 10000

Every trial reports at each rung a score that follows from its settings. The journal lies beside
the result, so that its fsyncs are those of a disk. Memory is what the process grew by.
"""

import argparse
import json
import math
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

from tuner.search_logic.jobs import STOP, Job, Jobs
from tuner.search_logic.rungs import rung_lengths
from tuner.settings.space import ChoiceSpec, FloatSpec
from tuner.study.record import Record

SPACE = {
    "optim.lr": FloatSpec(1e-3, 1.0, log=True),
    "train.batch_size": ChoiceSpec((32, 64, 128, 256)),
    "optim.weight_decay": FloatSpec(1e-5, 1e-2, log=True),
    "train.label_smoothing": FloatSpec(0.0, 0.2),
}


def score(job: Job, samples_seen: int) -> float:
    distance = math.log10(job.settings["optim.lr"]) + 1
    return math.exp(-distance * distance) * (1 - math.exp(-samples_seen / 3000))


def memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def play(jobs: Jobs, rungs: tuple[int, ...]) -> list[float]:
    """The moments at which new trials began, and the end."""
    begun = []
    while isinstance(job := jobs.next_job(), Job):
        if job.start_samples == 0:
            begun.append(time.perf_counter())
        for samples_seen in (length for length in rungs if length > job.start_samples):
            result = {"samples_seen": samples_seen, "top1": score(job, samples_seen)}
            if jobs.report(job, result) is STOP:
                break
    return [*begun, time.perf_counter()]


def measure(trials: int, sampler: str, folder: Path) -> dict[str, Any]:
    rungs = rung_lengths(1000, 9000, 3)
    before_bytes = memory_bytes()
    record = Record.open(
        folder,
        name="overhead",
        metric="top1",
        direction="maximize",
        parameters=SPACE,
        data_fingerprint="",
        settings_plain={},
    )
    jobs = Jobs(
        record,
        SPACE,
        trials=trials,
        sampler=sampler,
        scheduler="asha",
        rungs=rungs,
        reduction_factor=3,
        max_failures=2,
        seed=0,
    )
    moments = play(jobs, rungs)
    grown_bytes = memory_bytes() - before_bytes
    tenth = trials // 10
    first_s, last_s = moments[tenth] - moments[0], moments[-2] - moments[-2 - tenth]
    return {
        "trials": trials,
        "sampler": sampler,
        "reports": sum(len(trial.reports) for trial in record.trials),
        "ms_per_trial": round(1000 * (moments[-1] - moments[0]) / trials, 3),
        "ms_per_trial_first_tenth": round(1000 * first_s / tenth, 3),
        "ms_per_trial_last_tenth": round(1000 * last_s / tenth, 3),
        "last_tenth_to_first": round(last_s / first_s, 3),
        "memory_grown_mb": round(grown_bytes / 1e6, 1),
        "journal_mb": round((folder / "study.journal").stat().st_size / 1e6, 1),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("to", type=Path, help="the JSON file to write")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--sampler", default="random", choices=["random", "qmc", "tpe"])
    arguments = parser.parse_args()
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.to.parent) as folder:
        figures = measure(arguments.trials, arguments.sampler, Path(folder))
    arguments.to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
