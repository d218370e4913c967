"""Where the time of a search's slots goes, worked out from what its trials reported.

A job is what one process reports with one `started_at`. A report has `worker_pid`, `started_at` and
`reported_at` (Unix seconds), `setup_s` (from `started_at` to the first training step), `train_s`,
`data_wait_s`, `evaluate_s` and their sum `seconds` (since the report before), `samples_seen`,
`top1`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

SLOTS = 2
LONG_JOB_S = 10
DEFINITIONS = {
    "slot": "a job is in the slot that fell free first, by the last reports of the jobs before",
    "start_s": "from the last report of the job before in the slot, whatever its trial, to the "
    "first training step; the first job of each slot is not counted",
    "share_training_and_evaluating": "training and evaluating seconds over those of all slots, "
    "between the first training step and the start of the last job; waiting for data is neither",
    "share_in_long_jobs": f"the same of the jobs of {LONG_JOB_S} s or more alone: over the seconds "
    "from the last report of the job before in the slot (from the first training step, for the "
    "first job) to their own last report; null where there are none",
    "training_images_per_s": "of one slot: images trained over seconds of training and of waiting "
    "for data",
}

Report: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial's reports, by their `samples_seen`, and whether it was trained at full length."""

    reports: list[Report]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Job:
    """The reports of one job; never empty."""

    reports: list[Report]

    @property
    def started_at(self) -> float:
        return self.reports[0]["started_at"]

    @property
    def first_step_at(self) -> float:
        return self.started_at + self.reports[0]["setup_s"]

    @property
    def ended_at(self) -> float:
        return self.reports[-1]["reported_at"]

    @property
    def seconds(self) -> float:
        return self.ended_at - self.started_at


def read_journal(path: Path) -> list[Trial]:
    """Returns the trials of the search in a `study.journal`, without those that confirm it."""
    storage = JournalStorage(JournalFileBackend(str(path)))
    names = optuna.get_all_study_names(storage)
    (name,) = (each for each in names if not each.endswith(".confirm"))
    return [
        Trial(
            sorted(
                (value for key, value in trial.user_attrs.items() if key.startswith("report:")),
                key=lambda report: report["samples_seen"],
            ),
            trial.state == TrialState.COMPLETE,
        )
        for trial in optuna.load_study(study_name=name, storage=storage).get_trials()
    ]


def read_reports(folder: Path, epochs: int) -> list[Trial]:
    """Returns the trials of a stock search by their start: a file each, a line for each report."""
    files = sorted(folder.glob("*.jsonl"), key=lambda file: float(file.stem.split("-")[0]))
    histories = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    return [Trial(reports, is_complete=len(reports) == epochs) for reports in histories]


def find_jobs(trials: list[Trial]) -> list[Job]:
    """Returns the jobs by their start."""
    found: dict[tuple[float, int], list[Report]] = {}
    for trial in trials:
        for report in trial.reports:
            found.setdefault((report["started_at"], report["worker_pid"]), []).append(report)
    return [Job(reports) for _, reports in sorted(found.items(), key=lambda each: each[0])]


def slot_times(trials: list[Trial]) -> dict[str, Any]:
    """Returns the figures of `DEFINITIONS`, and what they are figures of."""
    jobs = find_jobs(trials)
    slots = by_slot(jobs)
    starts = [
        after.first_step_at - before.ended_at
        for slot in slots
        for before, after in pairwise(slot)
    ]  # fmt: skip
    first_step = min(job.first_step_at for job in jobs)
    last_handed_out = jobs[-1].started_at
    images = sum(trial.reports[-1]["samples_seen"] for trial in trials if trial.reports)
    work_s = {
        key: sum(report[key] for job in jobs for report in job.reports)
        for key in ("train_s", "data_wait_s", "evaluate_s")
    }
    return {
        "trials": len(trials),
        "complete": sum(trial.is_complete for trial in trials),
        "jobs": len(jobs),
        "jobs_of_10_s_or_more": sum(job.seconds >= LONG_JOB_S for job in jobs),
        "median_job_s": round(median(job.seconds for job in jobs), 2),
        "images_trained": images,
        "training_images_per_s": round(images / (work_s["train_s"] + work_s["data_wait_s"]), 1),
        "work_s": {key: round(seconds, 1) for key, seconds in work_s.items()},
        "start_s": {"median": round(median(starts), 3), "max": round(max(starts), 3)},
        "share_training_and_evaluating": round(busy_share(jobs, first_step, last_handed_out), 4),
        "share_in_long_jobs": share_in_long_jobs(slots),
        "window_s": round(last_handed_out - first_step, 1),
    }


def by_slot(jobs: list[Job]) -> list[list[Job]]:
    """Returns the jobs of each slot, in order; a stock search has a new process for each."""
    slots: list[list[Job]] = [[] for _ in range(SLOTS)]
    for job in jobs:
        min(slots, key=lambda slot: slot[-1].ended_at if slot else 0.0).append(job)
    return slots


def busy_share(jobs: list[Job], start: float, end: float) -> float:
    """Training and evaluating seconds between `start` and `end` over all slots' seconds.

    A report's work lies in the `seconds` before it; of one that ends after `end` the part before.
    """
    busy = 0.0
    for job in jobs:
        for report in job.reports:
            began = report["reported_at"] - report["seconds"]
            inside = min(report["reported_at"], end) - max(began, start)
            busy += max(0.0, inside) / report["seconds"] * worked_s(report)
    return busy / (SLOTS * (end - start))


def share_in_long_jobs(slots: list[list[Job]]) -> float | None:
    spans = [
        (job, job.ended_at - since)
        for slot in slots
        for since, job in since_when(slot)
        if job.seconds >= LONG_JOB_S
    ]
    if not spans:
        return None
    worked = sum(worked_s(report) for job, _ in spans for report in job.reports)
    return round(worked / sum(seconds for _, seconds in spans), 4)


def since_when(slot: list[Job]) -> Iterator[tuple[float, Job]]:
    """Yields each job of a slot and when its share of the slot's time began."""
    if slot:
        yield slot[0].first_step_at, slot[0]
    yield from ((before.ended_at, job) for before, job in pairwise(slot))


def worked_s(report: Report) -> float:
    return report["train_s"] + report["evaluate_s"]
