"""Jobs on a real Ray: one cluster for all but the tests that end it."""

import errno
import os
import re
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.request import urlopen

import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families
from ray.thirdparty_files import psutil

from tuner.errors import StoppedError
from tuner.planning.machine import Gpu, Machine
from tuner.planning.resources import Plan
from tuner.raytune.engine import RaySession, ray_session, run_jobs
from tuner.search_logic.jobs import END, GO, STOP, WAIT, Decision, Job, NoJob

Results = Generator[Mapping[str, Any], None, None]

# Two trials share the one card of a machine that shows only its fourth.
MACHINE = Machine(2, 2**33, 2**30, (Gpu("fourth", 2**34, 2**34),))
PLAN = Plan(slots=2, cpus_per_trial=0.5, gpus_per_trial=0.5, num_gpus=1, threads=1)
VISIBLE_CARD = "3"
EXPORT_EVERY_S = 1  # Ray's metrics, instead of every 10 s
FORGOTTEN_AFTER_S = 4 * EXPORT_EVERY_S  # exported once, a value is served for two more


def work(job: Mapping[str, Any], context: Mapping[str, Any]) -> Results:
    """Report forever what a trial's process sees; `fault` in the settings says how it fails."""
    fault = job["settings"].get("fault")
    samples_seen = job["start_samples"]
    while True:
        time.sleep(job["settings"].get("pause_s", 0.01))
        samples_seen += 1
        yield {
            "samples_seen": samples_seen,
            "pid": os.getpid(),
            "card": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "threads": os.environ["OMP_NUM_THREADS"],
            "folder": os.getcwd(),
            "context": dict(context),
        }
        if fault == "raises":
            raise ValueError("no such image")
        if fault == "finds the disk full":
            raise OSError(errno.ENOSPC, "No space left on device")
        if fault == "diverges":
            yield {"reason": "diverged", "message": "the loss is nan"}
        if fault == "returns":
            return
        if fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "stalls":
            time.sleep(600)


def scored_work(job: Mapping[str, Any], context: Mapping[str, Any]) -> Results:
    """Report a score, and no loss."""
    yield {"samples_seen": 2, "top1": job["settings"]["top1"], "train_loss": None, "pid": 1}


def served_metrics() -> dict[str, dict[tuple[str, str], float]]:
    """Return the values that Prometheus would read now, by metric, and by stage and trial."""
    port = ray.nodes()[0]["MetricsExportPort"]
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        family.name: {
            (sample.labels["stage"], sample.labels["trial"]): sample.value
            for sample in family.samples
        }
        for family in families
        if family.name.startswith("ray_tuner_")
    }


