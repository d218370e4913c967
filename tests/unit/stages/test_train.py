"""What stage search decides before and after Ray: its record, its jobs, and why nothing came."""

import csv
from dataclasses import replace
from math import inf
from typing import Any
from unittest.mock import Mock

import pytest

from tests.unit.stages.conftest import PLAN, OpenCourse, record_of, report
from tuner.errors import RunError, StoppedError
from tuner.raytune.engine import RaySession, ray_session
from tuner.search_logic.jobs import END, Job, Jobs
from tuner.stages.confirm import confirm
from tuner.stages.course import Course
from tuner.stages.train import no_score, open_jobs, say_other_hardware, train_trials, why_none
from tuner.study.record import Record


def fail_every_trial(course: Course, record: Record, *reasons: tuple[str, str]) -> None:
    """End a trial for each reason and message."""
    jobs = open_jobs(course, record)
    for reason, message in reasons:
        job = jobs.next_job()
        assert isinstance(job, Job)
        jobs.fail(job, reason, message)


def test_jobs_are_those_that_the_settings_ask_for(course_of: OpenCourse) -> None:
    course = course_of("search.trials=3", "search.grace_epochs=3")
    jobs = open_jobs(course, record_of(course))
    job = jobs.next_job()
    assert isinstance(job, Job)
    assert job.until_samples == 900
    assert job.settings.keys() == {"optim.lr", "optim.name", "train.batch_size"}
    jobs.report(job, report(100, 0.5))
    jobs.report(job, report(300, 0.5))
    assert jobs.counts()["waiting"] == 1


def test_all_trials_go_on_while_none_is_better_than_guessing_one_of_two_classes(
    course_of: OpenCourse,
) -> None:
    course = course_of("search.grace_epochs=auto")
    jobs = open_jobs(course, record_of(course))
    for top1 in (0.6, 0.6, 0.7):
        job = jobs.next_job()
        assert isinstance(job, Job)
        jobs.report(job, report(100, top1))
    assert jobs.counts()["running"] == 1
    going_on = [jobs.next_job(), jobs.next_job()]
    assert [each.start_samples for each in going_on if isinstance(each, Job)] == [100, 100]


