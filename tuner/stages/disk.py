"""How much disk the checkpoints of a search may take, and how much they need."""

from dataclasses import dataclass
from pathlib import Path

from tuner.files import free_bytes
from tuner.planning.cost import Work
from tuner.planning.disk import DiskBudget, DiskNeed
from tuner.planning.resources import Plan
from tuner.reporting.terminal import say
from tuner.stages.opening import Search
from tuner.training.checkpoint import CheckpointFolder
from tuner.trial import checkpoint_folder


@dataclass(frozen=True, slots=True)
class Disk:
    """What the checkpoints of a search may take, and what they need."""

    budget: DiskBudget
    need: DiskNeed

    def check(self) -> None:
        """Refuses what cannot hold the trials that run side by side.

        Raises:
            ResourceError: Names what there is, what is needed, and what to do.
        """
        self.budget.check(self.need)


def look_at_disk(search: Search, plan: Plan, work: Work) -> Disk:
    """Returns what the checkpoints may take and need, those that are there already among them."""
    config = search.config
    of_trials, of_runs = (sizes_on_disk(search.folder, stage) for stage in ("search", "confirm"))
    sizes = [*of_trials, *of_runs]
    need = DiskNeed(
        slots=plan.slots,
        trials=work.trials,
        keep_best=config.search.keep_best,
        confirm_runs=work.confirm_runs,
        can_wait=config.search.scheduler == "asha",
        checkpoint_bytes=max([work.checkpoint_bytes, *sizes]),
        held_runs=len(of_runs),
    )
    budget = DiskBudget(
        folder=search.folder,
        asked_gb=config.resources.disk_budget_gb,
        free_bytes=free_bytes(search.folder),
        held_bytes=sum(sizes),
    )
    return Disk(budget, need)


def trial_numbers(folder: Path, stage: str) -> list[int]:
    """Returns the trials of a stage that have a folder for checkpoints, ascending."""
    root = checkpoint_folder(folder, stage, 0).parent
    return sorted(int(each.name) for each in root.glob("*") if each.name.isdecimal())


def sizes_on_disk(folder: Path, stage: str) -> list[int]:
    """Returns the bytes of every checkpoint of a stage."""
    folders = (checkpoint_folder(folder, stage, each) for each in trial_numbers(folder, stage))
    return [size for each in folders for size in CheckpointFolder(each, say).sizes().values()]
