"""The checkpoints that trials leave on disk: those that nobody needs go, the others fit the budget.

Only the driver's process removes files here, and only those of trials that no job works on; a
trial in a slot prunes its own. What may go follows from the record, so that a kill at any moment
loses nothing: the next start looks at what is there and decides again.
"""

from collections.abc import Iterable, Iterator, Mapping

from tuner.planning.disk import AT_WORK
from tuner.reporting.terminal import count_text, say, say_under
from tuner.search_logic.confirm import BestRuns
from tuner.search_logic.jobs import Jobs
from tuner.search_logic.keeping import BestTrials, Choice, Held, Order, hold, missed, spare
from tuner.stages.course import Course
from tuner.stages.disk import Disk, look_at_disk, trial_numbers
from tuner.study.record import Record
from tuner.training.checkpoint import CheckpointFolder
from tuner.trial import checkpoint_folder

TRAINED_AGAIN = (
    "the budget is used up: trials that wait give up their checkpoints, and are trained again from "
    "their start where they go on"
)


class StoredCheckpoints:
    """The checkpoints of one study's trials that no job works on.

    Each trial's folder is looked at when the trial leaves its slot, and all of them once, here:
    what that costs does not grow with the number of trials.

    Args:
        disk: What they may take, those of trials at work and those beside among them; and how
            large one is expected to be at most.
        stage: "search" or "confirm".
        likeliest_first: Sorts trials that wait by how likely they go on.
        choice: Says which trials that have ended keep a checkpoint.
        beside: Those of the other stage's trials, where there are any. None of them is at work;
            they make room for what this stage needs once a job begins.

    Attributes:
        num_bytes: Of those of the trials that no job works on.
    """

    def __init__(
        self,
        disk: Disk,
        stage: str,
        record: Record,
        likeliest_first: Order,
        choice: Choice,
        beside: "StoredCheckpoints | None" = None,
    ) -> None:
        self.num_bytes = 0
        self._disk = disk
        self._stage = stage
        self._record = record
        self._likeliest_first = likeliest_first
        self._choice = choice
        self._checkpoint_bytes = disk.need.checkpoint_bytes
        self._beside = beside
        self._at_work: set[int] = set()
        self._ended: dict[int, Held] = {}
        self._waiting: dict[int, Held] = {}
        self._has_told = False
        unknown = []
        for number in trial_numbers(disk.budget.folder, stage):
            if number < len(record.trials):
                self.end(number)
            else:
                unknown.append(number)
        self._remove_unknown(unknown)

    def begin(self, number: int) -> None:
        """A job begins: its trial's checkpoints are its own now, and there is room for more."""
        self._forget(number)
        self._at_work.add(number)
        num_bytes = self._disk.budget.num_bytes
        if self._beside is not None:
            self._beside.fit(num_bytes - self._disk.need.stage_bytes(self._stage))
            num_bytes -= self._beside.num_bytes
        self.fit(num_bytes - AT_WORK * len(self._at_work) * self._checkpoint_bytes)

    def end(self, number: int) -> None:
        """No job works on the trial any more: of its checkpoints those stay that are needed."""
        self._at_work.discard(number)
        files = self._files(number)
        files.remove_left_overs()
        sizes = files.sizes()
        self._checkpoint_bytes = max([self._checkpoint_bytes, *sizes.values()])
        self._keep(number, sizes)

    def settle(self) -> None:
        """Takes notice of the trials that have ended while they waited."""
        for number, held in list(self._waiting.items()):
            if self._record.trials[number].state != "running":
                self._keep(number, held.sizes)

    def fit(self, num_bytes: int) -> None:
        """Removes, in order, until the checkpoints here take no more than so many bytes."""
        if self.num_bytes <= num_bytes:
            return
        ended, waiting = self._ended.values(), self._waiting.values()
        ranked, firm = self._choice.ranked(ended), self._choice.firm(ended, waiting)
        order = spare(ranked, firm, self._waiting, self._likeliest_first)
        self._remove_until(num_bytes, order)
        order = missed(firm, self._waiting, self._likeliest_first)
        if self._remove_until(num_bytes, order) and not self._has_told:
            self._has_told = True
            say_under("disk", TRAINED_AGAIN)

    def _remove_unknown(self, numbers: Iterable[int]) -> None:
        """Removes the checkpoints of trials that the study does not have (yet).

        They come with a journal older than they are, of a backup say. The trial of such a number
        to come has settings of its own, and would go on from theirs.
        """
        num_removed = 0
        for number in numbers:
            files = self._files(number)
            files.remove_left_overs()
            for samples_seen in files.saved():
                files.remove(samples_seen)
                num_removed += 1
        if num_removed:
            removed = count_text(num_removed, "checkpoint")
            say_under("disk", f"{removed} of trials that the study does not have: removed")

    def _remove_until(self, num_bytes: int, order: Iterator[tuple[int, int]]) -> int:
        num_removed = 0
        while self.num_bytes > num_bytes and (each := next(order, None)):
            self._remove(*each)
            num_removed += 1
        return num_removed

    def _keep(self, number: int, sizes: Mapping[int, int]) -> None:
        held = hold(self._record, number, sizes)
        self._forget(number)
        self._put(held)
        for samples_seen in held.sizes.keys() - held.needed():
            self._remove(number, samples_seen)
        if held.has_ended:
            kept = {each.trial_number for each in self._choice.ranked(self._ended.values())}
            for loser in self._ended.keys() - kept:
                for samples_seen in self._ended[loser].sizes:
                    self._remove(loser, samples_seen)

    def _remove(self, number: int, samples_seen: int) -> None:
        self._files(number).remove(samples_seen)
        held = self._forget(number)
        assert held is not None
        self._put(held.without(samples_seen))

    def _put(self, held: Held) -> None:
        if held.sizes:
            (self._ended if held.has_ended else self._waiting)[held.trial_number] = held
            self.num_bytes += held.num_bytes

    def _forget(self, number: int) -> Held | None:
        held = self._ended.pop(number, None) or self._waiting.pop(number, None)
        self.num_bytes -= held.num_bytes if held else 0
        return held

    def _files(self, number: int) -> CheckpointFolder:
        folder = self._disk.budget.folder
        return CheckpointFolder(checkpoint_folder(folder, self._stage, number), say)


