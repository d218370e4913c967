"""What ends a search before all is tried: one error in every trial, or nothing better for long."""

from collections.abc import Iterable, Sequence
from itertools import islice

from tuner.search_logic.rungs import Rung
from tuner.study.record import Record

HOPELESS = ("failed", "infeasible")
FATAL_TRIALS = 3


class SharedError:
    """The one error in which the first three trials failed for good, with no report by any.

    Where they had failed so before this start, all that had failed by then are excused (others
    ended after those three, in their slots), and the next three are the first: who starts again
    has mended it.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self._has_reports = False
        self._excused: frozenset[int] = frozenset()
        if self.message is not None:
            failed = (trial.number for trial in record.trials if trial.state in HOPELESS)
            self._excused = frozenset(failed)

    @property
    def message(self) -> str | None:
        """What it says; None without one."""
        trials = self._record.trials
        self._has_reports = self._has_reports or any(trial.reports for trial in trials)
        if self._has_reports:
            return None
        counted = (trial for trial in trials if trial.number not in self._excused)
        first = list(islice(counted, FATAL_TRIALS))
        if len(first) < FATAL_TRIALS:
            return None
        if any(trial.state != "failed" or trial.reason == "diverged" for trial in first):
            return None
        errors = {trial.message or trial.reason for trial in first}
        return errors.pop() if len(errors) == 1 else None


def num_in_vain(rungs: Sequence[Rung], num_trials: int, undecided: Iterable[int]) -> int:
    """How many trials in a row have brought nothing better than one before them.

    They are those behind the best trial, by number, that have reached the first rung or ended. The
    best one has the best score at the highest rung that any has reached, of equals the earliest.
    Without a score anywhere all trials count.

    Args:
        rungs: The first one first.
        num_trials: How many there are.
        undecided: Those that are still on their way to the first rung.
    """
    best = next((rung.best for rung in reversed(rungs) if rung.scores), -1)
    return num_trials - 1 - best - sum(number > best for number in undecided)
