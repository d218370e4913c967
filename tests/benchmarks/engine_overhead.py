"""What a trial costs beside its training: no work at all, through Ray Tune, Jobs and the record.

    python tests/benchmarks/engine_overhead.py results/benchmarks/engine_overhead.json

A trial reports at each rung, at once, a score that follows from its settings. The first and the
last process start, Ray's start and its end are told apart from the trials between them.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

from tuner.planning.environment import git_commit, processor, versions
from tuner.planning.machine import look
from tuner.planning.resources import Plan
from tuner.raytune.engine import ray_session, run_jobs
from tuner.search_logic.jobs import Decision, Job, Jobs, NoJob
from tuner.search_logic.rungs import rung_lengths
from tuner.settings.space import FloatSpec
from tuner.study.record import Record

SPACE = {
    "optim.lr": FloatSpec(1e-3, 1.0, log=True),
    "optim.weight_decay": FloatSpec(1e-5, 1e-2, log=True),
}
RUNGS = rung_lengths(1000, 9000, 3)
PLAN = Plan(slots=2, cpus_per_trial=1, gpus_per_trial=0, num_gpus=0, threads=1)


def no_work(
    job: Mapping[str, Any], context: Mapping[str, Any]
) -> Generator[Mapping[str, Any], None, None]:
    """Report each rung that the job has still to reach."""
    for samples_seen in (length for length in RUNGS if length > job["start_samples"]):
        distance = math.log10(job["settings"]["optim.lr"]) + 1
        yield {"samples_seen": samples_seen, "top1": math.exp(-distance * distance)}


class TimedJobs:
    """Jobs, with the moment of every report."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self.moments: list[float] = []

    def next_job(self) -> Job | NoJob:
        return self._jobs.next_job()

    def report(self, job: Job, result: Mapping[str, Any]) -> Decision:
        self.moments.append(time.monotonic())
        return self._jobs.report(job, result)

    def fail(self, job: Job, reason: str, message: str = "") -> None:
        raise AssertionError(message)

    def lost(self, jobs: Iterable[Job]) -> None:
        raise AssertionError("Ray was lost")


def measure(trials: int, folder: Path) -> dict[str, Any]:
    record = Record.open(
        folder,
        name="overhead",
        metric="top1",
        direction="maximize",
        parameters=SPACE,
        data_fingerprint="",
        settings_plain={},
    )
    jobs = TimedJobs(
        Jobs(
            record,
            SPACE,
            trials=trials,
            sampler="random",
            scheduler="asha",
            rungs=RUNGS,
            reduction_factor=3,
            max_failures=0,
            seed=0,
        )
    )
    started = time.monotonic()
    with ray_session(look(), folder) as session:
        run_jobs(session, PLAN, jobs, no_work, {}, max_restarts=0)
    seconds = time.monotonic() - started
    between_s = jobs.moments[-1] - jobs.moments[0]
    return {
        "trials": len(record.trials),
        "slots": PLAN.slots,
        "reports": len(jobs.moments),
        "s_per_trial": round(between_s / trials, 4),
        "s_per_trial_with_starts_and_ends": round(seconds / trials, 4),
        "slot_s_per_trial": round(PLAN.slots * between_s / trials, 4),
        "until_first_report_s": round(jobs.moments[0] - started, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("to", type=Path, help="the JSON file to write")
    parser.add_argument("--trials", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.to.parent) as folder:
        figures = {
            "command": f"python tests/benchmarks/engine_overhead.py {asked.to}",
            **measure(asked.trials, Path(folder)),
            "processor": processor(),
            "versions": versions(),
            "git_commit": git_commit(),
        }
    asked.to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
