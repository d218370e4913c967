"""Checkpoints go as soon as nobody needs them, and what is handed over is always there."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.stages.conftest import OpenCourse, record_of, report
from tuner.search_logic.confirm import confirm_jobs, confirm_points
from tuner.search_logic.jobs import GO, Job, Jobs
from tuner.search_logic.keeping import BestTrials
from tuner.stages.course import Course
from tuner.stages.disk import Disk, look_at_disk
from tuner.stages.hand_over import find_winners
from tuner.stages.stored import StoredCheckpoints, confirm_checkpoints, search_checkpoints
from tuner.stages.train import open_jobs
from tuner.study.confirmed import confirmed
from tuner.study.record import Record
from tuner.training.checkpoint import CheckpointFolder
from tuner.trial import checkpoint_folder

SIZE = 700_000  # a little less than what is planned for the small space


class Stage:
    """The jobs of a stage, whose trials write a file before each report."""

    def __init__(
        self, course: Course, record: Record, jobs: Jobs, stored: StoredCheckpoints, stage: str
    ) -> None:
        self.course, self.record, self.jobs, self.stored = course, record, jobs, stored
        self._stage = stage

    def take(self) -> Job:
        job = self.jobs.next_job()
        assert isinstance(job, Job)
        self.stored.begin(job.trial_number)
        return job

    def write(self, number: int, samples_seen: int) -> None:
        path = self.files(number).path(samples_seen)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.truncate(path, SIZE)

    def train(self, job: Job, scores: dict[int, float]) -> None:
        """Report what is given; the last report ends the job, or it is given back."""
        decision = GO
        for samples_seen, top1 in scores.items():
            self.write(job.trial_number, samples_seen)
            decision = self.jobs.report(job, report(samples_seen, top1))
        if decision is GO:
            self.jobs.lost([job])
        self.stored.end(job.trial_number)

    def files(self, number: int) -> CheckpointFolder:
        folder = checkpoint_folder(self.course.search.folder, self._stage, number)
        return CheckpointFolder(folder, pytest.fail)

    def saved(self, numbers: Iterable[int]) -> list[list[int]]:
        return [self.files(number).saved() for number in numbers]


def search_stage(course: Course, record: Record, budget_bytes: int | None = None) -> Stage:
    """Return the search stage, with the budget of the settings if none is given."""
    jobs = open_jobs(course, record)
    stored = search_checkpoints(course, record, jobs)
    if budget_bytes is not None:
        looked_at = look_at_disk(course.search, course.plan, course.work)
        disk = Disk(
            replace(looked_at.budget, asked_gb=budget_bytes / 1e9),
            replace(looked_at.need, checkpoint_bytes=SIZE),
        )
        stored = StoredCheckpoints(disk, "search", record, jobs.likeliest_first, BestTrials(1))
    return Stage(course, record, jobs, stored, "search")


def confirm_stage(course: Course, record: Record, num_seeds: int = 1) -> Stage:
    runs = record.open_confirm()
    points = confirm_points(record, top=2, num_seeds=num_seeds, seed=0)
    jobs = confirm_jobs(runs, points, total_samples=900, max_failures=0)
    trial_jobs = open_jobs(course, record)
    stored = confirm_checkpoints(course, record, trial_jobs, runs)
    return Stage(course, runs, jobs, stored, "confirm")


def test_of_those_that_have_ended_only_the_best_keep_one_that_of_their_best_report(
    course_of: OpenCourse,
) -> None:
    course = course_of("search.scheduler=none", "search.keep_best=2")
    stage = search_stage(course, record_of(course))
    stage.train(stage.take(), {300: 0.3, 900: 0.2})
    assert stage.saved(range(1)) == [[300]]
    stage.train(stage.take(), {300: 0.5, 900: 0.6})
    stage.train(stage.take(), {300: 0.3, 900: 0.2})  # as good as the first, and later
    assert stage.saved(range(3)) == [[300], [900], []]
    stage.train(stage.take(), {300: 0.4, 900: 0.2})
    assert stage.saved(range(4)) == [[], [900], [], [300]]


@pytest.mark.parametrize("reason", ["diverged", "out_of_memory"])
def test_a_trial_that_failed_for_good_leaves_nothing(course_of: OpenCourse, reason: str) -> None:
    course = course_of("search.scheduler=none")
    stage = search_stage(course, record_of(course))
    job = stage.take()
    stage.write(0, 100)
    stage.jobs.report(job, report(100, 0.5))
    half_written = stage.files(0).path(200).with_name(".000000200.pt.4242.tmp")
    half_written.touch()
    stage.jobs.fail(job, reason)
    stage.stored.end(0)
    assert list(stage.files(0).folder.iterdir()) == []


def test_a_trial_that_is_tried_again_keeps_what_it_needs(course_of: OpenCourse) -> None:
    course = course_of("search.scheduler=none")
    stage = search_stage(course, record_of(course))
    job = stage.take()
    for samples_seen, top1 in ((100, 0.5), (200, 0.4), (300, 0.3), (400, 0.2)):
        stage.write(0, samples_seen)
        stage.jobs.report(job, report(samples_seen, top1))
    stage.jobs.fail(job, "killed")
    stage.stored.end(0)
    assert stage.saved([0]) == [[100, 300, 400]]


def test_what_a_killed_start_did_not_remove_goes_at_the_next(course_of: OpenCourse) -> None:
    course = course_of("search.scheduler=none", "search.keep_best=1")
    record = record_of(course)
    stage = search_stage(course, record)
    for top1 in (0.5, 0.6):
        job = stage.take()
        for samples_seen in (100, 900):
            stage.write(job.trial_number, samples_seen)
            stage.jobs.report(job, report(samples_seen, top1))
    again = search_stage(course, record)
    assert again.saved([0, 1]) == [[], [100]]


def test_a_new_trial_does_not_go_on_from_what_one_of_its_number_left_in_a_newer_study(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("search.trials=2")
    record = record_of(course)
    trials = search_stage(course, record)
    trials.write(trials.take().trial_number, 100)  # its report was not heard
    trials.write(1, 100)
    assert capsys.readouterr().out == ""
    again = search_stage(course, record)
    assert again.saved([0, 1]) == [[100], []]
    assert capsys.readouterr().out == (
        "disk      1 checkpoint of trials that the study does not have: removed\n"
    )
    again.train(again.take(), {900: 0.5})
    again.train(again.take(), {900: 0.4})
    confirm_stage(course, record).write(0, 900)
    assert confirm_stage(course, record).saved([0]) == [[]]


def test_trials_that_wait_give_theirs_up_where_it_must_be_and_that_is_told_once(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of()
    stage = search_stage(course, record_of(course), budget_bytes=8 * SIZE)
    stage.train(stage.take(), {50: 0.2, 60: 0.1, 100: 0.1})
    stage.train(stage.take(), {50: 0.1, 60: 0.1, 100: 0.3})
    stage.train(stage.take(), {50: 0.4, 60: 0.1, 100: 0.2})
    assert stage.take().trial_number == 1
    assert stage.saved([0, 1, 2]) == [[50, 100], [60, 100], [50, 100]]
    assert capsys.readouterr().out == ""
    job = stage.take()
    assert stage.saved([0, 1, 2]) == [[], [60, 100], [50]]
    assert capsys.readouterr().out == (
        "disk      the budget is used up: trials that wait give up their checkpoints, and are "
        "trained again from their start where they go on\n"
    )
    stage.train(job, {50: 0.1, 100: 0.1})
    assert stage.saved([2, 3]) == [[50], [50, 100]]
    stage.take()
    assert stage.saved([2, 3]) == [[50], []]
    assert capsys.readouterr().out == ""


def test_jobs_that_are_lost_keep_theirs_until_they_go_on(course_of: OpenCourse) -> None:
    course = course_of()
    stage = search_stage(course, record_of(course), budget_bytes=10 * SIZE)
    jobs = [stage.take(), stage.take()]
    for job in jobs:
        for samples_seen in (20, 40, 60):
            stage.write(job.trial_number, samples_seen)
    stage.jobs.lost(jobs)
    for job in jobs:
        stage.stored.end(job.trial_number)
    again = search_stage(course, stage.record, budget_bytes=10 * SIZE)
    assert [again.take().trial_number, again.take().trial_number] == [0, 1]
    assert again.saved([0, 1]) == [[40, 60], [40, 60]]


def test_a_folder_is_listed_when_its_trial_ends_and_at_no_other_time(
    course_of: OpenCourse, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = course_of("search.trials=200")
    stage = search_stage(course, record_of(course), budget_bytes=30 * SIZE)
    listed: list[Path] = []
    sizes = CheckpointFolder.sizes

    def counted(files: CheckpointFolder) -> dict[int, int]:
        listed.append(files.folder)
        return sizes(files)

    monkeypatch.setattr(CheckpointFolder, "sizes", counted)
    for number in range(200):
        job = stage.take()
        at_rung = 300 if job.start_samples else 100
        stage.train(job, {at_rung: 0.5})
        assert listed == [stage.files(job.trial_number).folder], number
        listed.clear()


def test_confirm_runs_get_the_room_of_trials_that_are_not_the_best(
    course_of: OpenCourse,
) -> None:
    course = course_of("search.scheduler=none", "search.trials=4", "resources.disk_budget_gb=0.011")
    trials = search_stage(course, record_of(course))
    for top1 in (0.1, 0.4, 0.2, 0.3):
        trials.train(trials.take(), {900: top1})
    assert trials.saved(range(4)) == [[900]] * 4
    runs = confirm_stage(course, trials.record)
    assert trials.saved(range(4)) == [[900]] * 4
    runs.take()
    assert trials.saved(range(4)) == [[], [900], [], [900]]


def test_the_budget_binds_confirm_runs_of_earlier_extensions_too(course_of: OpenCourse) -> None:
    budget = "resources.disk_budget_gb=0.0112"
    course = course_of("search.scheduler=none", "search.trials=2", budget)
    record = record_of(course)
    for num_trials in (2, 4, 6, 8):
        config = course.search.config.with_overrides({"search.trials": num_trials})
        search = replace(course.search, space=replace(course.search.space, config=config))
        course = replace(course, search=search)
        trials = search_stage(course, record)
        while len(record.trials) < num_trials:  # each better than the one before
            trials.train(trials.take(), {900: 0.1 + len(record.trials) / 20})
        runs = confirm_stage(course, record, num_seeds=2)
        for top1 in (0.4, 0.3, 0.2, 0.1):
            runs.train(runs.take(), {900: top1 + num_trials / 100})
        sizes = (each.stat().st_size for each in course.search.folder.rglob("*.pt"))
        assert sum(sizes) <= 11_200_000
        ranking = confirmed(record, runs.record)
        winner = find_winners(course.search, record, runs.record, ranking)[0]
        assert winner.confirmed is not None
        assert CheckpointFolder(winner.checkpoints, pytest.fail).saved() == [900]
    # The best run of each configuration is there, but for the least good one.
    assert [each for each in range(16) if runs.saved([each])[0]] == [0, 4, 5, 8, 9, 12, 13]


def test_every_configuration_keeps_the_best_of_its_best_complete_run(course_of: OpenCourse) -> None:
    course = course_of("search.scheduler=none", "search.trials=2", "search.keep_best=1")
    trials = search_stage(course, record_of(course))
    for _ in range(2):
        trials.train(trials.take(), {900: 0.5})
    runs = confirm_stage(course, trials.record)
    for _ in range(2):
        runs.train(runs.take(), {300: 0.6, 600: 0.5, 900: 0.4})
    assert runs.saved(range(2)) == [[300], [300]]
    again = confirm_stage(course, trials.record, num_seeds=2)
    assert again.saved(range(2)) == [[300], [300]]
    for top1 in (0.7, 0.6):  # of equals the earliest
        again.train(again.take(), {300: top1, 900: 0.4})
    assert again.saved(range(4)) == [[], [300], [300], []]


def test_a_run_is_kept_beside_a_better_one_of_its_configuration_whose_checkpoint_went(
    course_of: OpenCourse,
) -> None:
    course = course_of("search.scheduler=none", "search.trials=1")
    trials = search_stage(course, record_of(course))
    trials.train(trials.take(), {900: 0.5})
    runs = confirm_stage(course, trials.record)
    runs.train(runs.take(), {900: 0.6})
    runs.files(0).remove(900)
    again = confirm_stage(course, trials.record, num_seeds=3)
    again.train(again.take(), {900: 0.4})
    again.train(again.take(), {900: 0.5})
    assert again.saved(range(3)) == [[], [], [900]]


@pytest.mark.parametrize("is_confirmed", [None, False, True])
def test_the_weights_that_are_handed_over_are_there(
    course_of: OpenCourse, is_confirmed: bool | None
) -> None:
    course = course_of("search.scheduler=none", "search.trials=3", "search.keep_best=1")
    trials = search_stage(course, record_of(course))
    for top1 in (0.3, 0.5, 0.4):
        trials.train(trials.take(), {300: top1, 900: 0.2})
    runs = confirm_stage(course, trials.record) if is_confirmed is not None else None
    if runs and is_confirmed:
        for top1 in (0.1, 0.2):
            runs.train(runs.take(), {300: top1, 900: 0.05})
    elif runs:
        for _ in range(2):
            runs.jobs.fail(runs.take(), "diverged")
    record = runs.record if runs else None
    ranking = confirmed(trials.record, record) if record else []
    winner = find_winners(course.search, trials.record, record, ranking)[0]
    assert (winner.confirmed is not None) is bool(is_confirmed)
    assert CheckpointFolder(winner.checkpoints, pytest.fail).saved() == [300]
