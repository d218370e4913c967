"""What each free slot does next: jobs handed out, reports judged, all following from the record."""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any, Final, Literal, get_args

from tuner.search_logic.cube import Settings, settings_key
from tuner.search_logic.ends import HOPELESS, SharedError, num_in_vain
from tuner.search_logic.history import Observation
from tuner.search_logic.pace import Pace
from tuner.search_logic.rung_data import Lengths
from tuner.search_logic.rungs import Rung, first_promotable
from tuner.search_logic.sampling import MODEL_SAMPLERS, Sampler, Specs, propose
from tuner.study.record import EndState, Record, Report, TrialRecord

Scheduler = Literal["asha", "asha_stopping", "none"]


class Decision(Enum):
    """The answer to a report: the trial goes on, or leaves its slot."""

    GO = "go"
    STOP = "stop"


class NoJob(Enum):
    """Why there is no job: one may come when a running one reports, or the search is over."""

    WAIT = "wait"
    END = "end"


GO: Final = Decision.GO
STOP: Final = Decision.STOP
WAIT: Final = NoJob.WAIT
END: Final = NoJob.END


@dataclass(frozen=True, slots=True)
class Job:
    """One stint of work on one trial.

    Args:
        start_samples: ``samples_seen`` of the trial's last report, 0 for a new one.
        until_samples: The full length; a report may be answered with STOP before.
        attempt: 1, and one more for each attempt that failed.
    """

    trial_number: int
    settings: Mapping[str, Any]
    start_samples: int
    until_samples: int
    attempt: int


