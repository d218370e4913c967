"""A search's record cut at every byte of its last 64 KiB, opened, and written on.

    python tests/benchmarks/journal_cuts.py results/benchmarks/journal_cuts.json

The journal is one that a search leaves: ASHA over random settings, every tenth trial failing, then
its confirm runs. A cut is what a kill in the middle of an append leaves. The files lie in memory:
what is asked is what opening makes of them, and not how fast a disk is.
"""

import json
import os
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tuner.planning.environment import git_commit, processor, versions
from tuner.search_logic.confirm import confirm_jobs, confirm_points
from tuner.search_logic.jobs import STOP, Job, Jobs
from tuner.search_logic.rungs import rung_lengths
from tuner.settings.space import ChoiceSpec, FloatSpec
from tuner.study.record import JOURNAL_NAME, Record, TrialRecord

SPACE = {
    "optim.lr": FloatSpec(1e-3, 1.0, log=True),
    "train.batch_size": ChoiceSpec((32, 64, 128, 256)),
    "optim.weight_decay": FloatSpec(1e-5, 1e-2, log=True),
}
RUNGS = rung_lengths(1000, 9000, 3)
TRIALS = 28
LAST_BYTES = 2**16
PROCESSES = 2
CUTS_AT_ONCE = 1024


class WatchedRecord(Record):
    """A record that tells of each event once it is written."""

    on_event: Callable[[], None]

    def add_trial(self, settings: Mapping[str, Any]) -> TrialRecord:
        return self._told(super().add_trial(settings))

    def add_report(self, number: int, report: Mapping[str, Any]) -> TrialRecord:
        return self._told(super().add_report(number, report))

    def add_failure(self, number: int, reason: str, message: str) -> TrialRecord:
        return self._told(super().add_failure(number, reason, message))

    def end(self, number: int, *how: Any) -> TrialRecord:
        return self._told(super().end(number, *how))

    def end_all(self, numbers: Iterable[int], *how: Any) -> None:
        self._told(super().end_all(numbers, *how))

    def _told(self, value: Any) -> Any:
        self.on_event()
        return value


@dataclass
class Moments:
    """How long the journal was after each event, and what it then held."""

    sizes: list[int] = field(default_factory=lambda: [0])
    trials: list[list[TrialRecord]] = field(default_factory=lambda: [[]])
    runs: list[list[TrialRecord]] = field(default_factory=lambda: [[]])

    def add(
        self, size_bytes: int, trials: Sequence[TrialRecord], runs: Sequence[TrialRecord]
    ) -> None:
        self.sizes.append(size_bytes)
        self.trials.append(list(trials))
        self.runs.append(list(runs))


@dataclass
class Found:
    """What came of some cuts."""

    cuts: int = 0
    in_an_event: int = 0
    failures: list[str] = field(default_factory=list)


def main() -> None:
    to = Path(sys.argv[1])
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        whole, moments = record_a_search(Path(folder))
        first = len(whole) - LAST_BYTES
        assert first > 0, f"the journal has {len(whole)} bytes: take more trials"
        parts = [
            range(start, min(start + CUTS_AT_ONCE, len(whole) + 1))
            for start in range(first, len(whole) + 1, CUTS_AT_ONCE)
        ]
        total = Found()
        with ProcessPoolExecutor(PROCESSES) as pool:
            for found in pool.map(partial(cut_all, whole, moments, Path(folder)), parts):
                total.cuts += found.cuts
                total.in_an_event += found.in_an_event
                total.failures += found.failures
                print(f"{total.cuts} cuts, {len(total.failures)} failures", flush=True)
    figures = {
        "command": f"python tests/benchmarks/journal_cuts.py {to}",
        "journal_bytes": len(whole),
        "events": len(moments.sizes) - 1,
        "trials": len(moments.trials[-1]),
        "confirm_runs": len(moments.runs[-1]),
        "cuts": total.cuts,
        "cuts_within_an_event": total.in_an_event,
        "failures": len(total.failures),
        "first_failures": total.failures[:10],
        "most_events_lost": None if total.failures else int(total.in_an_event > 0),
        "seconds": round(time.monotonic() - started, 1),
        "processor": processor(),
        "versions": versions(),
        "git_commit": git_commit(),
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps({key: figures[key] for key in ("cuts", "failures", "most_events_lost")}))


