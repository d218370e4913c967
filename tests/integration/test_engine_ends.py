"""A program on a Ray of its own, ended in every way: nothing of it is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.thirdparty_files import psutil

from tests.integration.test_engine import PLAN, ListedJobs, Results
from tuner.planning.machine import look
from tuner.raytune.engine import ray_session, run_jobs
from tuner.raytune.scratch import scratch

PROGRAM = """
from pathlib import Path
from tests.integration.test_engine import ListedJobs, work
from tuner.planning.machine import look
from tuner.planning.resources import Plan
from tuner.raytune.engine import ray_session, run_jobs
with ray_session(look(), Path()) as session:
    run_jobs(
        session,
        Plan(2, 0.5, 0.0, 0, 1),
        ListedJobs(
            [{"pause_s": 0.05}] * 2,
            num_reports=10_000,
            on_report=lambda job, result: print("result", flush=True),
        ),
        work,
        {},
        max_restarts=0,
    )
"""


@pytest.fixture
def program(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.Popen[str]]:
    """Give PROGRAM in a folder of its own, once its trials have reported.

    There is no home folder, the temporary one has a name too long for sockets, and in it Ray keeps
    the address of a cluster that is gone.
    """
    temporary = tmp_path_factory.mktemp("long" * 30)
    (temporary / "ray").mkdir()
    (temporary / "ray" / "ray_current_cluster").write_text("127.0.0.1:6399")
    of_this_test = {
        "HOME": "/nonexistent",
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    of_the_cluster = ("RAY_", "TUNE_", "OMP_")
    environment = {
        name: value
        for name, value in (os.environ | of_this_test).items()
        if not name.startswith(of_the_cluster)
    }
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(4)] == ["result\n"] * 4
        yield process
        process.kill()


def test_without_rays_head_a_search_ends_at_once_and_leaves_nothing(
    program: subprocess.Popen[str], tmp_path: Path
) -> None:
    processes = psutil.Process(program.pid).children(recursive=True)
    next(each for each in processes if each.name() == "gcs_server").kill()
    _, stderr = program.communicate(timeout=15)

    assert program.returncode == 1
    assert stderr == ("error: ray: its head process (gcs_server) died, the same command goes on\n")
    assert not psutil.wait_procs(processes, timeout=15)[1]
    assert not list(tmp_path.iterdir())


def test_what_a_search_leaves_that_is_killed_with_its_reaper_goes_with_the_next_start(
    program: subprocess.Popen[str], tmp_path: Path
) -> None:
    processes = psutil.Process(program.pid).children(recursive=True)
    open_to = {
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    reaper = next(each for each in processes if "reaper.py" in " ".join(each.cmdline()))
    reaper.kill()
    os.killpg(program.pid, signal.SIGKILL)
    stdout, stderr = program.communicate(timeout=60)

    assert program.returncode == -signal.SIGKILL
    assert (set(stdout.splitlines()) <= {"result"}, stderr) == (True, "")
    assert open_to <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert len(processes) > PLAN.slots
    assert [path.name[:5] for path in tmp_path.iterdir()] == [".ray-"]
    with scratch(tmp_path):
        assert not psutil.wait_procs(processes, timeout=15)[1]
    assert not list(tmp_path.iterdir())


def hungry_work(job: Mapping[str, Any], context: Mapping[str, Any]) -> Results:
    """Report forever; take more and more memory by the settings."""
    eaten, samples_seen = [], 0
    while True:
        time.sleep(0.05)
        samples_seen += 1
        eaten.append(b"x" * job["settings"].get("bytes_per_report", 0))
        yield {"samples_seen": samples_seen, "pid": os.getpid()}


def test_what_rays_memory_monitor_kills_is_tried_again_and_ray_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = psutil.virtual_memory()
    free_share = memory.available / memory.total
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{1 - 0.85 * free_share:.4f}")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "1000")
    jobs = ListedJobs([{"bytes_per_report": memory.available // 80}, {}, {}], num_reports=40)

    with ray_session(look(), tmp_path) as session:
        run_jobs(session, replace(PLAN, gpus_per_trial=0), jobs, hungry_work, {}, max_restarts=0)

    # Which of them it kills, and whether it kills once more while memory is freed, is Ray's affair.
    failures = {(reason, message) for _, reason, message in jobs.failures}
    assert failures == {("killed", "the machine ran out of memory")}
    assert {number: results[-1][1]["samples_seen"] for number, results in jobs.results.items()} == {
        0: 40,
        1: 40,
        2: 40,
    }
