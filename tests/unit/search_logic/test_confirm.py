"""Every wanted confirm run is trained once, in full, whatever happens on the way."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.search_logic.conftest import SPACE
from tuner.search_logic.confirm import BestRuns, confirm_jobs, confirm_points
from tuner.search_logic.jobs import END, GO, STOP, WAIT, Job, Jobs, NoJob
from tuner.search_logic.keeping import hold
from tuner.study.record import Record

SEED = 7  # of the trials
FULL = 3000
RATES = (0.1, 0.2, 0.3, 0.4, 0.5)


class Confirm:
    """A search with finished trials, and its confirm stage, that can be started again."""

    def __init__(
        self,
        folder: Path,
        scores: Sequence[float | None] = (0.5, 0.7, 0.6),
        direction: str = "maximize",
        **asked: int,
    ) -> None:
        self.asked = {"top": 2, "num_seeds": 2, "max_failures": 1, **asked}
        self.folder, self.direction = folder, direction
        self.record = self.open_record()
        for score in scores:
            self.add_trial(score)
        self.start()

    def open_record(self) -> Record:
        asked: dict[str, Any] = {"parameters": SPACE, "direction": self.direction}
        return Record.open(
            self.folder, name="s", metric="top1", data_fingerprint="", settings_plain={}, **asked
        )

    def add_trial(self, score: float | None) -> None:
        """Adds a finished trial; without a score it is one that diverged."""
        number = self.record.add_trial({"optim.lr": RATES[len(self.record.trials)]}).number
        self.record.add_report(number, {"samples_seen": FULL, "top1": score or 0.99})
        if score is None:
            self.record.end(number, "failed", "diverged")
        else:
            self.record.end(number, "complete")

    def start(self, **changes: int) -> None:
        """Opens what is on disk, as a new process does."""
        self.asked |= changes
        self.record = self.open_record()
        self.points = confirm_points(
            self.record, top=self.asked["top"], num_seeds=self.asked["num_seeds"], seed=SEED
        )
        self.runs = self.record.open_confirm()
        self.jobs: Jobs = confirm_jobs(
            self.runs, self.points, total_samples=FULL, max_failures=self.asked["max_failures"]
        )

    def next_job(self) -> Job:
        job = self.jobs.next_job()
        assert isinstance(job, Job)
        return job

    def train(self, job: Job, samples_seen: int = FULL) -> None:
        self.jobs.report(job, {"samples_seen": samples_seen, "top1": 0.5})

    def train_all(self) -> None:
        while isinstance(job := self.jobs.next_job(), Job):
            self.train(job)

    def trained(self) -> list[tuple[float, int]]:
        """Learning rate and seed of every run so far."""
        return [(run.settings["optim.lr"], run.settings["train.seed"]) for run in self.runs.trials]


def test_the_best_are_trained_seed_by_seed_on_the_seeds_after_the_trials_own(
    tmp_path: Path,
) -> None:
    confirm = Confirm(tmp_path, num_seeds=3)
    confirm.train_all()
    assert confirm.trained() == [(0.2, 8), (0.3, 8), (0.2, 9), (0.3, 9), (0.2, 10), (0.3, 10)]
    assert {run.state for run in confirm.runs.trials} == {"complete"}


def test_where_less_is_better_the_lowest_are_trained(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path, direction="minimize", num_seeds=1)
    assert [point["optim.lr"] for point in confirm.points] == [0.1, 0.3]


def test_only_trials_with_a_score_are_trained(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path, (None, 0.5, None), num_seeds=2)
    assert [point["optim.lr"] for point in confirm.points] == [0.2, 0.2]


@pytest.mark.parametrize(
    ("scores", "asked", "num_points"),
    [
        ((0.5, 0.7), {"top": 9, "num_seeds": 2}, 4),
        ((0.5, 0.7), {"top": 0}, 0),
        ((None, None), {}, 0),
        ((), {}, 0),
    ],
)
def test_no_more_are_trained_than_there_are(
    tmp_path: Path, scores: Sequence[float | None], asked: dict[str, int], num_points: int
) -> None:
    confirm = Confirm(tmp_path, scores)
    confirm.start(**asked)
    assert len(confirm.points) == num_points
    confirm.train_all()
    assert len(confirm.runs.trials) == num_points


def test_of_each_configuration_the_best_run_is_kept_and_whatever_the_budget_where_it_may_win(
    tmp_path: Path,
) -> None:
    confirm = Confirm(tmp_path)
    trained(confirm, {8: (0.6, 0.7), 9: (0.5, 0.1)})  # of 0.2 and 0.3
    assert kept(confirm) == ([0, 1], {0})
    confirm.start(num_seeds=3)  # both have runs to come
    assert kept(confirm) == ([0, 1], {0, 1})
    trained(confirm, {10: (0.1, 0.8)})
    assert kept(confirm) == ([5, 0], {5})
    for score in (0.8, 0.9):
        confirm.add_trial(score)
    confirm.start(num_seeds=2)
    assert kept(confirm) == ([5, 0], {5})
    confirm.train(confirm.next_job())
    assert kept(confirm) == ([5, 6, 0], {5, 6})
    confirm.start(top=0)
    assert kept(confirm) == ([5, 6, 0], set())


def test_what_an_earlier_start_left_waiting_may_make_its_configuration_win(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path)
    trained(confirm, {8: (0.6, 0.7)})
    assert confirm.next_job().settings["optim.lr"] == 0.2
    for score in (0.8, 0.9):
        confirm.add_trial(score)
    confirm.start()  # 0.2 and 0.3 are no longer among the best two
    assert kept(confirm) == ([1, 0], {1, 0})
    trained(confirm, {9: (0.9,)})
    assert kept(confirm) == ([2, 1], {2})


def test_of_many_that_may_win_no_more_are_kept_whatever_the_budget_than_runs_are_asked_for(
    tmp_path: Path,
) -> None:
    confirm = Confirm(tmp_path, (0.5,), top=1)
    trained(confirm, {8: (0.7,)})
    confirm.next_job()
    for num_waiting, top1 in ((1, 0.5), (2, 0.6)):
        confirm.add_trial(0.6 + num_waiting / 10)
        confirm.start()
        assert [confirm.next_job().settings["train.seed"] for _ in range(num_waiting)] == (
            [9] * num_waiting
        )
        trained(confirm, {8: (top1,)})
        confirm.next_job()
    assert kept(confirm) == ([0, 4, 2], {0, 4})


def test_where_the_checkpoint_of_the_best_run_went_that_of_the_next_is_kept(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path, top=1, num_seeds=3)
    trained(confirm, {8: (0.5,), 9: (0.7,), 10: (0.6,)})
    assert kept(confirm) == ([1], {1})
    assert kept(confirm, lost=[1]) == ([2], {2})
    assert kept(confirm, lost=[0, 1, 2]) == ([], set())


def test_where_a_run_failed_its_configuration_is_kept_last(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path, max_failures=0)
    trained(confirm, {8: (0.9, 0.1)})
    confirm.jobs.fail(confirm.next_job(), "diverged")
    assert kept(confirm) == ([1, 0], {1, 0})
    trained(confirm, {9: (0.2,)})
    assert kept(confirm) == ([3, 0], {3})


def trained(confirm: Confirm, scores: dict[int, tuple[float, ...]]) -> None:
    """Train the next runs, whose seeds are named for the reader."""
    for seed, each in scores.items():
        for top1 in each:
            job = confirm.next_job()
            assert job.settings["train.seed"] == seed
            confirm.jobs.report(job, {"samples_seen": FULL, "top1": top1})


def kept(confirm: Confirm, lost: Sequence[int] = ()) -> tuple[list[int], set[int]]:
    """Return the runs that keep a checkpoint, and those that do whatever the budget."""
    top, num_seeds = confirm.asked["top"], confirm.asked["num_seeds"]
    choice = BestRuns(confirm.record, confirm.runs, top=top, num_seeds=num_seeds, seed=SEED)
    held = [hold(confirm.runs, run.number, {FULL: 1}) for run in confirm.runs.trials]
    ended = [each for each in held if each.has_ended and each.trial_number not in lost]
    return [each.trial_number for each in choice.ranked(ended)], choice.firm(ended, [])


def test_a_run_sets_what_its_trial_set_and_the_seed(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path)
    job = confirm.next_job()
    assert job.settings == {**confirm.record.trials[1].settings, "train.seed": SEED + 1}
    assert (job.start_samples, job.until_samples, job.attempt) == (0, FULL, 1)


def test_a_run_goes_on_to_the_full_length_however_bad_it_is(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path)
    for job in [confirm.next_job() for _ in range(4)]:
        decisions = [
            confirm.jobs.report(job, {"samples_seen": samples, "top1": 0.01 * job.trial_number})
            for samples in (1000, 2000, FULL)
        ]
        assert decisions == [GO, GO, STOP]


def test_the_stage_is_finished_with_its_last_run_and_not_before(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path)
    jobs = [confirm.next_job() for _ in range(4)]
    assert confirm.jobs.next_job() is WAIT
    for job in jobs:
        assert not confirm.jobs.is_finished
        confirm.train(job)
    assert confirm.jobs.is_finished
    assert confirm.jobs.next_job() is END
    confirm.start()
    assert confirm.jobs.is_finished


@pytest.mark.parametrize(("first", "then"), [(1, 3), (2, 5)])
def test_more_seeds_later_train_the_missing_runs_alone(
    tmp_path: Path, first: int, then: int
) -> None:
    confirm = Confirm(tmp_path, num_seeds=first)
    confirm.train_all()
    before = list(confirm.runs.trials)
    confirm.start(num_seeds=then)
    assert not confirm.jobs.is_finished
    confirm.train_all()
    assert confirm.jobs.is_finished
    assert confirm.runs.trials[: 2 * first] == before
    assert confirm.trained() == [
        (rate, SEED + seed) for seed in range(1, then + 1) for rate in (0.2, 0.3)
    ]


@pytest.mark.parametrize("fewer", [{"num_seeds": 1}, {"top": 1}])
def test_fewer_runs_later_leave_nothing_to_do(tmp_path: Path, fewer: dict[str, int]) -> None:
    confirm = Confirm(tmp_path)
    confirm.train_all()
    confirm.start(**fewer)
    assert confirm.jobs.is_finished
    assert confirm.jobs.next_job() is END
    assert len(confirm.runs.trials) == 4


def test_another_best_trial_adds_its_runs_and_keeps_the_old(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path)
    confirm.train_all()
    before = list(confirm.runs.trials)
    confirm.add_trial(0.65)
    confirm.start()
    assert not confirm.jobs.is_finished
    assert confirm.jobs.num_trials == 6
    confirm.train_all()
    assert confirm.jobs.is_finished
    assert confirm.runs.trials[:4] == before
    assert confirm.trained()[4:] == [(0.4, 8), (0.4, 9)]


def test_a_killed_stage_goes_on_from_the_last_reports(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path)
    jobs = [confirm.next_job() for _ in range(3)]
    confirm.train(jobs[0])
    confirm.train(jobs[1], 1000)
    confirm.start()
    again = [confirm.next_job() for _ in range(3)]
    assert [(job.trial_number, job.start_samples) for job in again] == [(1, 1000), (2, 0), (3, 0)]
    assert [job.settings for job in again[:2]] == [job.settings for job in jobs[1:]]
    assert [job.attempt for job in again] == [1, 1, 1]


def test_a_run_is_tried_again_as_often_as_a_trial_is(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path, max_failures=2)
    for attempt in (1, 2, 3):
        job = confirm.next_job()
        assert (job.trial_number, job.attempt) == (0, attempt)
        confirm.jobs.fail(job, "killed", "gone")
        confirm.start()
    run = confirm.runs.trials[0]
    assert (run.state, run.reason, run.message) == ("failed", "killed", "gone")
    assert confirm.next_job().trial_number == 1


def test_a_run_that_failed_for_good_is_done(tmp_path: Path) -> None:
    confirm = Confirm(tmp_path)
    confirm.jobs.fail(confirm.next_job(), "diverged", "training loss is nan")
    confirm.train_all()
    assert [run.state for run in confirm.runs.trials] == ["failed", *["complete"] * 3]
    assert confirm.jobs.is_finished
    confirm.start()
    assert confirm.jobs.is_finished


ACTIONS = st.tuples(
    st.sampled_from(["job", "job", "report", "report", "fail", "lost", "restart", "trial"]),
    st.integers(0, 3),
    st.sampled_from([500, 1000, FULL]),
    st.sampled_from(["error", "killed", "diverged", "out_of_memory"]),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, max_size=30), top=st.integers(1, 3), num_seeds=st.integers(1, 3))
def test_every_wanted_run_is_trained_once_in_whatever_order_things_happen(
    quick_path: Path,
    actions: list[tuple[str, int, int, str]],
    top: int,
    num_seeds: int,
) -> None:
    with tempfile.TemporaryDirectory(dir=quick_path) as folder:
        confirm = Confirm(Path(folder), top=top, num_seeds=num_seeds)
        running: dict[int, Job] = {}
        failures = 0

        def take_job() -> NoJob | None:
            job = confirm.jobs.next_job()
            if isinstance(job, NoJob):
                return job
            assert job.trial_number not in running
            run = confirm.runs.trials[job.trial_number]
            assert (run.state, job.start_samples) == ("running", run.samples_seen)
            running[job.trial_number] = job
            return None

        def advance(job: Job, samples: int) -> None:
            seen = confirm.runs.trials[job.trial_number].samples_seen
            result = {"samples_seen": min(seen + samples, FULL), "top1": 0.5}
            if confirm.jobs.report(job, result) is STOP:
                del running[job.trial_number]

        for action, which, samples, reason in actions:
            job = list(running.values())[which % len(running)] if running else None
            if action in ("restart", "trial"):
                if action == "trial" and len(confirm.record.trials) < len(RATES):
                    confirm.add_trial(0.65)
                confirm.start()
                running.clear()
            elif action == "lost":
                confirm.jobs.lost(running.values())
                running.clear()
            elif action == "job":
                take_job()
            elif action == "report" and job:
                advance(job, samples)
            elif action == "fail" and job:
                failures += 1  # three equal ones in the first three runs would end the stage
                confirm.jobs.fail(running.pop(job.trial_number), reason, f"failure {failures}")

        while (nothing := take_job()) is not END:
            assert not confirm.jobs.is_finished
            if nothing is WAIT:
                advance(next(iter(running.values())), FULL)
        assert confirm.jobs.is_finished
        assert running == {}
        wanted = [(point["optim.lr"], point["train.seed"]) for point in confirm.points]
        assert len(wanted) == top * num_seeds
        trained = confirm.trained()
        assert len(set(trained)) == len(trained)
        assert set(wanted) <= set(trained)
        for run in confirm.runs.trials:
            has_failed = run.state in ("failed", "infeasible")
            assert has_failed or (run.state, run.samples_seen) == ("complete", FULL)
