"""How long a stage has gone on over all its starts, and how long it may."""

import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from tuner.study.record import Record


class StageClock:
    """Counts the wall seconds of a stage, from where the newest report of an earlier start was.

    What a killed start did after its last report is not counted.

    Args:
        record: The stage's trials.
        stage: "search" or "confirm"; a report tells the time as ``search_s`` or ``confirm_s``.
        budget_s: Seconds that the stage may take in all; None is no limit.
    """

    def __init__(
        self,
        record: Record,
        stage: str,
        budget_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._field = f"{stage}_s"
        self._budget_s = inf if budget_s is None else budget_s
        reports = (report for trial in record.trials for report in trial.reports)
        self._before_s = max((report.get(self._field, 0.0) for report in reports), default=0.0)
        self._clock = clock
        self._started_s = clock()

    @property
    def seconds(self) -> float:
        """Wall seconds so far."""
        return self._before_s + self._clock() - self._started_s

    @property
    def seconds_left(self) -> float:
        """Seconds until the time is over; below 0 behind that."""
        return self._budget_s - self.seconds

    def stamped(self, report: Mapping[str, Any]) -> Mapping[str, Any]:
        """A report with the seconds at which it came."""
        return {**report, self._field: round(self.seconds, 2)}
