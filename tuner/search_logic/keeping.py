"""Which checkpoints are needed, and which of these go first where the disk cannot hold them all."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tuner.planning.disk import NEWEST_KEPT
from tuner.study.record import Record

Order = Callable[[Iterable[int]], list[int]]  # sorts waiting trials, the likeliest to go on first


@dataclass(frozen=True, slots=True)
class Held:
    """The checkpoints of a trial that no job works on.

    Args:
        sizes: Bytes of each, by `samples_seen`.
        best: `samples_seen` of the trial's best report; None without one, and if it has failed.
        score: Of that report, the higher the better.
        has_ended: For good; else it waits.
    """

    trial_number: int
    sizes: Mapping[int, int]
    best: int | None
    score: float
    has_ended: bool

    @property
    def num_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(self.sizes.values())

    @property
    def holds_best(self) -> bool:
        """Whether that of the best report is among them."""
        return self.best in self.sizes

    def needed(self) -> set[int]:
        """Those that the trial needs as long as there is room: its best, its newest if it waits."""
        newest = [] if self.has_ended else sorted(self.sizes)[-NEWEST_KEPT:]
        return self.sizes.keys() & {self.best, *newest}

    def older(self) -> set[int]:
        """Those that only a damaged newest one makes a waiting trial need."""
        return self.sizes.keys() - {self.best, max(self.sizes, default=None)}

    def without(self, samples_seen: int) -> "Held":
        """The same with one checkpoint less."""
        left = {each: size for each, size in self.sizes.items() if each != samples_seen}
        return replace(self, sizes=left)


def hold(record: Record, number: int, sizes: Mapping[int, int]) -> Held:
    """What a trial that no job works on has, by the record and the sizes of its files."""
    score = record.best_score(number)
    best = None if score is None else record.best_report(number)
    sign = 1.0 if record.direction == "maximize" else -1.0
    return Held(
        trial_number=number,
        sizes=sizes,
        best=best["samples_seen"] if best else None,
        score=sign * score if score is not None else float("-inf"),
        has_ended=record.trials[number].state != "running",
    )


def best_first(held: Iterable[Held]) -> list[Held]:
    """Trials that have the checkpoint of their best report, the best of them first."""
    return sorted(
        (each for each in held if each.holds_best),
        key=lambda each: (-each.score, each.trial_number),
    )


class Choice(Protocol):
    """Says which trials keep the checkpoint of their best report, of which one is handed over."""

    def ranked(self, ended: Collection[Held]) -> list[Held]:
        """Those of them that keep it while there is room, the first to keep first."""

    def firm(self, ended: Collection[Held], waiting: Collection[Held]) -> set[int]:
        """Those that keep it whatever the budget."""


@dataclass(frozen=True, slots=True)
class BestTrials:
    """The choice among the trials of a search."""

    keep_best: int

    def ranked(self, ended: Collection[Held]) -> list[Held]:
        """The best of them."""
        return best_first(ended)[: self.keep_best]

    def firm(self, ended: Collection[Held], waiting: Collection[Held]) -> set[int]:
        """The best of all, and the best that has ended: one that waits may still fail."""
        best = (best_first(held)[:1] for held in (ended, [*ended, *waiting]))
        return {each.trial_number for first in best for each in first}


def spare(
    ranked: Sequence[Held],
    firm: Collection[int],
    waiting: Mapping[int, Held],
    likeliest_first: Order,
) -> Iterator[tuple[int, int]]:
    """Yields what can go at no cost as trial and `samples_seen`: losers, then older copies.

    The worst go first.

    Args:
        ranked: Trials that have ended, as a `Choice` ranks them.
        firm: Trials that keep that of their best report.
        waiting: Trials that wait, by number.
        likeliest_first: Sorts these.
    """
    for each in reversed(ranked):
        if each.trial_number not in firm:
            yield from ((each.trial_number, samples_seen) for samples_seen in each.sizes)
    for number in reversed(likeliest_first(waiting)):
        yield from ((number, samples_seen) for samples_seen in sorted(waiting[number].older()))


def missed(
    firm: Collection[int], waiting: Mapping[int, Held], likeliest_first: Order
) -> Iterator[tuple[int, int]]:
    """Yields what goes last: that of waiting trials, those least likely to go on first.

    The best one of `firm` trials stays. The later goes before the earlier: killed in between, the
    trial goes on from the earlier one, and comes to the later again.
    """
    for number in reversed(likeliest_first(waiting)):
        for samples_seen in sorted(waiting[number].sizes, reverse=True):
            if number not in firm or samples_seen != waiting[number].best:
                yield number, samples_seen