def record_a_search(folder: Path) -> tuple[bytes, Moments]:
    """The journal of a search and its confirm runs, and what it held after each event."""
    moments = Moments()
    journal = folder / JOURNAL_NAME
    record = open_record(WatchedRecord, folder)
    record.on_event = lambda: moments.add(journal.stat().st_size, record.trials, [])
    jobs = Jobs(
        record,
        SPACE,
        trials=TRIALS,
        sampler="random",
        scheduler="asha",
        rungs=RUNGS,
        reduction_factor=3,
        max_failures=1,
        seed=0,
    )
    play(jobs, RUNGS)
    runs = record.open_confirm()
    runs.on_event = lambda: moments.add(journal.stat().st_size, record.trials, runs.trials)
    points = confirm_points(record, top=3, num_seeds=2, seed=0)
    play(confirm_jobs(runs, points, total_samples=RUNGS[-1], max_failures=1), RUNGS[-1:])
    return journal.read_bytes(), moments


def open_record(kind: type[Record], folder: Path) -> Any:
    return kind.open(
        folder,
        name="cuts",
        metric="top1",
        direction="maximize",
        parameters=SPACE,
        data_fingerprint="",
        settings_plain={},
    )


def play(jobs: Jobs, rungs: Sequence[int]) -> None:
    """Work off the jobs; each tenth fails, the first time it is tried or for good."""
    while isinstance(job := jobs.next_job(), Job):
        if job.trial_number % 10 == 9:
            jobs.fail(job, ("killed", "diverged")[job.trial_number // 10 % 2], "as it is played")
            continue
        for samples_seen in (length for length in rungs if length > job.start_samples):
            if jobs.report(job, result(job, samples_seen)) is STOP:
                break


def result(job: Job, samples_seen: int) -> dict[str, Any]:
    """A report of the form and size of a trial's."""
    score = (job.trial_number * 37 % 101) / 101 * samples_seen / (samples_seen + 1000)
    times = ("train_s", "data_wait_s", "evaluate_s", "seconds", "images_per_s", "setup_s")
    return {
        "samples_seen": samples_seen,
        "nominal_samples": samples_seen,
        "epoch": samples_seen / 1000,
        "learning_rate": job.settings["optim.lr"],
        "micro_batch_size": job.settings["train.batch_size"],
        **{name: score * place for place, name in enumerate(times, start=1)},
        "train_loss": 1 - score,
        "validation_loss": 1 - score,
        "top1": score,
        "top5": 1.0,
        "message": "",
    }


def cut_all(whole: bytes, moments: Moments, folder: Path, cuts: range) -> Found:
    """What comes of the journal cut after each of these numbers of bytes."""
    found = Found()
    with tempfile.TemporaryDirectory(dir=folder) as own:
        for num_bytes in cuts:
            found.cuts += 1
            found.in_an_event += num_bytes not in moments.sizes
            try:
                cut(whole[:num_bytes], moments, Path(own))
            except Exception as error:
                found.failures.append(f"{num_bytes}: {type(error).__name__}: {error}")
    return found


def cut(left: bytes, moments: Moments, folder: Path) -> None:
    """Open what is left, which has all but the event it was cut in, and write on."""
    (folder / JOURNAL_NAME).write_bytes(left)
    last = bisect_right(moments.sizes, len(left)) - 1
    record = open_record(Record, folder)
    assert record.trials == moments.trials[last], "other trials"
    runs = record.open_confirm()
    assert runs.trials == moments.runs[last], "other confirm runs"
    for each, more in ((record, {}), (runs, {"train.seed": 9})):
        settings = {"optim.lr": 0.1, "train.batch_size": 64, "optim.weight_decay": 1e-4, **more}
        number = each.add_trial(settings).number
        each.add_report(number, {"samples_seen": 1000, "top1": 0.5})
    again = open_record(Record, folder)
    assert again.trials == record.trials, "what was written on is not there"
    assert again.open_confirm().trials == runs.trials, "what the confirm runs wrote is not there"
    assert os.listdir(folder) == [JOURNAL_NAME], os.listdir(folder)


if __name__ == "__main__":
    main()
