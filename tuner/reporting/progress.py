"""How far a stage is, in figures: told by its events, read whenever it is shown."""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from tuner.study.record import Record, Report, TrialRecord

NUM_BEST = 5
NUM_FAILURES = 3
FAILED = ("failed", "infeasible")
WINDOW_S = 30.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a trial stands.

    Args:
        score: Its best; None without one.
        samples_seen: Images up to that score; for a job in a slot up to now.
        state: The record's, but ``waiting`` where no job works on it.
    """

    trial_number: int
    score: float | None
    samples_seen: int
    state: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed; with `is_final` the trial failed with it."""

    trial_number: int
    reason: str
    message: str
    is_final: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """A stage at one moment.

    Args:
        done_samples: Images trained so far, those of running jobs estimated.
        expected_samples: Images of the whole stage; never fewer than it can still get by with.
        images_per_s: Over the last half minute and all slots; None before there is a second of it.
        left_s: Seconds to go; None where the speed is unknown.
        counts: Trials complete, stopped, waiting and failed, in this order.
        reached: Trials that reached each rung.
        slots: Who works in each slot; None for an idle one.
        best: The best trials with a score, the best first.
        failures: The last ones, the newest last.
    """

    done_samples: int
    expected_samples: int
    images_per_s: float | None
    elapsed_s: float
    left_s: float | None
    num_begun: int
    counts: Mapping[str, int]
    reached: Sequence[int]
    slots: Sequence[Standing | None]
    best: Sequence[Standing]
    failures: Sequence[Failure]


@dataclass(frozen=True, slots=True)
class _Job:
    """A job in its slot, as of its last report, or of its start before there is one."""

    settings: Mapping[str, Any]
    slot: int
    samples_seen: int
    reported_s: float
    images_per_s: float


