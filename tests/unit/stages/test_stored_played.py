"""Searches played on a small disk: all fits at every moment, and what counts is there."""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.search_logic.conftest import RUNGS, Search
from tuner.planning.disk import AT_REST, AT_WORK, DiskBudget, DiskNeed
from tuner.reporting.live import LiveView
from tuner.search_logic.confirm import BestRuns, confirm_jobs, confirm_points
from tuner.search_logic.ends import HOPELESS
from tuner.search_logic.jobs import END, STOP, Job, NoJob, Scheduler
from tuner.search_logic.keeping import BestTrials, Choice, Order
from tuner.stages.clock import StageClock
from tuner.stages.disk import Disk
from tuner.stages.follow import FollowedJobs
from tuner.stages.stored import StoredCheckpoints
from tuner.study.confirmed import confirmed, confirmed_trials
from tuner.study.record import Record, TrialRecord
from tuner.training.checkpoint import CheckpointFolder
from tuner.trial import checkpoint_folder

SIZE = 1000  # bytes of a checkpoint
KEEP_BEST = 3
NUM_TRIALS = 9
STEP = 500  # images between two checkpoints


class Killed(Exception):
    """The search was killed."""


@dataclass
class Slot:
    """A trial at work: what it has reported is in its checkpoints, as in real ones."""

    job: Job
    files: CheckpointFolder
    samples_seen: int = 0
    history: dict[int, float] = field(default_factory=dict)

    def restore(self) -> None:
        """Go on from the newest checkpoint, or from the start."""
        if saved := self.files.saved():
            self.samples_seen = saved[-1]
            plain = json.loads(self.files.path(saved[-1]).read_text())
            self.history = {int(key): top1 for key, top1 in plain.items()}

    def save(self) -> None:
        """Write a checkpoint of `SIZE` bytes; then its best and the newest two are left."""
        path = self.files.path(self.samples_seen)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.history).ljust(SIZE))
        best = max(self.history, key=lambda each: (self.history[each], -each), default=None)
        for each in set(self.files.saved()) - {best, *self.files.saved()[-2:]}:
            self.files.remove(each)


class MortalStored(StoredCheckpoints):
    """May be killed whenever it has removed a file."""

    def __init__(self, after_removal: Callable[[], None], *args: Any, **kwargs: Any) -> None:
        self._after_removal = after_removal
        super().__init__(*args, **kwargs)

    def _remove(self, number: int, samples_seen: int) -> None:
        super()._remove(number, samples_seen)
        self._after_removal()


