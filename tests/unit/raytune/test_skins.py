"""Ray's questions reach the jobs, and the jobs' answers reach Ray, unchanged."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import cloudpickle
from ray.exceptions import RayActorError
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from tuner.errors import StoppedError
from tuner.raytune.skins import JobDesk, JobScheduler, JobSearcher
from tuner.raytune.stalls import StallWatch
from tuner.search_logic.jobs import END, GO, STOP, WAIT, Decision, Job, NoJob


class RecordedJobs:
    """Answers from a list, and keeps what it is told."""

    def __init__(self, answers: list[Job | NoJob | Decision]) -> None:
        self.answers = answers
        self.told: list[tuple[Any, ...]] = []

    def next_job(self) -> Any:
        return self.answers.pop(0)

    def report(self, job: Job, result: Any) -> Any:
        self.told.append(("report", job.trial_number, result))
        return self.answers.pop(0)

    def fail(self, job: Job, reason: str, message: str = "") -> None:
        self.told.append(("fail", job.trial_number, reason, message))

    def lost(self, jobs: Iterable[Job]) -> None:
        self.told.append(("lost", *(job.trial_number for job in jobs)))


def job(number: int) -> Job:
    return Job(number, {"optim.lr": 0.1}, start_samples=0, until_samples=9000, attempt=1)


def desk_for(
    *answers: Job | NoJob | Decision, beats: Path = Path("none")
) -> tuple[JobDesk, RecordedJobs]:
    jobs = RecordedJobs(list(answers))
    return JobDesk(jobs, StallWatch(beats, timeout_s=None)), jobs


def never() -> None:
    """Find Ray alive."""


def ray_result(result: dict[str, Any]) -> dict[str, Any]:
    return {"result": [result]}


def test_a_job_is_a_plain_config() -> None:
    desk, _ = desk_for(job(3))

    assert JobSearcher(desk).suggest("a") == {
        "job": {
            "trial_number": 3,
            "settings": {"optim.lr": 0.1},
            "start_samples": 0,
            "until_samples": 9000,
            "attempt": 1,
        }
    }
    assert desk.live == {"a": job(3)}


def test_no_job_now_and_no_job_ever_differ() -> None:
    searcher = JobSearcher(desk_for(WAIT, END)[0])

    assert searcher.suggest("a") is None
    assert searcher.suggest("a") == Searcher.FINISHED


def test_a_decision_is_passed_on() -> None:
    desk, jobs = desk_for(job(0), GO, STOP)
    scheduler = JobScheduler(desk, never)
    desk.take("a")

    trial = SimpleNamespace(trial_id="a")
    decisions = [
        scheduler.on_trial_result(None, trial, ray_result({"top1": top1})) for top1 in (1, 2)
    ]

    assert decisions == [TrialScheduler.CONTINUE, TrialScheduler.STOP]
    assert jobs.told == [("report", 0, {"top1": 1}), ("report", 0, {"top1": 2})]
    assert not desk.live


def test_a_result_with_a_reason_is_a_failure() -> None:
    desk, jobs = desk_for(job(0))
    desk.take("a")

    result = {"reason": "diverged", "message": None}
    trial = SimpleNamespace(trial_id="a")
    decision = JobScheduler(desk, never).on_trial_result(None, trial, ray_result(result))

    assert decision == TrialScheduler.STOP
    assert jobs.told == [("fail", 0, "diverged", "")]
    assert not desk.live


def test_a_checkpoint_that_cannot_be_written_ends_the_run_and_not_the_trial() -> None:
    desk, jobs = desk_for(job(0))
    desk.take("a")

    message = "trials/0000/000001000.pt: cannot be written (No space left on device)"
    result = {"reason": "cannot_write", "message": message}
    with pytest.raises(StoppedError) as caught:
        desk.report("a", result)

    assert caught.value.problems == (message,)
    assert jobs.told == []


def test_work_that_returns_before_it_is_told_to_stop_has_failed() -> None:
    desk, jobs = desk_for(job(0))
    desk.take("a")

    JobScheduler(desk, never).on_trial_complete(None, SimpleNamespace(trial_id="a"), {})

    assert jobs.told == [
        ("fail", 0, "error", "its work returned before samples_seen was 9000"),
    ]


def test_work_that_was_told_to_stop_has_not_failed() -> None:
    desk, jobs = desk_for(job(0), STOP)
    scheduler, trial = JobScheduler(desk, never), SimpleNamespace(trial_id="a")
    desk.take("a")

    scheduler.on_trial_result(None, trial, ray_result({"top1": 1}))
    scheduler.on_trial_complete(None, trial, {})

    assert [told[0] for told in jobs.told] == ["report"]


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (RayActorError(), "killed", "its process died: killed, crashed or out of memory"),
        (ValueError("first line\nlast line\n"), "error", "last line"),
    ],
)
def test_a_dead_process_is_told_from_an_error(
    tmp_path: Path, error: Exception, reason: str, message: str
) -> None:
    desk, jobs = desk_for(job(0))
    desk.take("a")
    file = tmp_path / "error.pkl"
    file.write_bytes(cloudpickle.dumps(error))

    trial = SimpleNamespace(trial_id="a", pickled_error_file=str(file))
    JobScheduler(desk, never).on_trial_error(None, trial)

    assert jobs.told == [("fail", 0, reason, message)]


def three_at_work(beats: Path) -> tuple[JobDesk, RecordedJobs]:
    """Return a desk whose jobs 0 and 1 run in processes 70 and 71; job 2 has not begun."""
    desk, jobs = desk_for(job(0), job(1), job(2), beats=beats)
    for trial_id in "abc":
        desk.take(trial_id)
    (beats / "a").write_text("70")
    (beats / "b").write_text("71")
    return desk, jobs


@pytest.mark.parametrize(
    ("killed", "charged"), [({70}, [0]), ({70, 71}, [0, 1]), ({99}, [2]), ({71, 99}, [1, 2])]
)
def test_only_who_was_killed_for_memory_is_charged(
    tmp_path: Path, killed: set[int], charged: list[int]
) -> None:
    desk, jobs = three_at_work(tmp_path)

    assert desk.charge(killed) == len(charged)
    desk.give_back()

    spared = [number for number in range(3) if number not in charged]
    assert jobs.told == [
        *(("fail", number, "killed", "the machine ran out of memory") for number in charged),
        ("lost", *spared),
    ]
    assert not desk.live
    assert not list(tmp_path.iterdir())


def test_a_process_that_was_ended_because_it_stalled_is_told_as_stalled(tmp_path: Path) -> None:
    seconds = iter([0.0, 1.0, 3.0])
    jobs = RecordedJobs([job(0)])
    desk = JobDesk(jobs, StallWatch(tmp_path, timeout_s=1.5, clock=lambda: next(seconds)))
    desk.take("a")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        (tmp_path / "a").write_text(str(process.pid))

        assert [desk.end_stalled() for _ in range(2)] == [False, False]
        assert process.wait(10) == -9
    desk.fail_killed("a")

    assert jobs.told == [("fail", 0, "stalled", "no batch for 1.5 s (search.stall_timeout_s)")]


def test_ray_is_looked_at_each_time_tune_asks_for_a_trial() -> None:
    looks: list[int] = []
    scheduler = JobScheduler(desk_for()[0], lambda: looks.append(1))

    scheduler.choose_trial_to_run(None)

    assert looks == [1]
