"""Starts Ray on this machine, runs jobs on it, and leaves nothing behind.

Ray and what builds on it are imported inside functions, so that a refusal does not wait for them.
"""

import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import ResourceError, StoppedError, say_error
from tuner.files import free_text, is_disk_error
from tuner.planning.machine import Machine
from tuner.planning.resources import Plan
from tuner.raytune.environment import environment
from tuner.raytune.interrupts import Interrupts, leave
from tuner.raytune.reaper import end_users
from tuner.raytune.scratch import Scratch, scratch

if TYPE_CHECKING:
    from tuner.raytune.skins import JobDesk, JobSource
    from tuner.raytune.trainable import Work

OBJECT_STORE_BYTES = 80 * 2**20  # about Ray's least; a job or a result is a few hundred bytes
HEAD_CHECK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Where a running Ray can be watched, on loopback alone.

    Attributes:
        url: Of Ray's dashboard.
        token_path: The file that holds its login, which only this user can read.
        metrics_url: What Prometheus reads; there with and without a dashboard, and needs no login.
    """

    url: str
    token_path: Path
    metrics_url: str


# Told of the dashboard; None where nobody wants one.
OnDashboard = Callable[[Dashboard], None] | None


class RayLost(BaseException):
    """Ray does not start, its node manager is gone, or a trial's process never came up.

    Not an Exception: Tune would first wait for trials that nobody can reach any more.
    """


class RaySession:
    """A Ray of our own on this machine, given by `ray_session`.

    Attributes:
        scratch: Where its sockets, logs and records lie; gone at the end.
    """

    def __init__(
        self,
        machine: Machine,
        scratch: Scratch,
        interrupts: Interrupts,
        on_dashboard: OnDashboard,
        what_now: str,
    ) -> None:
        self.scratch = scratch
        self._machine = machine
        self._interrupts = interrupts
        self._on_dashboard = on_dashboard
        self._what_now = what_now
        self._is_started = False
        self._is_over = threading.Event()
        self._num_fits = 0

    def ensure_started(self) -> None:
        """Starts Ray's processes where they do not run yet: 3 s, or 5 s with the dashboard.

        Raises:
            RayLost: They do not come up.
        """
        if self._is_started:
            return
        import ray
        from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

        self._is_started = True
        # The session before, in the same process, had another login; Ray remembers it.
        AuthenticationTokenLoader.instance().reset_cache()
        # As Ray does on macOS: every socket on loopback. Its variable is read at import, too early.
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
        self._is_over = threading.Event()
        threading.Thread(
            target=watch_head, args=(self._is_over, self._what_now), name="head watch", daemon=True
        ).start()
        try:
            # Ray's own SIGTERM handler, in place until it is taken back, ends in SystemExit.
            with self._interrupts.replaced():
                started = ray.init(
                    address="local",
                    num_cpus=math.ceil(self._machine.cpus),
                    num_gpus=len(self._machine.gpus),
                    object_store_memory=OBJECT_STORE_BYTES,
                    include_dashboard=self._on_dashboard is not None,
                    dashboard_host="127.0.0.1",
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    _temp_dir=str(self.scratch.ray_folder),
                )
        except Exception as error:
            self.stop()
            if is_disk_error(error):
                raise
            reason = (str(error).splitlines() or [""])[0]
            free = free_text(self.scratch.folder)
            raise RayLost(
                f"it does not start ({type(error).__name__}: {reason}, {free})"
            ) from error
        # Lines on dead workers that come in spite of log_to_driver=False; the failed trial says it.
        ray._private.worker._worker_logs_enabled = False
        logging.getLogger("ray.tune.tune").addFilter(is_news)
        if self._on_dashboard:
            port = ray.nodes()[0]["MetricsExportPort"]
            self._on_dashboard(
                Dashboard(
                    url=f"http://{started.dashboard_url}",
                    token_path=self.scratch.token_path,
                    metrics_url=f"http://127.0.0.1:{port}/metrics",
                )
            )

    def stop(self) -> None:
        """Ends Ray, if it runs; returns when none of its processes is left."""
        if not self._is_started:
            return
        self._is_started = False
        self._is_over.set()
        import ray

        ray.shutdown()
        # What is left has nothing to save: trials whose node manager died, two of Ray's agents.
        end_users(self.scratch.folder, self.scratch.ray_folder.parent, but=os.getpid())

    def fit(self, desk: "JobDesk", trainable: Any, slots: int) -> None:
        """Works off the desk's jobs in one run of Tune, `slots` at a time.

        Raises:
            RayLost: Ray's node manager died; seen within a second.
        """
        from ray import tune

        from tuner.raytune.skins import JobScheduler, JobSearcher

        def on_step() -> None:
            self.check_alive()
            if desk.end_stalled():
                raise RayLost("a trial's process did not begin")

        self._num_fits += 1
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                num_samples=-1,
                search_alg=JobSearcher(desk),
                scheduler=JobScheduler(desk, on_step),
                reuse_actors=True,
                max_concurrent_trials=slots,
            ),
            run_config=tune.RunConfig(
                name=str(self._num_fits),
                storage_path=str(self.scratch.folder / "fits"),
                verbose=0,
            ),
        )
        tuner.fit()

    def check_alive(self) -> None:
        """Raises RayLost if Ray lost its node; Tune itself would wait for it for ever."""
        import ray

        node: Any = ray._private.worker._global_node
        if node is None or "raylet" in {kind for kind, _ in node.dead_processes()}:
            raise RayLost("its node manager (raylet) died")


@contextmanager
def ray_session(
    machine: Machine,
    run_folder: Path,
    on_dashboard: OnDashboard = None,
    *,
    what_now: str = "the same command goes on",
) -> Iterator[RaySession]:
    """Gives a Ray that starts when it is needed; at the end none of its processes is left.

    Inside, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, at once and only once; out of here
    SIGTERM and SIGHUP come as SystemExit 143 and 129. To be used in the main thread.

    Args:
        machine: What Ray may give to trials.
        run_folder: Held by the caller; Ray's files lie there meanwhile, and what a dead session
            left there goes.
        on_dashboard: Told of Ray's dashboard whenever one has started; without it there is none.
        what_now: Said to people at a signal, and if Ray's head process dies, which ends this
            process.

    Raises:
        ResourceError: RAY_ADDRESS is set, or there is no place for Ray's sockets.
    """
    check_address()
    with (
        Interrupts() as interrupts,
        scratch(run_folder) as found,
        environment(found.token_path),
    ):
        session = RaySession(machine, found, interrupts, on_dashboard, what_now)
        try:
            yield session
        except KeyboardInterrupt:
            say_error(f"stopped, {what_now}")
            raise
        finally:
            interrupts.close()
            session.stop()


def run_jobs(
    session: RaySession,
    plan: Plan,
    jobs: "JobSource",
    work: "Work",
    context: Mapping[str, Any],
    *,
    max_restarts: int,
    stall_timeout_s: float | None = None,
) -> None:
    """Runs jobs until there is none left, every slot busy.

    Args:
        session: The Ray to run them on.
        plan: How many run side by side, and what each of them gets.
        jobs: Hands the jobs out and hears of every result and failure, in this process.
        work: What a job does, in the trial's process; gets `dataclasses.asdict(job)` and `context`.
        context: The same for every job; plain and small.
        max_restarts: How often Ray may be lost and started again.
        stall_timeout_s: Seconds without a beat after which a job is ended as stalled.

    Raises:
        StoppedError: Ray was lost more often than that. What `jobs` raises comes through.
    """
    from tuner.raytune.skins import JobDesk
    from tuner.raytune.stalls import StallWatch
    from tuner.raytune.trainable import build_trainable

    beats_folder = session.scratch.beats_folder
    trainable = build_trainable(work, context, plan, beats_folder)
    num_losses = 0
    while True:
        desk = JobDesk(jobs, StallWatch(beats_folder, stall_timeout_s))
        try:
            session.ensure_started()
            if work_off(session, desk, trainable, plan.slots):
                return
        except RayLost as loss:
            num_losses += 1
            session.stop()  # first: nobody works on the jobs any more
            desk.give_back()
            if num_losses > max_restarts:
                raise StoppedError(
                    f"ray: lost {num_losses} times, at last because {loss}; "
                    f"search.max_restarts is {max_restarts}; nothing finished is lost"
                ) from loss


def work_off(session: RaySession, desk: "JobDesk", trainable: Any, slots: int) -> bool:
    """Says whether all jobs are done; else trials were killed for memory, and are charged with it.

    Raises:
        RayLost: Ray has to be started again. What the jobs raise comes through.
    """
    try:
        session.fit(desk, trainable, slots)
        return True
    except Exception as error:
        killed = killed_for_memory(error)
        if killed is None:
            session.check_alive()  # what it says may follow from that
            raise cause_of(error) from None
        if not desk.charge(killed):
            raise RayLost("its memory monitor killed a process of no trial") from error
        desk.give_back()
        return False


def cause_of(error: Exception) -> Exception:
    """Returns an error as it was before Tune wrapped it."""
    from ray.tune import TuneError

    while isinstance(error, TuneError) and isinstance(error.__context__, Exception):
        error = error.__context__
    return error


def killed_for_memory(error: Exception) -> set[int] | None:
    """Returns the processes that Ray's memory monitor killed; None where that was not the end."""
    from ray.exceptions import OutOfMemoryError

    if not isinstance(error.__cause__, OutOfMemoryError):
        return None
    selected = re.findall(r"^Selected to kill: .*", str(error), re.MULTILINE)
    return {int(pid) for line in selected for pid in re.findall(r"pid=(\d+)", line)}