def test_a_search_without_a_score_says_every_reason_once_and_keeps_its_rows(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("search.trials=3")
    record = record_of(course)
    fail_every_trial(
        course, record, ("out_of_memory", "at 16"), ("diverged", "first"), ("diverged", "second")
    )
    with (
        ray_session(course.machine, course.search.folder) as session,
        pytest.raises(RunError) as caught,
    ):
        train_trials(course, record, session)
    assert caught.value.problems == (
        "no trial has a score: diverged (first); out_of_memory (at 16); "
        "mend it, then raise search.trials or use resume=never",
    )
    assert capsys.readouterr().out == "search    3 trials: 2 failed, 1 infeasible\n"
    with (course.search.folder / "leaderboard.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3


@pytest.mark.parametrize(
    ("trials", "kind", "what_to_do"),
    [
        (7, StoppedError, "mend it"),  # the command that goes on is said behind it
        (6, RunError, "mend it, then raise search.trials or use resume=never"),
    ],
)
def test_an_error_that_ended_the_search_is_to_be_mended_and_the_search_gone_on_with(
    course_of: OpenCourse, trials: int, kind: type[RunError], what_to_do: str
) -> None:
    course = course_of(f"search.trials={trials}", "search.max_failures=0")
    record = record_of(course)
    for message in ("no such file", "permission denied"):  # at one start and at the next
        jobs = fail_three(course, record, message)
    error = no_score(jobs, record, 0.0)
    assert type(error) is kind
    assert error.problems == (
        f"no trial has a score: three failed alike (permission denied); {what_to_do}",
    )


def test_more_trials_are_not_promised_where_every_combination_has_failed(
    course_of: OpenCourse,
) -> None:
    course = course_of("optim.lr=0.1", "optim.name=sgd", "search.max_failures=0")
    record = record_of(course)
    fail_three(course, record, "no such file")
    jobs = open_jobs(course, record)
    assert jobs.next_job() is END
    error = no_score(jobs, record, inf)
    assert type(error) is RunError
    assert error.problems == (
        "no trial has a score: error (no such file); mend it, then use resume=never",
    )


def fail_three(course: Course, record: Record, message: str) -> Jobs:
    """Start again, and let three trials fail with one error."""
    jobs = open_jobs(course, record)
    for _ in range(3):
        job = jobs.next_job()
        assert isinstance(job, Job)
        jobs.fail(job, "error", message)
    return jobs


def train_without_ray(course: Course, record: Record) -> None:
    """Do all of stage search where no trial is to be trained."""
    session = Mock(spec=RaySession)
    try:
        train_trials(course, record, session)
    finally:
        assert session.mock_calls == []


def over_budget(course: Course, *scores: float) -> Record:
    """Return the record of a search whose time is over, with a trial for each score."""
    record = record_of(course)
    jobs = open_jobs(course, record)
    for score in scores:
        job = jobs.next_job()
        assert isinstance(job, Job)
        jobs.report(job, report(100, score, search_s=61.0))
    return record


def test_a_start_whose_time_is_over_trains_nothing_and_says_how_to_go_on(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("search.time_budget_s=60")
    record = over_budget(course, 0.5, 0.4)
    journal = (course.search.folder / "study.journal").read_bytes()
    train_without_ray(course, record)
    assert capsys.readouterr().out.splitlines() == [
        "search    2 trials: 2 waiting",
        "search    the time is over: 2 trials waiting, 5 not begun; "
        "a larger search.time_budget_s goes on",
    ]
    assert (course.search.folder / "study.journal").read_bytes() == journal
    with (course.search.folder / "leaderboard.csv").open(newline="") as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["waiting", "waiting"]


def test_a_finished_search_says_nothing_of_its_time(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("search.time_budget_s=60", "search.trials=1")
    record = over_budget(course, 0.5)
    record.end(0, "complete")
    train_without_ray(course, record)
    assert capsys.readouterr().out == "search    1 trial: 1 complete\n"


def test_time_that_is_too_short_for_a_rung_is_left_and_that_is_said(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("search.time_budget_s=64")
    record = over_budget(course, 0.5, 0.4)  # at 61 s, and each rung takes 5 s or more
    train_without_ray(course, record)
    assert capsys.readouterr().out.splitlines() == [
        "search    2 trials: 2 waiting",
        "search    the time is too short for another rung (3 s left): 2 trials waiting, "
        "5 not begun; a larger search.time_budget_s goes on",
    ]


def test_time_that_is_too_short_for_a_first_rung_is_to_be_raised(course_of: OpenCourse) -> None:
    course = replace(course_of("search.time_budget_s=5"), images_per_s=10.0)
    assert course.seconds_per_image == pytest.approx(0.1 * (1 + 50 / 3 / 100))
    with pytest.raises(StoppedError) as caught:
        train_without_ray(course, record_of(course))
    assert caught.value.problems == (
        "search.time_budget_s: 5 s left, the first rung takes about 12 s; raise it",
    )


def test_a_search_that_has_run_out_of_patience_says_so_and_how_to_go_on(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("search.patience=2", "search.scheduler=none")
    record = record_of(course)
    jobs = open_jobs(course, record)
    while isinstance(job := jobs.next_job(), Job):
        jobs.report(job, report(900, 0.5 - job.trial_number / 10))
    for _ in range(2):  # at every start
        train_without_ray(course, record)
        assert capsys.readouterr().out.splitlines() == [
            "search    3 trials: 3 complete",
            "search    no better score in the last 2 trials: the search ends; "
            "a larger search.patience goes on",
        ]


def test_patience_that_ended_with_the_last_trial_is_not_told(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("search.patience=1", "search.scheduler=none", "search.trials=2")
    record = record_of(course)
    jobs = open_jobs(course, record)
    while isinstance(job := jobs.next_job(), Job):
        jobs.report(job, report(900, 0.5))
    train_without_ray(course, record)
    assert capsys.readouterr().out == "search    2 trials: 2 complete\n"


def test_trials_without_a_score_use_up_the_patience_too(course_of: OpenCourse) -> None:
    course = course_of("search.patience=1")
    record = record_of(course)
    fail_every_trial(course, record, ("diverged", "nan"))
    with pytest.raises(RunError) as caught:
        train_without_ray(course, record)
    assert type(caught.value) is RunError
    assert caught.value.problems == (
        "no trial has a score: diverged (nan); mend it, then raise search.patience or "
        "use resume=never",
    )


def test_a_used_up_space_is_told_once_at_every_start_and_nothing_is_started(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("optim.lr=0.1", "optim.name=sgd")
    record = record_of(course)
    jobs = open_jobs(course, record)
    while isinstance(job := jobs.next_job(), Job):
        jobs.report(job, report(900, 0.5))
    for _ in range(2):
        train_without_ray(course, record)
        assert capsys.readouterr().out.splitlines() == [
            "search    every combination of the space has been tried",
            "search    3 trials: 3 complete",
        ]


def test_time_that_is_over_before_any_score_is_to_be_raised(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("search.time_budget_s=1e-9")
    with pytest.raises(StoppedError) as caught:
        train_without_ray(course, record_of(course))
    assert caught.value.problems == (
        "search.time_budget_s: over before any trial had a score; raise it",
    )
    assert capsys.readouterr().out == ""
    assert not (course.search.folder / "leaderboard.csv").exists()


def test_why_none_tells_nothing_of_trials_that_did_not_fail(course_of: OpenCourse) -> None:
    course = course_of("search.trials=3")
    record = record_of(course)
    fail_every_trial(course, record, ("diverged", "nan"))
    record.end(record.add_trial({"optim.lr": 0.1}).number, "stopped")
    assert why_none(record) == "diverged (nan)"


@pytest.mark.parametrize(
    ("threads", "lines"),
    [
        ([], []),
        ([1], []),
        (
            [4, 1, 2],
            ["search    torch threads were 1, 2, 4 and are 1 now: the last bits of results differ"],
        ),
    ],
)
def test_other_threads_than_before_are_told(
    course_of: OpenCourse,
    capsys: pytest.CaptureFixture[str],
    threads: list[int],
    lines: list[str],
) -> None:
    record = record_of(course_of())
    record.add_trial({"optim.lr": 0.1})
    for place, each in enumerate(threads, start=1):
        record.add_report(0, report(100 * place, 0.5, threads=each))
    say_other_hardware(PLAN, record)
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(
    ("devices", "num_gpus", "lines"),
    [
        (["cpu"], 0, []),
        (["cuda"], 2, []),
        (["cpu"], 1, ["search    the device was cpu and is cuda now: results differ"]),
        (["cuda", "cpu"], 0, ["search    the device was cpu, cuda and is cpu now: results differ"]),
    ],
)
def test_another_device_than_before_is_told(
    course_of: OpenCourse,
    capsys: pytest.CaptureFixture[str],
    devices: list[str],
    num_gpus: int,
    lines: list[str],
) -> None:
    record = record_of(course_of())
    record.add_trial({"optim.lr": 0.1})
    for place, each in enumerate(devices, start=1):
        record.add_report(0, report(100 * place, 0.5, device=each))
    say_other_hardware(replace(PLAN, num_gpus=num_gpus), record)
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("override", ["search.confirm_top=0", "search.trials=1"])
def test_where_nothing_is_to_be_confirmed_there_is_no_study_of_runs(
    course_of: OpenCourse, override: str
) -> None:
    course = course_of(override)
    record = record_of(course)
    if override == "search.trials=1":
        fail_every_trial(course, record, ("diverged", "nan"))
    else:
        record.add_trial({"optim.lr": 0.1})
        record.add_report(0, report(900, 0.5))
        record.end(0, "complete")
    before = (course.search.folder / "study.journal").read_bytes()
    with ray_session(course.machine, course.search.folder) as session:
        assert confirm(course, record, session, "go on") is None
    assert (course.search.folder / "study.journal").read_bytes() == before


def test_confirm_runs_that_are_done_are_returned_without_ray(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("search.confirm_top=1", "search.confirm_seeds=1", "train.seed=7")
    record = record_of(course)
    record.add_trial({"optim.lr": 0.1})
    record.add_report(0, report(900, 0.5))
    record.end(0, "complete")
    runs = record.open_confirm()
    runs.add_trial({"optim.lr": 0.1, "train.seed": 8})
    runs.add_report(0, report(900, 0.25))
    runs.end(0, "complete")
    with ray_session(course.machine, course.search.folder) as session:
        found = confirm(course, record, session, "go on")
    assert found is not None
    assert found.trials == runs.trials
    assert capsys.readouterr().out == "confirm   1 run: 1 complete\n"


@pytest.mark.parametrize(
    ("seeds", "what_to_do"),
    [(3, "then raise search.confirm_seeds or use resume=never"), (4, "go on with: that command")],
)
def test_confirm_runs_that_failed_alike_are_to_be_mended_and_gone_on_with_where_they_can(
    course_of: OpenCourse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seeds: int,
    what_to_do: str,
) -> None:
    def fail_three_runs(
        course: Course, session: RaySession, jobs: Jobs, *others: Any, **asked: Any
    ) -> None:
        for _ in range(3):
            job = jobs.next_job()
            assert isinstance(job, Job)
            jobs.fail(job, "error", "no such file")

    monkeypatch.setattr("tuner.stages.confirm.run_stage", fail_three_runs)
    course = course_of(
        "search.confirm_top=1", f"search.confirm_seeds={seeds}", "search.max_failures=0"
    )
    record = record_of(course)
    record.add_trial({"optim.lr": 0.1})
    record.add_report(0, report(900, 0.5))
    record.end(0, "complete")
    confirm(course, record, Mock(spec=RaySession), "go on with: that command")
    assert capsys.readouterr().out.splitlines() == [
        f"confirm   ended, three runs failed alike: no such file; mend it; {what_to_do}",
        "confirm   3 runs: 3 failed",
    ]
