"""Processes with a trial's share of the machine each, that measure side by side.

Tune has no barrier, so these are plain actors of the same Ray.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tuner.errors import RunError, StoppedError
from tuner.planning.resources import GPU_CONTEXT_BYTES, Plan
from tuner.raytune.engine import RayLost, RaySession
from tuner.training.memory import fence_gpu_memory

# Importable in the probe's process: settings, seconds and the search's context, all plain, give a
# plain result.
ProbeWork = Callable[[Mapping[str, Any], float, Mapping[str, Any]], Mapping[str, Any]]

GRACE_S = 120.0  # beside the window: the first one imports torch, reads the data, builds the model
CHECK_EVERY_S = 1.0  # how often Ray is looked at meanwhile
EXIT_TIMEOUT_S = 30.0
RESOURCES_EVERY_S = 0.02  # Ray tells of free resources to who asks, and calls nobody


class Probe:
    """What Ray runs in a probe's process."""

    def __init__(self, work: ProbeWork, context: Mapping[str, Any], gpu_share: float) -> None:
        self._work = work
        self._context = context
        fence_gpu_memory(gpu_share, GPU_CONTEXT_BYTES)

    def ready(self) -> Mapping[str, Any]:
        """Returns which process this is, once it has started."""
        return {"pid": os.getpid()}

    def measure(self, settings: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        """Returns what the work returns, or why it raised."""
        try:
            return self._work(settings, seconds, self._context)
        except Exception as error:
            from tuner.training.memory import is_out_of_memory
            from tuner.training.result import describe_error

            reason = "out_of_memory" if is_out_of_memory(error) else "error"
            return {"reason": reason, "message": describe_error(error)}


@dataclass(frozen=True, slots=True)
class Running:
    """A started probe, and the call that tells its process once that is up."""

    actor: Any
    ready: Any


class Probes:
    """Probes that wait for something to measure; given by `probes`."""

    def __init__(
        self,
        session: RaySession,
        plan: Plan,
        work: ProbeWork,
        context: Mapping[str, Any],
        is_fenced: bool,
    ) -> None:
        import ray

        self._session = session
        self._arguments = (work, dict(context), plan.gpus_per_trial if is_fenced else 0.0)
        self._actor_class: Any = ray.remote(
            num_cpus=plan.cpus_per_trial, num_gpus=plan.gpus_per_trial
        )(Probe)
        self._free_before = free_resources()
        self._running: list[Running] = []

    def start(self, num_probes: int) -> None:
        """Starts so many more; returns when their processes are up."""
        actors = [self._actor_class.remote(*self._arguments) for _ in range(num_probes)]
        started = [Running(actor, actor.ready.remote()) for actor in actors]
        self._results([each.ready for each in started], GRACE_S)
        self._running += started

    def measure(
        self, settings: Mapping[str, Any], seconds: float, *, num_side_by_side: int | None = None
    ) -> list[Mapping[str, Any]]:
        """Returns what each probe measured, all at the same time, always in the same order.

        Args:
            settings: Go over those of the context.
            seconds: How long each of them measures.
            num_side_by_side: So many of the probes, the others idle; None is all.

        Returns:
            The work's result, or a `reason` and a `message`: ``error`` and ``out_of_memory`` where
            it raised; ``killed`` where its process died or did not answer, and is a new one for
            the next call.
        """
        chosen = self._running[:num_side_by_side]
        refs = [running.actor.measure.remote(dict(settings), seconds) for running in chosen]
        results = self._results(refs, seconds + GRACE_S)
        for place, result in enumerate(results):
            if result.get("reason") == "killed":
                self._replace(place)
        return results

    def close(self) -> None:
        """Ends all of them; returns when no process is left and what they had is free.

        Raises:
            RayLost: Ray's node manager died; the session ends the rest.
            RunError: Ray does not give it back.
        """
        self._session.check_alive()
        end(self._running)
        self._running = []
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        while any(free < self._free_before[kind] for kind, free in free_resources().items()):
            if time.monotonic() > deadline:
                raise RunError(f"ray: what the probes had is not free after {EXIT_TIMEOUT_S:g} s")
            time.sleep(RESOURCES_EVERY_S)

    def _replace(self, place: int) -> None:
        end([self._running.pop(place)])
        self.start(1)
        self._running.insert(place, self._running.pop())

    def _results(self, refs: Sequence[Any], timeout_s: float) -> list[Mapping[str, Any]]:
        """Returns the answer of each, or why there is none.

        Raises:
            RayLost: Ray's node manager died.
        """
        import ray

        deadline, waiting = time.monotonic() + timeout_s, list(refs)
        while waiting and (left := deadline - time.monotonic()) > 0:
            self._session.check_alive()
            _, waiting = ray.wait(
                waiting, num_returns=len(waiting), timeout=min(left, CHECK_EVERY_S)
            )
        silent = {"reason": "killed", "message": f"no answer within {timeout_s:g} s"}
        return [silent if ref in waiting else answer(ref) for ref in refs]


@contextmanager
def probes(
    session: RaySession,
    plan: Plan,
    work: ProbeWork,
    context: Mapping[str, Any],
    *,
    num_probes: int | None = None,
    is_fenced: bool = True,
) -> Iterator[Probes]:
    """Gives probes that run `work`; at the end no process of theirs is left.

    Args:
        session: The Ray to run them on; started if need be.
        plan: What each of them gets of the machine, and how many there are.
        work: What one does when asked to measure.
        context: The same for every call; plain and small.
        num_probes: How many instead of the plan's slots.
        is_fenced: Whether each keeps to its share of a card's memory, as a trial does.

    Raises:
        StoppedError: Ray was lost; `session` can be started again.
    """
    try:
        session.ensure_started()
        started = Probes(session, plan, work, context, is_fenced)
        # An interrupt passes at once: it ends the whole session, whatever is left of Ray.
        try:
            started.start(plan.slots if num_probes is None else num_probes)
            yield started
        except Exception:
            started.close()
            raise
        else:
            started.close()
    except RayLost as loss:
        session.stop()
        raise StoppedError(f"ray: lost while measuring, {loss}") from None


def answer(ref: Any) -> Mapping[str, Any]:
    """Returns what a call that has ended came to."""
    import ray
    from ray.exceptions import OutOfMemoryError, RayActorError, RayError

    from tuner.raytune.skins import KILLED, OUT_OF_HOST_MEMORY

    try:
        return ray.get(ref)
    except OutOfMemoryError:
        return OUT_OF_HOST_MEMORY
    except RayActorError:
        return KILLED
    except RayError as error:
        return {"reason": "error", "message": str(error).strip().split("\n")[-1]}


def end(running: Sequence[Running]) -> None:
    """Kills probes and what they have started; returns when no process of theirs is left."""
    import ray
    from ray.thirdparty_files import psutil

    processes = []
    for each in running:
        is_up, _ = ray.wait([each.ready], timeout=0)
        with suppress(psutil.NoSuchProcess):
            if is_up and (pid := answer(each.ready).get("pid")):
                process = psutil.Process(pid)
                processes += [process, *process.children(recursive=True)]
        ray.kill(each.actor)
    _, alive = psutil.wait_procs(processes, timeout=EXIT_TIMEOUT_S)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=EXIT_TIMEOUT_S)


def free_resources() -> dict[str, float]:
    """Returns the CPUs and GPUs that nobody has, as Ray counts them."""
    import ray

    free = ray.available_resources()
    return {kind: free.get(kind, 0.0) for kind in ("CPU", "GPU")}
