"""Starts Ray on this machine, runs jobs on it, and leaves nothing behind."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.planning.resources import Plan
from tuner.raytune.trainable import Work
from tuner.search_logic.jobs import Job, Jobs


class RaySession:
    """A Ray of our own on this machine, started anew where it dies."""

    dashboard_url: str | None


@contextmanager
def ray_session(plan: Plan, run_folder: Path) -> Iterator[RaySession]:
    """Gives a running Ray; at the end, however it ends, none of its processes is left.

    Inside, SIGTERM and SIGHUP raise SystemExit(143 and 129), SIGINT raises KeyboardInterrupt.

    Raises:
        ResourceError: RAY_ADDRESS is set, or Ray cannot start here.
    """
    raise NotImplementedError
    yield


def run_jobs(
    session: RaySession,
    jobs: Jobs,
    work: Work,
    context: Mapping[str, Any],
    *,
    max_restarts: int,
    on_result: Callable[[Job, Mapping[str, Any]], None],
) -> None:
    """Runs jobs until there is none left, every slot busy.

    Args:
        session: The running Ray.
        jobs: Hands the jobs out and hears of every result and failure.
        work: What a job does, in the trial's process; given `dataclasses.asdict(job)`.
        context: The same for every job, plain.
        max_restarts: How often Ray may be lost and started again.
        on_result: Told every result after `jobs` has it; a failure has a `reason` and a `message`.

    Raises:
        RunError: Ray was lost more often than `max_restarts`.
    """
    raise NotImplementedError
