"""How much disk the checkpoints of a search take, and whether there is enough for them."""

from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path

from tuner.errors import ResourceError

NEWEST_KEPT = 2  # of a trial: the newest, and the one before it should the newest be damaged
AT_REST = NEWEST_KEPT + 1  # of a trial that waits: its best, too
AT_WORK = AT_REST + 1  # of a trial in a slot: the one that is being written, too
BEST_TWO = 2  # the best trial that has ended, and the best that waits: it may still fail
LEFT_FREE = 0.1  # of the disk, where no budget is set


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """What a search holds on disk.

    Attributes:
        slots: Trials side by side.
        trials: Configurations tried.
        keep_best: Trials that keep a checkpoint once they have ended.
        confirm_runs: Full trainings of the confirm stage; no more runs than these ever need to keep
            a checkpoint, those of earlier starts among them.
        can_wait: Whether trials wait between two rungs.
        checkpoint_bytes: Size of the largest checkpoint.
        held_runs: Checkpoints of confirm runs that are there already.
    """

    slots: int
    trials: int
    keep_best: int
    confirm_runs: int
    can_wait: bool
    checkpoint_bytes: int
    held_runs: int = 0

    @property
    def least(self) -> int:
        """Checkpoints without which it cannot go on."""
        return AT_WORK * self.slots + BEST_TWO + self.confirm_runs

    def stage_bytes(self, stage: str) -> int:
        """Bytes without which a stage cannot go on: "search", or "confirm" with its last run."""
        at_rest = {"search": BEST_TWO, "confirm": self.confirm_runs}[stage]
        return (AT_WORK * self.slots + at_rest) * self.checkpoint_bytes

    @property
    def most_bytes(self) -> int:
        """Bytes of all that it ever holds at once where there is no budget."""
        resting = AT_REST * self.trials if self.can_wait else min(self.keep_best, self.trials)
        runs = self.confirm_runs + self.held_runs
        return (AT_WORK * self.slots + resting + runs) * self.checkpoint_bytes


@dataclass(frozen=True, slots=True)
class DiskBudget:
    """What the checkpoints of a search may take.

    Args:
        folder: Of the search.
        asked_gb: `resources.disk_budget_gb`; None is what is free.
        free_bytes: Free on the disk of the folder.
        held_bytes: Of the checkpoints that are there already.
    """

    folder: Path
    asked_gb: float | None
    free_bytes: int
    held_bytes: int

    @property
    def num_bytes(self) -> int:
        """All that they may take, those that are there among them."""
        if self.asked_gb is not None:
            return round(self.asked_gb * 1e9)
        return floor((1 - LEFT_FREE) * (self.free_bytes + self.held_bytes))

    def check(self, need: DiskNeed) -> None:
        """Refuses what cannot hold the trials that run side by side.

        Raises:
            ResourceError: Names what there is, what is needed, and what to do.
        """
        least_bytes = need.least * need.checkpoint_bytes
        if least_bytes <= self.num_bytes:
            return
        fewer = " or a lower search.max_concurrent" if need.slots > 1 else ""
        each_mb = f"{need.checkpoint_bytes / 1e6:.3g} MB"
        needed = (
            f"{_gb(ceil(least_bytes / 1e6))} ({need.least} checkpoints of {each_mb}, "
            f"{AT_WORK} for each of {need.slots} side by side)"
        )
        if self.asked_gb is not None:
            raise ResourceError(
                f"resources.disk_budget_gb: {self.asked_gb:g} wanted, the search needs {needed}; "
                f"use at least that{fewer}"
            )
        free, allowed = (_gb(each // 10**6) for each in (self.free_bytes, self.num_bytes))
        raise ResourceError(
            f"{self.folder}: {free} GB are free, checkpoints may take {allowed} and need {needed}; "
            f"make room, use another output=…{fewer}"
        )


def _gb(megabytes: int) -> str:
    return f"{megabytes / 1e3:.9g}"
