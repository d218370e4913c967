"""What each free slot does next: jobs handed out, reports judged, all following from the record."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from typing import Any, Final, Literal

from tuner.search_logic.rungs import Rung
from tuner.search_logic.sampling import Observation, Sampler, Specs, propose, settings_key
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
        trials: How many settings are tried at most.
        rungs: Lengths in images at which trials are compared, the last one the full length.
        max_failures: How often a trial is tried again after ``error``, ``killed`` or ``stalled``.
    """

    def __init__(
        self,
        record: Record,
        specs: Specs,
        *,
        trials: int,
        sampler: Sampler,
        scheduler: Scheduler,
        rungs: Sequence[int],
        reduction_factor: int,
        max_failures: int,
        seed: int,
    ) -> None:
        self._record = record
        self._specs = specs
        self._trials = trials
        self._sampler: Sampler = sampler
        self._lengths = tuple(rungs[-1:] if scheduler == "none" else rungs)
        self._is_stopping = scheduler == "asha_stopping"
        self._max_failures = max_failures
        self._seed = seed
        self._sign = 1.0 if record.direction == "maximize" else -1.0
        self._rungs = [Rung(reduction_factor) for _ in self._lengths]
        self._running: dict[int, Job] = {}
        self._unfinished: list[int] = []
        self._hopeless: list[int] = []
        self._ended: Counter[str] = Counter()
        self._exhausted = False
        self._tried = {settings_key(trial.settings) for trial in record.trials}
        self._rebuild()

    @property
    def exhausted(self) -> bool:
        """Whether the space holds no settings that have not been tried."""
        return self._exhausted

    @property
    def fatal(self) -> str | None:
        """The error that every attempt of the first three trials ended in, with no success yet."""
        raise NotImplementedError

    def counts(self) -> dict[str, int]:
        """Trials by state: running, waiting, complete, stopped, failed, infeasible."""
        raise NotImplementedError

    def next_job(self) -> Job | NoJob:
        """A job for a free slot; WAIT only while another job runs; END once nothing is left."""
        raise NotImplementedError

    def report(self, job: Job, result: Report) -> Decision:
        """Records a result and says whether the job goes on. After STOP it is no longer running."""
        raise NotImplementedError

    def fail(self, job: Job, reason: str, message: str = "") -> None:
        """Records that a job ended with `reason`; the trial is tried again or ends."""
        raise NotImplementedError

    def lost(self, jobs: Iterable[Job]) -> None:
        """Takes back jobs that were running when the engine was lost, at no charge to them."""
        raise NotImplementedError