def search_checkpoints(course: Course, record: Record, jobs: Jobs) -> StoredCheckpoints:
    """Returns those of the trials, which confirm runs of an earlier start make room for."""
    disk = look_at_disk(course.search, course.plan, course.work)
    has_runs = trial_numbers(course.search.folder, "confirm")
    runs = _of_runs(disk, course, record, record.open_confirm()) if has_runs else None
    return _of_trials(disk, course, record, jobs, runs)


def confirm_checkpoints(
    course: Course, record: Record, trial_jobs: Jobs, runs: Record
) -> StoredCheckpoints:
    """Returns those of the confirm runs, which the trials of the search make room for.

    Args:
        record: Of the trials, as `trial_jobs` are.
        runs: Of the confirm runs.
    """
    disk = look_at_disk(course.search, course.plan, course.work)
    return _of_runs(disk, course, record, runs, _of_trials(disk, course, record, trial_jobs))


def _of_trials(
    disk: Disk, course: Course, record: Record, jobs: Jobs, beside: StoredCheckpoints | None = None
) -> StoredCheckpoints:
    best_trials = BestTrials(course.search.config.search.keep_best)
    return StoredCheckpoints(disk, "search", record, jobs.likeliest_first, best_trials, beside)


def _of_runs(
    disk: Disk,
    course: Course,
    record: Record,
    runs: Record,
    beside: StoredCheckpoints | None = None,
) -> StoredCheckpoints:
    asked, seed = course.search.config.search, course.search.config.train.seed
    best_runs = BestRuns(
        record, runs, top=asked.confirm_top, num_seeds=asked.confirm_seeds, seed=seed
    )
    # Every run goes on once a slot is free, the earliest first.
    return StoredCheckpoints(disk, "confirm", runs, sorted, best_runs, beside)
