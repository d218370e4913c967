"""How long a trial takes to its next rung, by what trials have taken so far."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from math import inf
from statistics import median

from tuner.study.record import Record, TrialRecord

NUM_NEWEST = 25  # older ones may have had another machine


class Pace:
    """Tells whether a trial reaches its next rung in the seconds left.

    A trial keeps the pace of its last report, evaluation included. One without a report takes the
    median of the newest trials that have one, and before there is any what was measured.

    Args:
        record: Where reports tell their ``seconds``.
        lengths: Of the rungs in images.
        seconds_per_image: As measured, evaluation included; None where nobody knows. What nobody
            knows always fits.
    """

    def __init__(
        self, record: Record, lengths: Sequence[int], seconds_per_image: float | None
    ) -> None:
        self._record = record
        self._lengths = lengths
        self._measured = seconds_per_image

    def fits(self, number: int | None, seconds_left: float) -> bool:
        """Whether that trial, or a new one, reaches its next rung in time; never in no time."""
        if seconds_left == inf:
            return True
        return seconds_left > 0 and self.seconds_to_rung(number) <= seconds_left

    def goes_on(self, number: int, seconds_left: float) -> bool:
        """Whether there is time for a trial at work; at a rung, time to reach the next one."""
        before, last = _last_stint(self._record.trials[number])
        if bisect_right(self._lengths, before) == bisect_right(self._lengths, last):
            return seconds_left > 0
        return self.fits(number, seconds_left)

    def seconds_to_rung(self, number: int | None = None) -> float:
        """What the way to its next rung takes that trial, or a new one; 0 where nobody knows."""
        own = None if number is None else _seconds_per_image(self._record.trials[number])
        samples_seen = 0 if number is None else self._record.trials[number].samples_seen
        place = bisect_right(self._lengths, samples_seen)
        samples = self._lengths[min(place, len(self._lengths) - 1)] - samples_seen
        return samples * (own or self._usual() or 0.0)

    def _usual(self) -> float | None:
        known = filter(None, map(_seconds_per_image, reversed(self._record.trials)))
        newest = list(islice(known, NUM_NEWEST))
        return median(newest) if newest else self._measured


def _seconds_per_image(trial: TrialRecord) -> float | None:
    """By its last report; None without one that tells its seconds."""
    before, last = _last_stint(trial)
    seconds = float(trial.reports[-1].get("seconds") or 0.0) if trial.reports else 0.0
    return seconds / (last - before) if seconds else None


def _last_stint(trial: TrialRecord) -> tuple[int, int]:
    """Where its last report and the one before it were; 0 without one."""
    before, last = [0, 0, *(int(report["samples_seen"]) for report in trial.reports[-2:])][-2:]
    return before, last
