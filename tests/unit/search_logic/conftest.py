"""A search on disk that can be killed at any moment, and what always has to hold of it."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.search_logic.jobs import END, GO, STOP, Decision, Job, Jobs, Scheduler
from tuner.search_logic.sampling import Sampler
from tuner.settings.space import ChoiceSpec, FloatSpec, ParameterSpec
from tuner.study.record import JOURNAL_NAME, Record, TrialRecord

SPACE: Mapping[str, ParameterSpec] = {
    "optim.lr": FloatSpec(1e-3, 1.0, log=True),
    "train.batch_size": ChoiceSpec((32, 64)),
}
RUNGS = (1000, 3000, 9000)


class Search:
    """One search on disk, that can be killed and started again at any moment."""

    def __init__(
        self,
        folder: Path,
        *,
        trials: int = 9,
        sampler: Sampler = "random",
        scheduler: Scheduler = "asha",
        rungs: Sequence[int] = RUNGS,
        max_failures: int = 1,
        specs: Mapping[str, ParameterSpec] = SPACE,
        direction: str = "maximize",
        points: Sequence[Mapping[str, Any]] = (),
        patience: int | None = None,
        seconds_per_image: float | None = None,
        chance: float = -math.inf,
    ) -> None:
        self.folder = folder
        self._record_settings: dict[str, Any] = {"parameters": specs, "direction": direction}
        self._settings: dict[str, Any] = {
            "points": points,
            "trials": trials,
            "sampler": sampler,
            "scheduler": scheduler,
            "rungs": rungs,
            "reduction_factor": 3,
            "max_failures": max_failures,
            "seed": 5,
            "patience": patience,
            "seconds_per_image": seconds_per_image,
            "chance": chance,
        }
        self.start()

    def start(self, **changes: Any) -> None:
        self._settings |= changes
        self.folder.mkdir(parents=True, exist_ok=True)
        self.record = Record.open(
            self.folder,
            name="s",
            metric="top1",
            data_fingerprint="",
            settings_plain={},
            **self._record_settings,
        )
        self.jobs = Jobs(self.record, self._record_settings["parameters"], **self._settings)

    def restart(self, **changes: Any) -> None:
        self.start(**changes)

    def next_job(self) -> Job:
        job = self.jobs.next_job()
        assert isinstance(job, Job)
        return job

    def report(self, job: Job, samples_seen: int, top1: float, **more: float) -> Decision:
        return self.jobs.report(job, {"samples_seen": samples_seen, "top1": top1, **more})

    def states(self) -> list[str]:
        return [trial.state for trial in self.record.trials]

    def samples(self) -> list[int]:
        return [trial.samples_seen for trial in self.record.trials]


def score(settings: Mapping[str, Any], samples_seen: int) -> float:
    distance = math.log10(settings["optim.lr"]) + 1
    return math.exp(-distance * distance) * (1 - math.exp(-samples_seen / 3000))


def run_to_the_end(search: Search, after_event: Callable[[], bool] = lambda: False) -> None:
    """One slot, in a world where what happens follows from the job; some trials fail.

    `after_event` says whether the search is killed, and started again, after an event.
    """
    while (job := search.jobs.next_job()) is not END:
        assert isinstance(job, Job)
        samples_seen, decision = job.start_samples, GO
        lives = not killed(search, after_event)
        while lives and decision is GO:
            samples_seen += 1000
            if job.trial_number % 5 == 2 and job.attempt == 1 and samples_seen >= 2000:
                search.jobs.fail(job, "killed")
                decision = STOP
            elif job.trial_number % 7 == 3 and samples_seen >= 3000:
                search.jobs.fail(job, "diverged")
                decision = STOP
            else:
                decision = search.report(job, samples_seen, score(job.settings, samples_seen))
            lives = not killed(search, after_event)


def killed(search: Search, after_event: Callable[[], bool]) -> bool:
    if after_event():
        search.restart()
        return True
    return False


def journal(search: Search) -> list[dict[str, Any]]:
    """Everything that happened, in order, but for the time and the process."""
    lines = (search.folder / JOURNAL_NAME).read_text().splitlines()
    forgotten = ("worker_id", "datetime_start", "datetime_complete")
    return [{k: v for k, v in json.loads(line).items() if k not in forgotten} for line in lines]


def rungs_from_record(
    trials: Sequence[TrialRecord], rungs: Sequence[int]
) -> list[dict[int, float]]:
    tables: list[dict[int, float]] = [{} for _ in rungs]
    for trial in trials:
        if trial.state in ("failed", "infeasible"):
            continue
        for length, table in zip(rungs, tables, strict=True):
            reached = [r["top1"] for r in trial.reports if r["samples_seen"] >= length]
            if reached:
                table[trial.number] = reached[0]
    return tables


def check(search: Search, running: Mapping[int, Job]) -> None:
    """Every trial is in one state and in one place, and the rungs follow from the record."""
    jobs, trials = search.jobs, search.record.trials
    waiting = [n for rung in jobs._rungs for n in rung.waiting] + jobs._unfinished
    in_progress = sorted([*waiting, *running])
    assert in_progress == [trial.number for trial in trials if trial.state == "running"]
    ended = {s: search.states().count(s) for s in ("complete", "stopped", "failed", "infeasible")}
    assert jobs.counts() == {"running": len(running), "waiting": len(waiting), **ended}
    assert [rung.scores for rung in jobs._rungs] == rungs_from_record(trials, jobs._lengths)
