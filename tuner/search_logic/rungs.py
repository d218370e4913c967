"""Successive halving as pure rules (ASHA, Li et al. 2020, arXiv:1810.05934): which trials go on."""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from itertools import takewhile
from math import inf

# A rung nearer to the end than this would cost almost a full training and decide little.
LAST_GAP = 1.5


def rung_lengths(grace_samples: int, total_samples: int, factor: int) -> tuple[int, ...]:
    """The lengths, in images, at which trials are compared: grace × factor^k, then the end.

    A rung above ``total_samples / 1.5`` is left out. `grace_samples` should be a whole number
    of report lengths, so that a report falls due at every rung.
    """
    lengths = []
    length = grace_samples
    while length * LAST_GAP <= total_samples:
        lengths.append(length)
        length *= factor
    return (*lengths, total_samples)


Fits = Callable[[int], bool]


class Rung:
    """The scores that trials had at one length, and which of these trials wait there.

    The higher score ranks first, and of equal ones the lower trial number. Scores are finite.
    Every question takes O(log n), so that a search of many thousand trials does not slow down.

    Args:
        chance: While no trial has a higher score, this length tells nothing: where the best go on,
            all do.

    Attributes:
        scores: Trial number to score.
    """

    def __init__(self, factor: int, chance: float = -inf) -> None:
        self.scores: dict[int, float] = {}
        self._factor = factor
        self._chance = chance
        self._ranked: list[tuple[float, int]] = []
        self._waiting: list[tuple[float, int]] = []

    @property
    def waiting(self) -> list[int]:
        """The trials that wait here, best first."""
        return [number for _, number in self._waiting]

    @property
    def best(self) -> int:
        """The trial that ranks first; there must be one."""
        return self._ranked[0][1]

    def add(self, number: int, score: float) -> None:
        """Ranks a trial that reached this length."""
        self.scores[number] = score
        insort(self._ranked, self._key(number))

    def discard(self, number: int) -> None:
        """Forgets a trial, as if it had never come here."""
        if number in self.scores:
            self.leave(number)
            _remove(self._ranked, self._key(number))
            del self.scores[number]

    def wait(self, number: int) -> None:
        """Keeps a ranked trial here until it is promoted."""
        insort(self._waiting, self._key(number))

    def leave(self, number: int) -> None:
        """Ends a trial's waiting; its score stays."""
        _remove(self._waiting, self._key(number))

    def is_top(self, number: int, at_least: int = 0) -> bool:
        """Whether a ranked trial is among the best floor(n / factor), or the best `at_least`.

        All are where there are such and none is better than chance.
        """
        num_top = max(at_least, len(self._ranked) // self._factor)
        if num_top and self._tells_nothing:
            return True
        return bisect_left(self._ranked, self._key(number)) < num_top

    def keeps_slot(self, number: int) -> bool:
        """Whether a trial that has just come here goes on at once.

        It is among the top, and better than all that wait: once a search was killed the best of
        them goes first, so it does here.
        """
        is_best = all(self._key(number) < waiting for waiting in self._waiting[:1])
        return is_best and self.is_top(number)

    def promotable(self, at_least: int = 0, fits: Fits = lambda _: True) -> int | None:
        """The best trial that waits here, is among the top, and `fits`; None without one."""
        waiting = (number for _, number in self._waiting)
        top = takewhile(lambda number: self.is_top(number, at_least), waiting)
        return next(filter(fits, top), None)

    @property
    def _tells_nothing(self) -> bool:
        return self.scores[self.best] <= self._chance

    def _key(self, number: int) -> tuple[float, int]:
        return -self.scores[number], number


def first_promotable(rungs: Sequence[Rung], fits: Fits, at_least: int = 0) -> int | None:
    """The best promotable trial of the highest rung that has one."""
    found = (rung.promotable(at_least, fits) for rung in reversed(rungs))
    return next((number for number in found if number is not None), None)


def _remove(ranked: list[tuple[float, int]], key: tuple[float, int]) -> None:
    position = bisect_left(ranked, key)
    if ranked[position : position + 1] == [key]:
        del ranked[position]
