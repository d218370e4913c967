"""The clock of the benchmark: slots, starts and epochs of recorded trainings, in simulated seconds.

A search sees only what a real one sees: a score after each epoch, when it falls due.
"""

import heapq
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.benchmarks.search.tasks import Settings, Task
from tuner.settings.space import ParameterSpec

Steps = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a search is told before it begins.

    Attributes:
        slots: How many trainings run side by side.
        budget_s: Simulated seconds of each slot.
        folder: Empty, for files of its own.
    """

    specs: Mapping[str, ParameterSpec]
    num_epochs: int
    slots: int
    seed: int
    budget_s: float
    folder: Path


@dataclass(frozen=True, slots=True)
class Stint:
    """One stay of a trial in a slot.

    Attributes:
        start: Epochs that the trial has done; 0 for a new one.
        stop: It leaves its slot after this epoch, or earlier when told.
        report_every: A score falls due at multiples of this epoch, and at `stop`.
    """

    trial: Hashable
    settings: Settings
    start: int
    stop: int
    report_every: int = 1


class Search(Protocol):
    """A search as the simulator drives it."""

    def next(self, now: float) -> Stint | None:
        """What a free slot does next; None leaves it idle until something happens elsewhere."""

    def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
        """Takes a score, and the `seconds` since the one before; True ends the stint."""

    def end(self, stint: Stint, epoch: int, now: float) -> None:
        """The slot is free again; the trial has done `epoch` epochs."""


@dataclass(slots=True)
class Run:
    """What came of one simulated search.

    Attributes:
        seen: (share of the time, best score reported until then), where it rose.
        handed_over: (share of the time, score at full length of the trial that would be handed
            over then), where it changed.
        busy_share: Share of the slots' time in which they trained or started.
        search_s: Real processor seconds of the search's own work.
    """

    seen: Steps = field(default_factory=list)
    handed_over: Steps = field(default_factory=list)
    trials: int = 0
    stints: int = 0
    epochs: int = 0
    full_trainings: int = 0
    busy_share: float = 0.0
    search_s: float = 0.0


@dataclass(order=True, slots=True)
class _Event:
    """A score that falls due at a time; of equal times the one begun first comes first."""

    due_s: float
    order: int
    stint: Stint = field(compare=False)
    epoch: int = field(compare=False)
    begun_s: float = field(compare=False)
    origin_s: float = field(compare=False)


def simulate(task: Task, search: Search, *, slots: int, budget_s: float, start_s: float) -> Run:
    """Runs a search until its time is over, or it leaves all slots idle.

    Args:
        budget_s: Simulated seconds of each slot; a score that falls due later does not count.
        start_s: What the start of each stint costs, of a new trial or of one that goes on.
    """
    return _Simulation(task, search, slots, budget_s, start_s).play()


class _Simulation:
    def __init__(
        self, task: Task, search: Search, slots: int, budget_s: float, start_s: float
    ) -> None:
        self._task, self._search = task, search
        self._free, self._budget_s, self._start_s = slots, budget_s, start_s
        self._slots = slots
        self._events: list[_Event] = []
        self._order = 0
        self._best: float | None = None
        self._run = Run()

    def play(self) -> Run:
        self._fill(0.0)
        while self._events and self._events[0].due_s <= self._budget_s:
            self._handle(heapq.heappop(self._events))
        self._run.busy_share += sum(self._share(event.begun_s) for event in self._events)
        return self._run

    def _fill(self, now: float) -> None:
        while self._free and (stint := self._ask(now)) is not None:
            assert stint.start < stint.stop <= self._task.num_epochs, stint
            self._free -= 1
            self._run.stints += 1
            self._run.trials += stint.start == 0
            seconds = self._task.curve(stint.settings).seconds
            done_s = seconds[stint.start - 1] if stint.start else 0.0
            self._plan(stint, stint.start, now, now + self._start_s - done_s)

    def _ask(self, now: float) -> Stint | None:
        began = time.process_time()
        stint = self._search.next(now)
        self._run.search_s += time.process_time() - began
        return stint

    def _plan(self, stint: Stint, epoch: int, begun_s: float, origin_s: float) -> None:
        """Plans the next report; `origin_s` is when the trial would have begun without pauses."""
        following = min(epoch - epoch % stint.report_every + stint.report_every, stint.stop)
        due_s = origin_s + self._task.curve(stint.settings).seconds[following - 1]
        self._order += 1
        heapq.heappush(
            self._events, _Event(due_s, self._order, stint, following, begun_s, origin_s)
        )

    def _handle(self, event: _Event) -> None:
        stint, epoch, now = event.stint, event.epoch, event.due_s
        curve = self._task.curve(stint.settings)
        score = curve.scores[epoch - 1]
        before = max(stint.start, (epoch - 1) // stint.report_every * stint.report_every)
        before_s = curve.seconds[before - 1] if before else 0.0
        self._run.epochs += epoch - before
        self._run.full_trainings += epoch == self._task.num_epochs
        self._note(score, curve.scores[-1], now)
        began = time.process_time()
        ends = self._search.tell(stint, epoch, score, curve.seconds[epoch - 1] - before_s, now)
        ends |= epoch >= stint.stop
        if ends:
            self._search.end(stint, epoch, now)
        self._run.search_s += time.process_time() - began
        if ends:
            self._free += 1
            self._run.busy_share += self._share(event.begun_s, now)
        else:
            self._plan(stint, epoch, event.begun_s, event.origin_s)
        self._fill(now)

    def _note(self, score: float, full_score: float, now: float) -> None:
        """The trial with the best score reported is the one to hand over; of equals the first."""
        if self._best is None or score > self._best:
            self._best = score
            share = now / self._budget_s
            self._run.seen.append((share, score))
            handed_over = self._run.handed_over
            if not handed_over or handed_over[-1][1] != full_score:
                handed_over.append((share, full_score))

    def _share(self, begun_s: float, ended_s: float | None = None) -> float:
        ended_s = self._budget_s if ended_s is None else ended_s
        return (ended_s - begun_s) / (self._budget_s * self._slots)


def value_at(steps: Sequence[tuple[float, float]], share: float, before: float) -> float:
    """The value of a step curve at a share of the time; `before` where it has not begun."""
    value = before
    for at, stepped in steps:
        if at > share:
            break
        value = stepped
    return value


def as_plain(run: Run) -> dict[str, Any]:
    """The run as JSON values; `Run(**plain)` is equal but for lists in place of tuples."""
    return {
        "seen": [list(step) for step in run.seen],
        "handed_over": [list(step) for step in run.handed_over],
        "trials": run.trials,
        "stints": run.stints,
        "epochs": run.epochs,
        "full_trainings": run.full_trainings,
        "busy_share": run.busy_share,
        "search_s": run.search_s,
    }
