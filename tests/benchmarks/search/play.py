"""One simulated search from its case: in a worker process, and with its files in memory."""

import os
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.benchmarks.search.algorithms import find_algorithm
from tests.benchmarks.search.results import Case, Store
from tests.benchmarks.search.simulate import Setup, simulate
from tests.benchmarks.search.tasks import Task

IN_MEMORY = Path("/dev/shm")
SAY_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a case: real seconds, and the traceback where it failed."""

    case: Case
    seconds: float
    error: str | None


def open_task(name: str, data: Path) -> Task:
    """The task of that name, from the data folder."""
    from tests.benchmarks.search import deepobs, lcbench

    if name in deepobs.TASKS:
        return deepobs.DeepOBSTask(name, data / "deepobs")
    return lcbench.LCBenchTask(name, data / "lcbench")


def play(case: Case, data: Path, store: Store) -> Played:
    """Plays one case and keeps its result."""
    began = time.perf_counter()
    try:
        _play(case, open_task(case.task, data), store)
    except Exception:  # the other cases go on; the command tells of it and fails in the end
        return Played(case, time.perf_counter() - began, traceback.format_exc())
    return Played(case, time.perf_counter() - began, None)


def _play(case: Case, task: Task, store: Store) -> None:
    reference = store.reference(task)
    setting = case.setting
    budget_s = setting.full_trainings * reference.full_s
    build = find_algorithm(case.algorithm.partition("@")[0]).build
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        setup = Setup(task.specs, task.num_epochs, setting.slots, case.seed, budget_s, Path(folder))
        run = simulate(
            task,
            build(setup),
            slots=setting.slots,
            budget_s=budget_s,
            start_s=setting.start_epochs * reference.full_s / task.num_epochs,
        )
    store.write(case, run)


def play_all(missing: Sequence[Case], data: Path, store: Store, num_processes: int) -> list[Played]:
    """Plays all cases, several at once, and says how far it is. Returns those that failed."""
    # Each process is one of several side by side: libraries of numbers get one thread each.
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    failed = []
    with ProcessPoolExecutor(
        num_processes, mp_context=get_context("spawn"), initializer=_begin_worker
    ) as pool:
        futures = [pool.submit(play, case, data, store) for case in missing]
        try:
            every = (future.result() for future in as_completed(futures))
            for played in _told(every, len(missing)):
                if played.error is not None:
                    failed.append(played)
                    print(f"{_name(played.case)}: failed\n{played.error}", flush=True)
        except KeyboardInterrupt:
            print("stopped; the searches at hand are played to their end", flush=True)
            pool.shutdown(cancel_futures=True)
            raise
    return failed


def _told(every: Iterator[Played], total: int) -> Iterator[Played]:
    """Passes on what was played, with a line of progress every few seconds."""
    began = said = time.monotonic()
    for number, played in enumerate(every, start=1):
        now = time.monotonic()
        if now - said >= SAY_EVERY_S or number == total:
            said = now
            left_s = (now - began) / number * (total - number)
            print(
                f"{number} of {total} searches, {(now - began) / 60:.1f} min, "
                f"about {left_s / 60:.0f} min left; last {_name(played.case)}, "
                f"{played.seconds:.1f} s",
                flush=True,
            )
        yield played


def _begin_worker() -> None:
    warnings.simplefilter("ignore")  # what the peers' own code warns of


def _name(case: Case) -> str:
    return f"{case.algorithm} {case.task} seed {case.seed} {case.setting}"