class ListedJobs:
    """One job for each settings; a killed one is tried again.

    Args:
        settings: Of each job.
        num_reports: After so many a job is stopped,
        num_processes: but none before so many processes have reported.
        on_report: Is told each.
    """

    def __init__(
        self,
        settings: list[dict[str, Any]],
        num_reports: int = 2,
        num_processes: int = 0,
        on_report: Callable[[Job, Mapping[str, Any]], None] = lambda job, result: None,
    ) -> None:
        self.num_processes = num_processes
        self.on_report = on_report
        self.processes: set[int] = set()
        self.waiting = [
            Job(number, each, 0, num_reports, 1) for number, each in enumerate(settings)
        ]
        self.running: dict[int, Job] = {}
        self.results: dict[int, list[tuple[float, dict[str, Any]]]] = {}
        self.failures: list[tuple[int, str, str]] = []
        self.given_back: list[int] = []
        self.most_at_once = 0

    def next_job(self) -> Job | NoJob:
        if not self.waiting:
            return WAIT if self.running else END
        job = self.waiting.pop(0)
        self.running[job.trial_number] = job
        self.most_at_once = max(self.most_at_once, len(self.running))
        return job

    def report(self, job: Job, result: dict[str, Any]) -> Decision:
        self.results.setdefault(job.trial_number, []).append((time.time(), result))
        self.processes.add(result["pid"])
        self.on_report(job, result)
        is_short = result["samples_seen"] < job.until_samples
        if is_short or len(self.processes) < self.num_processes:
            return GO
        del self.running[job.trial_number]
        return STOP

    def fail(self, job: Job, reason: str, message: str = "") -> None:
        del self.running[job.trial_number]
        self.failures.append((job.trial_number, reason, message))
        if reason == "killed":
            self.waiting.append(Job(job.trial_number, {}, 0, job.until_samples, job.attempt + 1))

    def lost(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            del self.running[job.trial_number]
            self.given_back.append(job.trial_number)
            self.waiting.append(job)


@pytest.fixture(scope="module")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RaySession]:
    """Give a running Ray with one logical card."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", VISIBLE_CARD)
        patch.setenv("RAY_metrics_report_interval_ms", str(1000 * EXPORT_EVERY_S))
        with ray_session(MACHINE, tmp_path_factory.mktemp("run")) as session:
            yield session


def run(
    session: RaySession,
    jobs: ListedJobs,
    *,
    context: Mapping[str, Any] | None = None,
    max_restarts: int = 0,
    stall_timeout_s: float | None = None,
) -> None:
    run_jobs(
        session,
        PLAN,
        jobs,
        work,
        context or {},
        max_restarts=max_restarts,
        stall_timeout_s=stall_timeout_s,
    )


def test_every_slot_is_busy_with_a_reused_process(ray_cluster: RaySession) -> None:
    jobs = ListedJobs([{"optim.lr": number / 10} for number in range(10)], num_processes=PLAN.slots)

    run(ray_cluster, jobs, context={"run": "results/first"})

    reports = [result for results in jobs.results.values() for _, result in results]
    assert len(jobs.processes) == PLAN.slots
    assert [jobs.results[number][0][1]["samples_seen"] for number in range(10)] == [1] * 10
    assert [len(jobs.results[number]) for number in range(2, 10)] == [2] * 8
    assert jobs.most_at_once == PLAN.slots
    assert {report["card"] for report in reports} == {VISIBLE_CARD}
    assert {report["threads"] for report in reports} == {"1"}
    assert {report["folder"] for report in reports} == {os.getcwd()}
    assert all(report["context"] == {"run": "results/first"} for report in reports)


def test_the_figures_of_a_trial_stay_between_its_reports_and_go_after_its_end(
    ray_cluster: RaySession,
) -> None:
    seen: list[dict[str, dict[tuple[str, str], float]]] = []

    def look(job: Job, result: Mapping[str, Any]) -> None:
        if job.trial_number == 0:
            return
        time.sleep(FORGOTTEN_AFTER_S)
        deadline = time.monotonic() + 60
        while not seen or ("confirm", "0") in seen[-1]["ray_tuner_samples_seen"]:
            assert time.monotonic() < deadline
            seen.append(served_metrics())

    run_jobs(
        ray_cluster,
        replace(PLAN, slots=1),
        ListedJobs([{"top1": 0.25}, {"top1": 0.5}], on_report=look),
        scored_work,
        {"stage": "confirm"},
        max_restarts=0,
    )

    assert seen[-1] == {
        "ray_tuner_samples_seen": {("confirm", "1"): 2.0},
        "ray_tuner_top1": {("confirm", "1"): 0.5},
    }


def test_a_failure_costs_only_its_trial(ray_cluster: RaySession) -> None:
    faults = ["raises", "diverges", "returns", "dies"]
    jobs = ListedJobs(
        [*({"fault": fault} for fault in faults), {}, {}], num_processes=PLAN.slots + 1
    )

    run(ray_cluster, jobs)

    *others, raised = sorted(jobs.failures, reverse=True)
    assert raised[:2] == (0, "error")
    assert re.fullmatch(r"ValueError: no such image \(test_engine\.py:\d+\)", raised[2])
    assert others[::-1] == [
        (1, "diverged", "the loss is nan"),
        (2, "error", "its work returned before samples_seen was 2"),
        (3, "killed", "its process died: killed, crashed or out of memory"),
    ]
    assert len(jobs.processes) == PLAN.slots + 1  # the killed one alone was replaced
    assert all(jobs.results[number][-1][1]["samples_seen"] >= 2 for number in (3, 4, 5))


def test_a_job_that_stalls_costs_only_its_trial(ray_cluster: RaySession) -> None:
    jobs = ListedJobs([{"fault": "stalls"}, {}, {}])

    run(ray_cluster, jobs, stall_timeout_s=8)

    assert jobs.failures == [(0, "stalled", "no batch for 8 s (search.stall_timeout_s)")]
    assert [len(jobs.results[number]) for number in range(3)] == [1, 2, 2]
    assert not list(ray_cluster.scratch.beats_folder.iterdir())


def test_an_error_of_the_jobs_ends_the_run_as_it_was_raised(ray_cluster: RaySession) -> None:
    disk_full = OSError(28, "No space left on device")

    def fail(job: Job, result: Mapping[str, Any]) -> None:
        raise disk_full

    with pytest.raises(OSError, match="No space left on device") as caught:
        run(ray_cluster, ListedJobs([{}], on_report=fail))

    assert caught.value is disk_full


def end_processes(name: str, ended: set[int]) -> Callable[[Job, Mapping[str, Any]], None]:
    """Return what kills a process of Ray's at a job's report, each once."""

    def end_ray(job: Job, result: Mapping[str, Any]) -> None:
        for process in psutil.Process().children():
            if process.name() == name and process.pid not in ended:
                process.kill()
                ended.add(process.pid)

    return end_ray


def test_a_full_disk_in_a_trial_s_process_ends_the_run_and_not_the_trial(
    ray_cluster: RaySession,
) -> None:
    jobs = ListedJobs([{"fault": "finds the disk full"}])

    with pytest.raises(StoppedError) as caught:
        run(ray_cluster, jobs)

    assert re.sub(r"[\d,]+ MB", "N MB", str(caught.value)) == (
        f"{ray_cluster.scratch.folder.parent}: a file cannot be read or written "
        "(No space left on device, N MB free); make room"
    )
    assert not jobs.failures


def test_a_lost_ray_is_started_again_so_many_times(ray_cluster: RaySession) -> None:
    ended: set[int] = set()
    jobs = ListedJobs([{"pause_s": 0.1}] * 3, 10_000, on_report=end_processes("raylet", ended))

    with pytest.raises(StoppedError) as caught:
        run(ray_cluster, jobs, max_restarts=1)

    assert str(caught.value) == (
        "ray: lost 2 times, at last because its node manager (raylet) died; "
        "search.max_restarts is 1; nothing finished is lost"
    )
    assert len(ended) == 2
    assert not jobs.running
    assert not jobs.failures
    assert len(jobs.given_back) == 2 * PLAN.slots