class Jobs:
    """Hands out the jobs of one search. Not for several threads.

    Everything here is rebuilt from the record, so a search that was killed decides again what it
    had decided. Trials between two rungs come first, then promotions, then new settings.
    A trial that fails for good leaves its rungs.

    Args:
        points: Settings to try before any that are proposed, in this order.
        trials: How many settings are tried at most.
        rungs: Lengths in images at which trials are compared, the last one the full length.
        max_failures: How often a trial is tried again after ``error``, ``killed`` or ``stalled``.
        patience: So many trials in vain (`ends.num_in_vain`) are the last; None is no end.
        seconds_per_image: As `Pace` takes it.
        chance: As `Rung` takes it, for all rungs but the last before the full length: trials of a
            search that learns nothing do not all go there.

    Attributes:
        pace: How long trials take to their next rung.
    """

    def __init__(
        self,
        record: Record,
        specs: Specs,
        *,
        points: Sequence[Settings] = (),
        trials: int,
        sampler: Sampler,
        scheduler: Scheduler,
        rungs: Sequence[int],
        reduction_factor: int,
        max_failures: int,
        seed: int,
        patience: int | None = None,
        seconds_per_image: float | None = None,
        chance: float = -inf,
    ) -> None:
        self._record = record
        self._specs = specs
        self._points = points
        self._trials = trials
        self._sampler: Sampler = sampler
        self._lengths = tuple(rungs[-1:] if scheduler == "none" else rungs)
        self._is_stopping = scheduler == "asha_stopping"
        self._max_failures = max_failures
        self._seed = seed
        self._patience = patience
        self.pace = Pace(record, self._lengths, seconds_per_image)
        self._sign = 1.0 if record.direction == "maximize" else -1.0
        early = [Rung(reduction_factor, chance) for _ in self._lengths[:-2]]
        self._rungs = [*early, *(Rung(reduction_factor) for _ in self._lengths[-2:])]
        self._running: dict[int, Job] = {}
        self._unfinished: list[int] = []
        self._hopeless: list[int] = []
        self._ended: Counter[str] = Counter()
        self._tried: set[frozenset[tuple[str, Any]]] = set()
        self._exhausted = False
        self._shared_error = SharedError(record)
        self._rebuild()

    @property
    def exhausted(self) -> bool:
        """Whether the space holds no settings that have not been tried."""
        return self._exhausted

    @property
    def num_trials(self) -> int:
        """How many trials there will be in all; fewer where the search ends before."""
        return max(self._trials, len(self._record.trials))

    @property
    def is_finished(self) -> bool:
        """Whether every trial has ended and no other will be tried."""
        has_ended = self._ended.total() == len(self._record.trials)
        return has_ended and self._next_settings() is None

    @property
    def fatal(self) -> str | None:
        """The `SharedError` that ends the search."""
        return self._shared_error.message

    @property
    def out_of_patience(self) -> bool:
        """Whether the last `patience` trials were in vain; those given are tried all the same."""
        if self._patience is None or self._next_given() is not None:
            return False
        trials = self._record.trials
        begun = (*self._running, *self._unfinished)
        undecided = [n for n in begun if not self._num_reached(trials[n].samples_seen)]
        return num_in_vain(self._rungs, len(trials), undecided) >= self._patience

    def counts(self) -> dict[str, int]:
        """Number of trials running, waiting, complete, stopped, failed and infeasible."""
        waiting = len(self._record.trials) - len(self._running) - self._ended.total()
        ended = {state: self._ended[state] for state in get_args(EndState)}
        return {"running": len(self._running), "waiting": waiting, **ended}

    def likeliest_first(self, waiting: Iterable[int]) -> list[int]:
        """Sorts trials that no job works on by how likely they go on.

        First those that do once a slot is free, in this order; then the higher the rung, and the
        better the score there.
        """
        return sorted(waiting, key=self._place)

    def next_job(self, seconds_left: float = inf) -> Job | NoJob:
        """A job for a free slot; WAIT only while another job runs; END once nothing is left.

        At the end the best trial of a rung goes on even where the rung has too few for a share,
        so that something is trained in full; trials that still wait are recorded as stopped.
        A job that would not reach its next rung in the time left is passed over for the first that
        does. Where none does, or the error is fatal, nothing is begun; what waits goes on later.
        """
        if self.fatal is None:
            found = self._choose(seconds_left)
            if found is not None:
                return self._hand_out(self._begin(found))
        if self._running:
            return WAIT
        if self.fatal is None and not self.lacks_time(seconds_left):
            self._stop_waiting()
        return END

    def lacks_time(self, seconds_left: float) -> bool:
        """Whether the time is over, or too short for every job that there would be without end."""
        if seconds_left <= 0:
            return True
        return self._choose(seconds_left) is None and self._choose(inf) is not None

    def report(self, job: Job, result: Report) -> Decision:
        """Records a result and says whether the job goes on; after STOP it is no longer running.

        A score that is not finite fails the trial as diverged. A result at or before the last
        recorded one (of a job that had to begin at an earlier checkpoint) changes nothing.
        """
        number = job.trial_number
        assert number in self._running, job
        before_samples = self._record.trials[number].samples_seen
        if result["samples_seen"] <= before_samples:
            return GO
        if not self._record.is_scored(result):
            self.fail(job, "diverged", f"{self._record.metric} is not a finite number")
            return STOP
        trial = self._record.add_report(number, result)
        self._rank(number, before_samples, result)
        if self._goes_on(trial):
            return GO
        del self._running[number]
        self._settle(trial)
        return STOP

    def fail(self, job: Job, reason: str, message: str = "") -> None:
        """Records that a job ended with `reason`: the trial is tried again, or ends.

        ``diverged`` and ``out_of_memory`` follow from the settings and are never tried again.
        """
        number = job.trial_number
        del self._running[number]
        if reason == "out_of_memory":
            self._end(number, "infeasible", reason, message)
        elif reason == "diverged" or job.attempt > self._max_failures:
            self._end(number, "failed", reason, message)
        else:
            self._settle(self._record.add_failure(number, reason, message))

    def lost(self, jobs: Iterable[Job]) -> None:
        """Takes back jobs that were running when the engine was lost, at no charge to them."""
        for job in jobs:
            del self._running[job.trial_number]
            self._settle(self._record.trials[job.trial_number])

    def _rebuild(self) -> None:
        for trial in self._record.trials:
            self._tried.add(settings_key(trial.settings))
            if trial.state in HOPELESS:
                self._hopeless.append(trial.number)
                continue
            for before, report in pairwise(({"samples_seen": 0}, *trial.reports)):
                self._rank(trial.number, before["samples_seen"], report)
        for trial in self._record.trials:
            if trial.state == "running":
                self._settle(trial)
            else:
                self._ended[trial.state] += 1

    def _choose(self, seconds_left: float) -> int | Settings | None:
        """The trial that goes on, or the settings of a new one."""
        fits = partial(self.pace.fits, seconds_left=seconds_left)
        number = next(filter(fits, self._unfinished), None)
        if number is None:
            number = first_promotable(self._rungs, fits)
        if number is not None:
            return number
        if fits(None) and (settings := self._next_settings()) is not None:
            return settings
        return None if self._running else first_promotable(self._rungs, fits, at_least=1)

    def _next_given(self) -> Settings | None:
        return next((each for each in self._points if settings_key(each) not in self._tried), None)

    def _next_settings(self) -> Settings | None:
        number = len(self._record.trials)
        if self._exhausted or number >= self._trials or self.out_of_patience:
            return None
        settings = self._next_given()
        if settings is None:
            settings = propose(
                self._specs,
                self._history() if self._sampler in MODEL_SAMPLERS else [],
                sampler=self._sampler,
                seed=self._seed,
                trial_number=number,
                tried=self._tried,
                lengths=Lengths(self._lengths[0], self._lengths[-1]),
            )
            self._exhausted = settings is None
        return settings

    def _begin(self, found: int | Settings) -> int:
        """Takes a trial out of where it waits, or records a new one; returns its number."""
        if not isinstance(found, int):
            self._tried.add(settings_key(found))
            return self._record.add_trial(found).number
        if found in self._unfinished:
            self._unfinished.remove(found)
        elif rung := self._stands_at(self._record.trials[found]):
            rung.leave(found)
        return found

    def _history(self) -> list[Observation]:
        """What a sampler learns from: all trials but those that the machine made fail."""
        working = {*self._running, *self._unfinished}
        return [
            self._observation(trial, is_working=trial.number in working)
            for trial in self._record.trials
            if trial.state != "failed" or trial.reason == "diverged"
        ]

    def _observation(self, trial: TrialRecord, is_working: bool) -> Observation:
        if trial.state == "failed" or trial.state == "infeasible":
            return Observation(trial.settings, state=trial.state)
        compared = zip(self._lengths, self._rungs, strict=True)
        scores = {
            length: rung.scores[trial.number]
            for length, rung in compared
            if trial.number in rung.scores
        }
        return Observation(trial.settings, scores, "running" if is_working else "seen")

    def _hand_out(self, number: int) -> Job:
        trial = self._record.trials[number]
        job = Job(
            trial_number=number,
            settings=dict(trial.settings),
            start_samples=trial.samples_seen,
            until_samples=self._lengths[-1],
            attempt=trial.failures + 1,
        )
        self._running[number] = job
        return job

    def _num_reached(self, samples_seen: int) -> int:
        return bisect_right(self._lengths, samples_seen)

    def _rank(self, number: int, before_samples: int, report: Report) -> None:
        """Scores the report at the rungs that it is the first of its trial to reach."""
        reached = range(
            self._num_reached(before_samples), self._num_reached(report["samples_seen"])
        )
        for k in reached:
            self._rungs[k].add(number, self._sign * float(report[self._record.metric]))

    def _stands_at(self, trial: TrialRecord) -> Rung | None:
        """The rung that the last report was the first to reach; None between two rungs."""
        before, last = ([0, 0] + [each["samples_seen"] for each in trial.reports[-2:]])[-2:]
        num_reached = self._num_reached(last)
        return self._rungs[num_reached - 1] if num_reached > self._num_reached(before) else None

    def _place(self, number: int) -> tuple[int, int, float, int]:
        trial = self._record.trials[number]
        rung = self._stands_at(trial)
        if rung is None:  # between two rungs
            return 0, 0, 0.0, number
        num_reached = self._num_reached(trial.samples_seen)
        return 1 if rung.is_top(number) else 2, -num_reached, -rung.scores[number], number

    def _goes_on(self, trial: TrialRecord) -> bool:
        if trial.samples_seen >= self._lengths[-1]:
            return False
        rung = self._stands_at(trial)
        if rung is None:
            return True
        if self._is_stopping:
            return rung.is_top(trial.number, at_least=1)
        return rung.keeps_slot(trial.number)

    def _settle(self, trial: TrialRecord) -> None:
        """Decides what becomes of a trial that no job works on, by its last report."""
        rung = self._stands_at(trial)
        if trial.samples_seen >= self._lengths[-1]:
            self._end(trial.number, "complete")
        elif rung is None or (self._is_stopping and self._goes_on(trial)):
            insort(self._unfinished, trial.number)
        elif self._is_stopping:
            self._end(trial.number, "stopped")
        else:
            rung.wait(trial.number)

    def _end(
        self,
        number: int,
        state: EndState,
        reason: str | None = None,
        message: str | None = None,
    ) -> None:
        self._record.end(number, state, reason, message)
        self._ended[state] += 1
        if state in HOPELESS:
            self._hopeless.append(number)
            for rung in self._rungs:
                rung.discard(number)

    def _stop_waiting(self) -> None:
        waiting = sorted({*self._unfinished, *(n for rung in self._rungs for n in rung.waiting)})
        if not waiting:
            return
        self._record.end_all(waiting, "stopped")
        self._ended["stopped"] += len(waiting)
        self._unfinished.clear()
        for rung in self._rungs:
            for number in reversed(rung.waiting):
                rung.leave(number)
