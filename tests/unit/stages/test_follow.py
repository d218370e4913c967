"""What happens to jobs is done, and shown as it was done."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, call

import pytest

from tests.unit.stages.conftest import OpenCourse, record_of, report
from tuner.errors import ResourceError
from tuner.raytune.engine import RaySession, ray_session
from tuner.reporting.live import LiveView
from tuner.search_logic.jobs import END, GO, STOP, WAIT, Job, Jobs
from tuner.settings.config import Config
from tuner.stages.clock import StageClock
from tuner.stages.course import Course
from tuner.stages.follow import FollowedJobs, counts_text, run_stage, trial_context
from tuner.stages.stored import search_checkpoints
from tuner.stages.train import open_jobs
from tuner.study.record import Record


class Followed:
    """Two trials, trained in full and tried again once, and all that was shown of them."""

    def __init__(self, course_of: OpenCourse, *overrides: str) -> None:
        asked = ("search.trials=2", "search.scheduler=none", "search.max_failures=1")
        course = course_of(*asked, *overrides)
        self.record = record_of(course)
        self.jobs = open_jobs(course, self.record)
        self.view = Mock(spec=LiveView)
        self.now_s = 0.0
        clock = StageClock(self.record, "search", 60, lambda: self.now_s)
        self.stored = search_checkpoints(course, self.record, self.jobs)
        self.followed = FollowedJobs(self.jobs, self.record, self.view, clock, self.stored)

    def take(self) -> Job:
        job = self.followed.next_job()
        assert isinstance(job, Job)
        return job

    def shown(self) -> list[object]:
        """Return what was shown since the last time."""
        calls: list[object] = list(self.view.method_calls)
        self.view.reset_mock()
        return calls


@pytest.fixture
def followed(course_of: OpenCourse) -> Followed:
    """Return jobs that are followed."""
    return Followed(course_of)


def test_a_job_is_shown_from_where_it_begins_and_nothing_where_there_is_none(
    followed: Followed,
) -> None:
    first, second = followed.take(), followed.take()
    assert followed.shown() == [call.begin(0, first.settings, 0), call.begin(1, second.settings, 0)]
    assert followed.followed.next_job() is WAIT
    followed.followed.report(first, report(100, 0.5))
    followed.followed.fail(first, "killed", "gone")
    followed.shown()
    assert followed.take().start_samples == 100
    assert followed.shown() == [call.begin(0, first.settings, 100)]


def test_a_report_is_shown_with_what_was_decided(followed: Followed) -> None:
    job = followed.take()
    followed.shown()
    early, last = report(100, 0.5), report(900, 0.25)
    assert followed.followed.report(job, early) is GO
    assert followed.followed.report(job, last) is STOP
    assert followed.shown() == [
        call.report(0, early, goes_on=True),
        call.report(0, last, goes_on=False),
    ]
    assert followed.record.trials[0].state == "complete"


def test_a_score_that_is_no_number_is_shown_as_the_failure_that_it_is(followed: Followed) -> None:
    job = followed.take()
    followed.shown()
    assert followed.followed.report(job, {**report(100, 0.5), "top1": None}) is STOP
    assert followed.shown() == [
        call.fail(0, "diverged", "top1 is not a finite number", is_final=True)
    ]


def test_a_failure_is_final_once_it_is_not_tried_again(followed: Followed) -> None:
    for is_final in (False, True):
        job = followed.take()
        followed.shown()
        followed.followed.fail(job, "killed", "gone")
        assert followed.shown() == [call.fail(0, "killed", "gone", is_final=is_final)]


def test_lost_jobs_are_taken_off_and_come_again(followed: Followed) -> None:
    jobs = [followed.take(), followed.take()]
    followed.shown()
    followed.followed.lost(iter(jobs))
    ((name, (numbers,), _),) = followed.view.method_calls
    assert (name, list(numbers)) == ("lost", [0, 1])
    assert [followed.take(), followed.take()] == jobs


def test_a_report_is_recorded_with_the_seconds_of_the_stage(followed: Followed) -> None:
    job = followed.take()
    followed.now_s = 12.345
    assert followed.followed.report(job, report(100, 0.5)) is GO
    assert followed.record.trials[0].reports == (report(100, 0.5, search_s=12.35),)


def test_a_job_ends_at_its_first_report_behind_the_budget_and_keeps_its_place(
    followed: Followed,
) -> None:
    job = followed.take()
    followed.now_s = 60.0
    followed.shown()
    late = report(100, 0.5)
    assert followed.followed.report(job, late) is STOP
    assert followed.shown() == [call.report(0, late, goes_on=False)]
    trial = followed.record.trials[0]
    assert (trial.state, trial.failures, trial.samples_seen) == ("running", 0, 100)
    assert counts_text(followed.jobs) == "1 waiting"
    assert followed.followed.next_job() is END
    followed.now_s = 20.0  # the other 800 images take 40 s
    assert followed.take().start_samples == 100


def test_a_job_ends_at_a_rung_where_the_next_one_is_out_of_reach(course_of: OpenCourse) -> None:
    followed = Followed(course_of, "search.scheduler=asha_stopping")
    job = followed.take()
    followed.now_s = 51.0  # 5 s for the first rung of 100 images: 10 more for the next
    assert followed.followed.report(job, report(100, 0.5)) is STOP
    trial = followed.record.trials[0]
    assert (trial.state, trial.samples_seen) == ("running", 100)
    new = followed.take()  # whose first rung there is time for
    assert (new.trial_number, new.start_samples) == (1, 0)
    followed.now_s = 50.0
    assert followed.take() == job_from(job, 100)


def job_from(job: Job, start_samples: int) -> Job:
    """Return the same job from another start."""
    return replace(job, start_samples=start_samples)


def test_a_trial_that_ends_behind_the_budget_has_ended(followed: Followed) -> None:
    job, diverged = followed.take(), followed.take()
    followed.now_s = 61.0
    assert followed.followed.report(job, report(900, 0.5)) is STOP
    assert followed.followed.next_job() is WAIT
    assert followed.followed.report(diverged, {**report(100, 0.5), "top1": None}) is STOP
    assert [trial.state for trial in followed.record.trials] == ["complete", "failed"]


def test_ends_are_counted_for_people(followed: Followed) -> None:
    assert counts_text(followed.jobs) == ""
    first, second = followed.take(), followed.take()
    assert counts_text(followed.jobs) == "2 running"
    followed.followed.report(first, report(900, 0.5))
    followed.followed.fail(second, "out_of_memory")
    assert counts_text(followed.jobs) == "1 complete, 1 infeasible"
    assert followed.followed.next_job() is END


@pytest.mark.parametrize("stage", ["search", "confirm"])
def test_jobs_of_a_stage_share_plain_values(
    course_of: OpenCourse, image_folder: Path, stage: str
) -> None:
    course = course_of("data.source=folder", f"data.root={image_folder}")
    decoded = trial_context(replace(course, decoded_bytes=1), course.search.config, stage)
    assert decoded["decoded_root"] == str(course.search.cache_root)
    context = trial_context(course, course.search.config, stage)
    assert Config.from_json(context.pop("config_json")) == course.search.config
    assert context == {
        "run_folder": str(course.search.folder),
        "images_root": str(image_folder),
        "threads": 1,
        "decoded_root": None,
        "stage": stage,
        "device_bytes": 0,
    }


def run_search(course: Course, session: RaySession, jobs: Jobs, record: Record) -> None:
    run_stage(
        course,
        session,
        jobs,
        record,
        StageClock(record, "search"),
        search_checkpoints(course, record, jobs),
        stage="search",
        rungs=[900],
        expected_samples=900,
    )


def test_a_stage_that_is_done_starts_no_ray_and_needs_no_room(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    no_room = "resources.disk_budget_gb=0.001"
    course = course_of("search.trials=1", "search.scheduler=none", no_room)
    record = record_of(course)
    jobs = open_jobs(course, record)
    job = jobs.next_job()
    assert isinstance(job, Job)
    jobs.report(job, report(900, 0.5))
    with ray_session(course.machine, course.search.folder) as session:
        run_search(course, session, jobs, record)
        assert not (session.scratch.ray_folder / "session_latest").exists()
    assert capsys.readouterr().out == ""


def test_more_slots_than_the_disk_has_room_for_are_refused_before_ray_starts(
    course_of: OpenCourse,
) -> None:
    course = course_of("resources.disk_budget_gb=0.02", "search.confirm_top=0")
    course = replace(course, plan=replace(course.plan, slots=8))
    record = record_of(course)
    jobs = open_jobs(course, record)
    with (
        ray_session(course.machine, course.search.folder) as session,
        pytest.raises(ResourceError) as caught,
    ):
        run_search(course, session, jobs, record)
    assert caught.value.problems == (
        "resources.disk_budget_gb: 0.02 wanted, the search needs 0.026 (34 checkpoints of "
        "0.757 MB, 4 for each of 8 side by side); use at least that or a lower "
        "search.max_concurrent",
    )
    assert record.trials == []
