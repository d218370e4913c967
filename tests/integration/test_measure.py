"""Probes on a real Ray, side by side; one Ray for the module."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.thirdparty_files import psutil

from tests.integration.conftest import Command
from tests.prepared import prepare_quietly
from tuner.planning.machine import Gpu, Machine
from tuner.planning.resources import Plan
from tuner.probe import measure_speed
from tuner.raytune import measure
from tuner.raytune.engine import RaySession, ray_session
from tuner.raytune.measure import Probes, probes
from tuner.settings.config import Config
from tuner.stages import measure as stage
from tuner.stages.course import Course, plan_trials
from tuner.stages.opening import open_search
from tuner.stages.work import count_images, plan_work
from tuner.trial import TrialContext

# Ray counts a card that torch does not find: work on its share runs on the CPU.
MACHINE = Machine(2.0, 2**34, 2**30, (Gpu("card", 2**35, 2**35),))
PLAN = Plan(slots=2, cpus_per_trial=0.5, gpus_per_trial=0.0, num_gpus=0, threads=1)


def work(settings: Mapping[str, Any], seconds: float, context: Mapping[str, Any]) -> dict[str, Any]:
    """Tell which process this is, or fail as the settings say, in the process they name."""
    fault = settings.get("fault")
    if settings.get("pid") == os.getpid():
        if fault == "raises":
            raise ValueError("no such image")
        if fault == "memory":
            raise MemoryError("too much")
        if fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hangs":
            time.sleep(600)
    return {"pid": os.getpid(), "context": dict(context)}


RAISING_LINE = work.__code__.co_firstlineno + 5


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RaySession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "3")
        with ray_session(MACHINE, tmp_path_factory.mktemp("run")) as session:
            yield session


@pytest.fixture
def context(image_folder: Path, tmp_path: Path) -> dict[str, Any]:
    """Return the context of a search in `tmp_path`, its images prepared."""
    config = Config().with_overrides(
        {
            "data.source": "folder",
            "data.root": str(image_folder),
            "data.image_size": 16,
            "train.batch_size": 24,
        }
    )
    prepare_quietly(config, tmp_path)
    return asdict(
        TrialContext(str(tmp_path), str(image_folder), config.to_json(), 1, str(tmp_path))
    )


def running(words: str) -> set[psutil.Process]:
    """Return the processes below this one that have these words in their command."""
    below = psutil.Process().children(recursive=True)
    return {each for each in below if words in " ".join(each.cmdline())}


def is_left(pid: int) -> bool:
    """Say whether a process can still do anything; Ray takes the dead off the list in its time."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def test_probes_measure_real_training_side_by_side_and_leave_nothing(
    session: RaySession, context: dict[str, Any]
) -> None:
    with probes(session, PLAN, measure_speed, context) as started:
        without = started.measure({"loader.num_workers": 0}, 0.1)
        beside = started.measure({"loader.num_workers": 1, "train.accumulate_steps": 2}, 0.1)
        alone = started.measure({}, 0.1, num_side_by_side=1)
        readers = running("tuner.data.worker")
        measurers = running("ray::Probe")

    assert [len(results) for results in (without, beside, alone)] == [2, 2, 1]
    for result in [*without, *beside, *alone]:
        assert result["images_per_s"] == result["num_images"] / result["seconds"] > 0
    assert len(measurers) == 2
    assert len(readers) == 1  # of the probe that had no call after
    assert not any(is_left(process.pid) for process in measurers | readers)
    assert ray.available_resources()["CPU"] == MACHINE.cpus


def test_what_a_work_raises_is_told_and_a_lost_process_is_a_new_one_for_the_next_call(
    session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with probes(session, PLAN, work, {"run": "first"}) as started:

        def measured(fault: str | None = None, pid: int | None = None) -> list[Mapping[str, Any]]:
            return started.measure({"fault": fault, "pid": pid}, 0.0)

        first = measured()
        pids = [[each["pid"] for each in first]]
        told = []
        for fault in ("raises", "memory", "dies", "hangs"):
            with monkeypatch.context() as patch:
                patch.setattr(measure, "GRACE_S", 2.0 if fault == "hangs" else measure.GRACE_S)
                failed, other = measured(fault, pid=pids[-1][0])
            told.append((failed["reason"], failed["message"]))
            assert other["pid"] == pids[-1][1]
            pids.append([each["pid"] for each in measured()])

    assert told == [
        ("error", f"ValueError: no such image (test_measure.py:{RAISING_LINE})"),
        ("out_of_memory", "too much"),
        ("killed", "its process died: killed, crashed or out of memory"),
        ("killed", "no answer within 2 s"),
    ]
    assert [each["context"] for each in first] == [{"run": "first"}] * 2
    ours, others = zip(*pids, strict=True)
    assert len(set(others)) == 1
    assert ours[0] == ours[1] == ours[2]
    assert len(set(ours)) == 3
    assert not any(is_left(pid) for pid in (*ours, *others))
    assert ray.available_resources()["CPU"] == MACHINE.cpus


def test_a_process_that_came_up_too_late_to_be_waited_for_is_ended_where_it_hangs(
    session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setattr(measure, "GRACE_S", 0.01)
            started = stack.enter_context(probes(session, PLAN, work, {}))
        pids = [each["pid"] for each in started.measure({}, 0.0)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # it hears nothing that Ray tells it
        monkeypatch.setattr(measure, "EXIT_TIMEOUT_S", 2.0)
    assert not any(map(is_left, pids))


def test_the_share_of_a_card_is_measured_and_leaves_nothing(
    session: RaySession, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(command.folder)
    monkeypatch.setattr(stage, "SHARE_WINDOW_S", 0.2)
    search = open_search(
        "tiny.yaml", ["data.root=images"], name=None, output="results", resume="auto"
    )
    plan = plan_trials(search, MACHINE)
    course = Course(search, MACHINE, plan, plan_work(search, *count_images(search)))
    search.folder.mkdir(parents=True)
    data = prepare_quietly(search.config, search.cache_root, search.folder)
    assert len(data.train) == course.work.num_images
    assert (plan.slots, plan.gpus_per_trial, plan.cpus_per_trial) == (1, 1.0, 2.0)
    assert stage.is_share_open(course)

    together: list[tuple[int, float]] = []

    def spy(self: Probes, *arguments: Any, num_side_by_side: int) -> list[Mapping[str, Any]]:
        results = measure_for_real(self, *arguments, num_side_by_side=num_side_by_side)
        together.append((num_side_by_side, sum(each["images_per_s"] for each in results)))
        return results

    measure_for_real = Probes.measure
    monkeypatch.setattr(Probes, "measure", spy)
    share = stage.find_gpu_share(course, session)

    # Each is warmed up first; the first pair is for the memory. Two at most: each has a core.
    assert [number for number, _ in together] == [1, 1, 1, 1, 2, 2]
    alone, both = together[3][1], together[5][1]
    assert share == (0.5 if 0.97 * max(alone, both) > alone else 1.0)
    shared = plan_trials(search, MACHINE, share)
    assert (shared.slots, shared.gpus_per_trial) == (round(1 / share), share)
    assert not running("ray::Probe")
    assert ray.available_resources()["GPU"] == 1