def check_address() -> None:
    """Raises ResourceError where RAY_ADDRESS names a cluster: Ray would wait minutes for it."""
    address = os.environ.get("RAY_ADDRESS")
    if address:
        raise ResourceError(
            f"RAY_ADDRESS: names a Ray cluster ({address}), but a search starts its own Ray on "
            "this machine; unset RAY_ADDRESS"
        )


def watch_head(is_over: threading.Event, what_now: str) -> None:
    """Ends this process if Ray's head process dies, within a second, until `is_over`.

    At once and from beside: the main thread may wait in Ray's C++, which would end the process
    without a word 60 s later. The record has all that is finished, the reaper cleans up.
    """
    head = None
    while not is_over.wait(HEAD_CHECK_EVERY_S):
        if head is None:
            head = find_head()
        elif has_ended(head) and not is_over.is_set():
            leave(1, f"error: ray: its head process (gcs_server) died, {what_now}\n")


def find_head() -> Any | None:
    """Returns Ray's head process, a child of this one; None where there is none yet."""
    from ray.thirdparty_files import psutil

    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if child.name() == "gcs_server":
                return child
    return None


def has_ended(process: Any) -> bool:
    """Says whether a process is gone, or waits for its parent to hear of its end."""
    from ray.thirdparty_files import psutil

    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def is_news(record: logging.LogRecord) -> bool:
    """Says whether a line of Tune's tells something that the failed trials do not."""
    return not record.getMessage().startswith("Trials did not complete")