class Played:
    """A search whose trials write files; chance decides who comes next, and when all is killed.

    Args:
        spare: Checkpoints that fit beside the least that a search needs.
        check: Called after everything that happens, a checkpoint and a report for itself.
        kill_share: Of these moments, and of those after a removed file, at which all is killed.
        fails: Whether trials may fail.
        confirm: How many configurations are confirmed, and on how many seeds.
        extensions: How often more trials are asked for, at the end or when all was killed.
    """

    def __init__(
        self,
        folder: Path,
        check: Callable[["Played"], None],
        *,
        seed: int,
        slots: int,
        spare: int,
        scheduler: Scheduler = "asha",
        kill_share: float = 0.0,
        fails: bool = False,
        confirm: tuple[int, int] = (0, 0),
        extensions: int = 0,
    ) -> None:
        self.num_trials = NUM_TRIALS if not extensions else 4
        self.search = Search(folder, trials=self.num_trials, scheduler=scheduler)
        self.stage, self.runs = "search", self.search.record.open_confirm()
        self.num_slots = slots
        self.need = DiskNeed(slots, NUM_TRIALS, KEEP_BEST, confirm[0] * confirm[1], True, SIZE)
        self.budget_bytes = (self.need.least + spare) * SIZE
        self.num_retrained = 0
        self._confirm = confirm
        self._extensions = extensions
        self._check = check
        self._seed = seed
        self._rng = Random(seed)
        self._fails = fails
        self._kill_share = kill_share

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """What is recorded."""
        return self.search.record.trials

    def play(self) -> None:
        """Play to the end; whenever it is killed it is started again."""
        is_done = False
        while not is_done:
            try:
                for stage in ("search", "confirm"):
                    self._start(stage)
                    self._play_on()
                is_done = self._extensions == 0
                self._extend()
            except Killed:
                if self._rng.random() < 0.1:
                    self._extend()
        self._check(self)

    def files(self, number: int, stage: str = "search") -> CheckpointFolder:
        """Return the checkpoints of a trial, or of a confirm run."""
        return CheckpointFolder(checkpoint_folder(self.search.folder, stage, number), print)

    def num_files(self, stage: str = "search") -> Counter[int]:
        """Return how many checkpoints each trial has, or each confirm run."""
        root = self.files(0, stage).folder.parent
        return Counter(int(path.parent.name) for path in root.glob("*/*"))

    def num_resting(self) -> int:
        """Return how many checkpoints there are of trials and runs that no job works on."""
        of_stage = self.num_files(self.stage)
        at_work = sum(of_stage[number] for number in self.at_work())
        return self.num_files("search").total() + self.num_files("confirm").total() - at_work

    def at_work(self) -> set[int]:
        """Return the trials of the stage in the slots."""
        return {slot.job.trial_number for slot in self.slots}

    def _extend(self) -> None:
        if self._extensions:
            self._extensions -= 1
            self.num_trials += 2

    def _start(self, stage: str) -> None:
        self.search.restart(trials=self.num_trials)
        self.slots: list[Slot] = []
        self.stage = stage
        record, jobs = self.search.record, self.search.jobs
        self.runs = record.open_confirm()
        top, num_seeds = self._confirm
        best_runs = BestRuns(record, self.runs, top=top, num_seeds=num_seeds, seed=0)
        trials = ("search", record, jobs.likeliest_first, BestTrials(KEEP_BEST))
        runs = ("confirm", self.runs, sorted, best_runs)
        if stage == "search":
            stored = self._stored(*trials, self._stored(*runs) if self.runs.trials else None)
        else:
            stored = self._stored(*runs, self._stored(*trials))
            points = confirm_points(record, top=top, num_seeds=num_seeds, seed=0)
            record = self.runs
            jobs = confirm_jobs(record, points, total_samples=RUNGS[-1], max_failures=1)
        view, clock = Mock(spec=LiveView), StageClock(record, stage)
        self.followed = FollowedJobs(jobs, record, view, clock, stored)

    def _stored(
        self,
        stage: str,
        record: Record,
        likeliest_first: Order,
        choice: Choice,
        beside: StoredCheckpoints | None = None,
    ) -> StoredCheckpoints:
        budget = DiskBudget(self.search.folder, self.budget_bytes / 1e9, 0, 0)
        disk = Disk(budget, self.need)
        return MortalStored(
            self._may_be_killed, disk, stage, record, likeliest_first, choice, beside
        )

    def _play_on(self) -> None:
        while True:
            self._check(self)
            self._may_be_killed()
            if len(self.slots) < self.num_slots and self._rng.random() < 0.7:
                if self._hand_out() is END:
                    return
            elif self.slots:
                self._train(self._rng.choice(self.slots))

    def _may_be_killed(self) -> None:
        if self._rng.random() < self._kill_share:
            raise Killed

    def _hand_out(self) -> Job | NoJob:
        before = self.num_files(self.stage)
        job = self.followed.next_job()
        if isinstance(job, Job):
            slot = Slot(job, self.files(job.trial_number, self.stage))
            self.slots.append(slot)
            if self.num_files(self.stage).total() < before.total():  # no more went than had to
                num_promised = self.num_resting() + AT_WORK * len(self.slots)
                assert (num_promised + 1) * SIZE > self.budget_bytes
            slot.restore()
            self.num_retrained += slot.samples_seen < job.start_samples
            for unheard in sorted(each for each in slot.history if each > job.start_samples):
                self._report(slot, unheard)
        return job

    def _train(self, slot: Slot) -> None:
        """Train to the next checkpoint; every other one is reported, some trials fail instead."""
        slot.samples_seen += STEP
        chance = Random(f"{self._seed} {self.stage} {slot.job} {slot.samples_seen}")
        if self._fails and chance.random() < 0.1:
            reason = chance.choice(["killed", "error", "diverged", "out_of_memory"])
            self.followed.fail(slot.job, reason)
            self.slots.remove(slot)
            return
        is_due = slot.samples_seen % (2 * STEP) == 0
        if is_due:
            number = slot.job.trial_number
            place = f"{self._seed} {self.stage} {number} {slot.samples_seen}"
            slot.history[slot.samples_seen] = Random(place).random()
        slot.save()
        if is_due:
            self._check(self)
            self._may_be_killed()
            self._report(slot, slot.samples_seen)

    def _report(self, slot: Slot, samples_seen: int) -> None:
        result = {"samples_seen": samples_seen, "top1": slot.history[samples_seen]}
        if self.followed.report(slot.job, result) is STOP:
            self.slots.remove(slot)