class StageProgress:
    """What a stage has done. Not for several threads.

    Everything is kept up by the event, so that ten thousand trials cost no more than ten.

    Args:
        record: The stage's trials, those of earlier starts too.
        rungs: Lengths in images, the last one the full length.
        expected_samples: A guess of the images of the whole stage.
        images_per_s: Measured speed of one slot; None where unknown.
        seconds_left: Until the stage ends with whatever is done by then.
    """

    def __init__(
        self,
        record: Record,
        *,
        rungs: Sequence[int],
        expected_samples: int,
        slots: int,
        images_per_s: float | None,
        seconds_left: float = inf,
        clock: Callable[[], float],
    ) -> None:
        self._record = record
        self._rungs = tuple(rungs)
        self._expected_samples = expected_samples
        self._num_slots = slots
        self._images_per_s = images_per_s or 0.0
        self._seconds_left = seconds_left
        self._clock = clock
        self._jobs: dict[int, _Job] = {}
        self._counted: dict[int, tuple[int, str]] = {}
        self._states: Counter[str] = Counter()
        self._num_at = [0] * (len(self._rungs) + 1)  # trials between this rung and the next
        self._samples = 0
        self._has_reports = False
        self._best: list[int] = []
        self._failures: deque[Failure] = deque(maxlen=NUM_FAILURES)
        for trial in list(record.trials):
            self._count(trial)
            if trial.state in FAILED:
                self._failures.append(_failure(trial))
        self._rank_all()
        self.start()

    def start(self) -> None:
        """Begins to count the time."""
        self._started_s = self._clock()
        self._history = deque([(self._started_s, self._samples)])

    def begin(self, trial_number: int, settings: Mapping[str, Any], samples_seen: int) -> None:
        """A job began in a free slot."""
        taken = {job.slot for job in self._jobs.values()}
        slot = next(k for k in range(len(taken) + 1) if k not in taken)
        self._jobs[trial_number] = _Job(
            settings=dict(settings),
            slot=slot,
            samples_seen=samples_seen,
            reported_s=self._clock(),
            # Before the first report of all, processes start: nobody knows since when they train.
            images_per_s=self._images_per_s if self._has_reports else 0.0,
        )
        self._count(self._record.trials[trial_number])

    def report(self, trial_number: int, result: Report, *, goes_on: bool) -> Failure | None:
        """A report has been recorded; returns how the trial failed where its score is none."""
        self._has_reports = True
        job = self._jobs.pop(trial_number, None)
        if job is not None:
            self._images_per_s = _slot_speed(job, result) or self._images_per_s
        if job is not None and goes_on:
            self._jobs[trial_number] = replace(
                job,
                samples_seen=result["samples_seen"],
                reported_s=self._clock(),
                images_per_s=self._images_per_s,
            )
        trial = self._record.trials[trial_number]
        self._count(trial)
        self._rank(trial)
        if trial.state not in FAILED:
            return None
        self._failures.append(_failure(trial))
        return self._failures[-1]

    def fail(self, failure: Failure) -> None:
        """A job failed."""
        self._jobs.pop(failure.trial_number, None)
        self._failures.append(failure)
        trial = self._record.trials[failure.trial_number]
        self._count(trial)
        self._rank(trial)

    def lost(self, trial_numbers: Iterable[int]) -> None:
        """Jobs were taken back."""
        for number in trial_numbers:
            self._jobs.pop(number, None)
            self._count(self._record.trials[number])

    def figures(self) -> Figures:
        """The stage as it is now."""
        now = self._clock()
        seen = {number: self._samples_now(job, now) for number, job in self._jobs.items()}
        done = self._samples + sum(
            max(0, samples - self._counted[number][0]) for number, samples in seen.items()
        )
        to_go = sum(
            self._next_rung(self._jobs[number].samples_seen) - samples
            for number, samples in seen.items()
        )
        expected = max(self._expected_samples, done + to_go, 1)
        images_per_s = self._speed(now, done)
        elapsed_s = now - self._started_s
        # The first half minute is mostly start-up.
        if elapsed_s < WINDOW_S and self._images_per_s:
            pace = self._images_per_s * self._num_slots
        else:
            pace = images_per_s or 0.0
        most_s = max(0.0, self._seconds_left - elapsed_s)
        return Figures(
            done_samples=done,
            expected_samples=expected,
            images_per_s=images_per_s,
            elapsed_s=elapsed_s,
            left_s=min((expected - done) / pace, most_s) if pace else None,
            num_begun=len(self._counted),
            counts=self._counts(),
            reached=[sum(self._num_at[k:]) for k in range(1, len(self._num_at))],
            slots=self._slots(seen),
            best=[self._standing(number) for number in self._best],
            failures=tuple(self._failures),
        )

    def _count(self, trial: TrialRecord) -> None:
        """Counts a trial as it is now, in place of how it was counted before."""
        before = self._counted.get(trial.number)
        for sign, (samples_seen, state) in (
            (-1, before or (0, "")),
            (+1, (trial.samples_seen, trial.state)),
        ):
            if state:
                self._samples += sign * samples_seen
                self._states[state] += sign
                self._num_at[bisect_right(self._rungs, samples_seen)] += sign
        self._counted[trial.number] = trial.samples_seen, trial.state

    def _rank_all(self) -> None:
        first = self._record.ranked()[:NUM_BEST]
        self._best = [each.number for each in first if self._score(each.number) is not None]

    def _rank(self, trial: TrialRecord) -> None:
        """Keeps the best up: a report can only lift its own trial, a failure only sink it."""
        if trial.state in FAILED:
            if trial.number in self._best:
                self._rank_all()
        elif self._score(trial.number) is not None:
            sign = -1 if self._record.direction == "maximize" else 1
            rivals = {*self._best, trial.number}
            ranked = sorted((sign * (self._score(each) or 0.0), each) for each in rivals)
            self._best = [number for _, number in ranked[:NUM_BEST]]

    def _score(self, number: int) -> float | None:
        return self._record.best_score(number)

    def _counts(self) -> dict[str, int]:
        running = sum(self._counted[number][1] == "running" for number in self._jobs)
        return {
            "complete": self._states["complete"],
            "stopped": self._states["stopped"],
            "waiting": self._states["running"] - running,
            "failed": sum(self._states[state] for state in FAILED),
        }

    def _samples_now(self, job: _Job, now: float) -> int:
        estimate = job.samples_seen + int(job.images_per_s * (now - job.reported_s))
        return min(estimate, self._next_rung(job.samples_seen))

    def _next_rung(self, samples_seen: int) -> int:
        rung = bisect_right(self._rungs, samples_seen)
        return self._rungs[rung] if rung < len(self._rungs) else samples_seen

    def _slots(self, seen: Mapping[int, int]) -> list[Standing | None]:
        slots: list[Standing | None] = [None] * max(
            [self._num_slots, *(job.slot + 1 for job in self._jobs.values())]
        )
        for number, job in self._jobs.items():
            score = self._score(number)
            slots[job.slot] = Standing(number, score, seen[number], "running", job.settings)
        return slots

    def _standing(self, number: int) -> Standing:
        trial, report = self._record.trials[number], self._record.best_report(number)
        is_waiting = trial.state == "running" and number not in self._jobs
        return Standing(
            trial_number=number,
            score=self._score(number),
            samples_seen=report["samples_seen"] if report else 0,
            state="waiting" if is_waiting else trial.state,
            settings=trial.settings,
        )

    def _speed(self, now: float, done_samples: int) -> float | None:
        """Images a second since half a minute ago."""
        history = self._history
        history.append((now, done_samples))
        while len(history) > 2 and history[1][0] <= now - WINDOW_S:
            history.popleft()
        then, done_then = history[0]
        return max(0, done_samples - done_then) / (now - then) if now - then >= 1 else None


def _slot_speed(job: _Job, result: Report) -> float | None:
    """Images a second with all that a report took; its `images_per_s` is of training alone."""
    num_images = result["samples_seen"] - job.samples_seen
    seconds = result.get("seconds")
    return num_images / seconds if seconds and num_images > 0 else result.get("images_per_s")


def _failure(trial: TrialRecord) -> Failure:
    return Failure(trial.number, trial.reason or trial.state, trial.message or "", is_final=True)