def check_room(played: Played) -> None:
    """All fits, with what each trial at work is about to write; who has ended keeps one or none."""
    num_files = played.num_files()
    num_promised = played.num_resting() + AT_WORK * len(played.slots)
    assert num_promised * SIZE <= played.budget_bytes
    of_stage = played.num_files(played.stage)
    assert all(of_stage[number] < AT_WORK for number in played.at_work())
    ended = [trial for trial in played.trials if trial.state != "running"]
    assert sum(num_files[trial.number] for trial in ended) <= KEEP_BEST
    assert not any(num_files[each.number] for each in ended if each.state in HOPELESS)
    scores = {trial.number: played.search.record.best_score(trial.number) or 0 for trial in ended}
    complete = [scores[trial.number] for trial in ended if trial.state == "complete"]
    kept = [score for number, score in scores.items() if num_files[number]]
    assert max(kept, default=0) >= max(complete, default=0)


def check_best(played: Played) -> None:
    """The checkpoint of the best report of all is there, or a later one, not reported yet."""
    check_room(played)
    record = played.search.record
    for best in record.ranked()[:1]:
        if report := record.best_report(best.number):
            saved = played.files(best.number).saved()
            assert report["samples_seen"] in saved or saved[-1] > best.samples_seen
    for first in confirmed(record, played.runs)[:1]:
        # Many that wait from earlier starts may cost it its best run, until its last one is there.
        repeated = zip(confirmed_trials(record, played.runs), played.runs.trials, strict=True)
        states = {run.state for number, run in repeated if number == first.trial_number}
        reports = {run.number: played.runs.best_report(run.number) or {} for run in first.runs}
        saved = [
            number
            for number, report in reports.items()
            if played.files(number, "confirm").saved() == [report["samples_seen"]]
        ]
        assert len(saved) == 1 or "running" in states


def check_all(played: Played) -> None:
    """Of every trial that waits the newest checkpoint is there too."""
    check_best(played)
    for trial in played.trials:
        at_work = played.at_work() if played.stage == "search" else set()
        if trial.reports and trial.state == "running" and trial.number not in at_work:
            assert max(played.files(trial.number).saved()) >= trial.samples_seen


SEEDS = st.integers(0, 2**32)
SLOTS = st.integers(1, 3)
SPARE = st.integers(0, 6)
KILL_SHARES = st.sampled_from([0.0, 0.02, 0.2])
CONFIRM = st.tuples(st.integers(1, 2), st.integers(1, 3))
SCHEDULERS = st.sampled_from(["asha", "asha", "asha_stopping", "none"])


@contextmanager
def a_folder() -> Iterator[Path]:
    """Give a folder for one search, in memory where there is one: fsyncs take most of the time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@settings(max_examples=20)
@given(seed=SEEDS, slots=SLOTS, spare=SPARE, kill_share=KILL_SHARES, scheduler=SCHEDULERS)
def test_a_small_disk_holds_a_search_and_its_best_at_every_moment(
    seed: int, slots: int, spare: int, kill_share: float, scheduler: Scheduler
) -> None:
    with a_folder() as folder:
        played = Played(
            folder,
            check_best,
            seed=seed,
            slots=slots,
            spare=spare,
            scheduler=scheduler,
            kill_share=kill_share,
        )
        played.play()
        assert {trial.state for trial in played.trials} <= {"complete", "stopped"}


@settings(max_examples=10)
@given(seed=SEEDS, slots=SLOTS, spare=SPARE, kill_share=KILL_SHARES, confirm=CONFIRM)
def test_a_small_disk_holds_confirm_runs_too_however_often_a_search_is_extended(
    seed: int, slots: int, spare: int, kill_share: float, confirm: tuple[int, int]
) -> None:
    with a_folder() as folder:
        played = Played(
            folder,
            check_best,
            seed=seed,
            slots=slots,
            spare=spare,
            kill_share=kill_share,
            confirm=confirm,
            extensions=3,
        )
        played.play()
        assert len(played.trials) == 10
        assert {run.state for run in played.runs.trials} == {"complete"}


@settings(max_examples=20)
@given(seed=SEEDS, slots=SLOTS, spare=SPARE, kill_share=KILL_SHARES)
def test_trials_that_fail_leave_nothing_and_take_nothing_from_the_others(
    seed: int, slots: int, spare: int, kill_share: float
) -> None:
    with a_folder() as folder:
        Played(
            folder,
            check_room,
            seed=seed,
            slots=slots,
            spare=spare,
            kill_share=kill_share,
            fails=True,
        ).play()


@settings(max_examples=10)
@given(seed=SEEDS, slots=SLOTS, kill_share=KILL_SHARES, scheduler=SCHEDULERS)
def test_where_there_is_room_nothing_is_trained_again(
    seed: int, slots: int, kill_share: float, scheduler: Scheduler
) -> None:
    with a_folder() as folder:
        played = Played(
            folder,
            check_all,
            seed=seed,
            slots=slots,
            spare=AT_REST * NUM_TRIALS,
            scheduler=scheduler,
            kill_share=kill_share,
        )
        played.play()
        assert played.num_retrained == 0
