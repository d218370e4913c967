"""The rules of jobs: which trial goes on, which is repeated, and when the search ends."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tests.unit.search_logic.conftest import Search, check, run_to_the_end
from tuner.search_logic.cube import settings_key
from tuner.search_logic.history import Observation
from tuner.search_logic.jobs import END, GO, STOP, WAIT, Job
from tuner.search_logic.sampling import START_UP_TRIALS, Sampler
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec
from tuner.study.record import JOURNAL_NAME


def test_a_promotable_trial_goes_on_and_the_others_wait(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=4)
    decisions = []
    for top1 in (0.5, 0.4, 0.6, 0.7):
        decisions.append(search.report(search.next_job(), 1000, top1))
    assert decisions == [STOP, STOP, GO, GO]
    assert search.jobs.counts()["waiting"] == 2


def test_a_trial_that_became_promotable_goes_on_before_a_new_one(tmp_path: Path) -> None:
    search = Search(tmp_path)
    for top1 in (0.5, 0.4, 0.3):
        assert search.report(search.next_job(), 1008, top1) is STOP
    job = search.next_job()
    assert (job.trial_number, job.start_samples, job.until_samples) == (0, 1008, 9000)
    assert search.next_job().trial_number == 3


def test_the_highest_rung_promotes_first(tmp_path: Path) -> None:
    search = Search(tmp_path)
    jobs = [search.next_job() for _ in range(6)]
    for number, top1 in ((3, 0.9), (4, 0.8), (5, 0.7)):
        assert search.report(jobs[number], 1000, top1) is STOP
    for number, top1 in ((0, 0.5), (1, 0.4), (2, 0.3)):
        assert search.report(jobs[number], 3000, top1) is STOP
    assert [search.next_job().trial_number for _ in range(4)] == [0, 3, 4, 6]


def test_equal_scores_are_promoted_by_trial_number(tmp_path: Path) -> None:
    search = Search(tmp_path)
    jobs = [search.next_job() for _ in range(3)]
    for job in reversed(jobs):
        last = search.report(job, 1000, 0.5)
    assert last is GO
    assert job.trial_number == 0


def test_a_loss_is_better_when_it_is_lower(tmp_path: Path) -> None:
    search = Search(tmp_path, direction="minimize")
    decisions = [search.report(search.next_job(), 1000, loss) for loss in (2.0, 1.0, 0.5)]
    assert decisions == [STOP, STOP, GO]


def test_a_report_counts_for_the_rung_that_it_is_the_first_to_reach(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=1)
    job = search.next_job()
    assert search.report(job, 990, 0.9) is GO
    assert search.report(job, 1024, 0.2) is STOP
    assert [rung.scores for rung in search.jobs._rungs] == [{0: 0.2}, {}, {}]


def test_stopping_ends_a_trial_below_the_top_share_at_once(tmp_path: Path) -> None:
    search = Search(tmp_path, scheduler="asha_stopping")
    first, second = search.next_job(), search.next_job()
    assert search.report(first, 1000, 0.5) is GO
    assert search.report(second, 1000, 0.4) is STOP
    assert search.states() == ["running", "stopped"]


def test_without_a_scheduler_every_trial_is_trained_in_full(tmp_path: Path) -> None:
    search = Search(tmp_path, scheduler="none", trials=3)
    for top1 in (0.9, 0.1, 0.5):
        job = search.next_job()
        decisions = [search.report(job, samples, top1) for samples in (1000, 3000, 9000)]
        assert decisions == [GO, GO, STOP]
    assert search.jobs.next_job() is END
    assert search.states() == ["complete"] * 3


@pytest.mark.parametrize("trials", [1, 2, 4])
def test_a_small_search_still_trains_its_best_trial_in_full(tmp_path: Path, trials: int) -> None:
    search = Search(tmp_path, trials=trials)
    while isinstance(job := search.jobs.next_job(), Job):
        for samples in range(job.start_samples + 1000, 9001, 1000):
            if search.report(job, samples, job.trial_number / 10) is STOP:
                break
    assert search.states() == ["stopped"] * (trials - 1) + ["complete"]


def test_the_last_promotion_waits_for_what_still_runs(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=2)
    first, second = search.next_job(), search.next_job()
    search.report(first, 1000, 0.5)
    assert search.jobs.next_job() is WAIT
    assert search.report(second, 1000, 0.6) is STOP
    assert search.next_job().trial_number == 1


def test_a_failed_trial_leaves_its_rungs_for_good(tmp_path: Path) -> None:
    search = Search(tmp_path)
    for top1 in (0.1, 0.2):
        search.report(search.next_job(), 1000, top1)
    best = search.next_job()
    assert search.report(best, 1000, 0.5) is GO
    search.jobs.fail(best, "diverged")
    check(search, {})
    search.restart()
    check(search, {})


def test_another_trial_takes_the_place_of_a_promoted_one_that_fails(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=2)
    for top1 in (0.5, 0.4):
        search.report(search.next_job(), 1000, top1)
    best = search.next_job()
    assert best.trial_number == 0
    search.jobs.fail(best, "diverged")
    assert search.next_job().trial_number == 1


def test_slots_wait_only_while_something_runs(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=1)
    job = search.next_job()
    assert search.jobs.next_job() is WAIT
    search.report(job, 9000, 0.5)
    assert search.jobs.next_job() is END
    assert search.jobs.next_job() is END


def test_a_score_of_another_number_type_reaches_the_model(tmp_path: Path) -> None:
    search = Search(tmp_path, scheduler="none", trials=5)
    for _ in range(5):
        search.report(search.next_job(), 9000, np.float64(0.5))
    scores = [score for seen in observed(search).values() for score in seen.scores.values()]
    assert [type(score) for score in scores] == [float] * 5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
def test_a_score_that_is_not_finite_ends_the_trial_as_diverged(
    tmp_path: Path, bad: float | None
) -> None:
    search = Search(tmp_path)
    assert search.jobs.report(search.next_job(), {"samples_seen": 500, "top1": bad}) is STOP
    trial = search.record.trials[0]
    assert (trial.state, trial.reason, trial.message) == (
        "failed",
        "diverged",
        "top1 is not a finite number",
    )
    assert trial.reports == ()


@pytest.mark.parametrize("reason", ["error", "killed", "stalled"])
def test_a_failed_attempt_is_repeated_from_its_last_report(tmp_path: Path, reason: str) -> None:
    search = Search(tmp_path, max_failures=2)
    job = search.next_job()
    search.report(job, 500, 0.1)
    for attempt in (2, 3):
        search.jobs.fail(job, reason, "boom")
        job = search.next_job()
        assert (job.trial_number, job.attempt, job.start_samples) == (0, attempt, 500)
    search.jobs.fail(job, reason, "boom")
    trial = search.record.trials[0]
    assert (trial.state, trial.reason, trial.message) == ("failed", reason, "boom")
    assert search.next_job().trial_number == 1


@pytest.mark.parametrize(
    ("reason", "state"), [("diverged", "failed"), ("out_of_memory", "infeasible")]
)
def test_what_the_settings_cause_is_not_repeated(tmp_path: Path, reason: str, state: str) -> None:
    search = Search(tmp_path)
    search.jobs.fail(search.next_job(), reason)
    assert search.states() == [state]


def test_lost_jobs_come_again_at_no_charge(tmp_path: Path) -> None:
    search = Search(tmp_path)
    jobs = [search.next_job() for _ in range(3)]
    search.jobs.lost(jobs)
    assert [search.next_job() for _ in range(3)] == jobs


def test_a_repeated_report_changes_nothing(tmp_path: Path) -> None:
    """A job may begin before its last report, where the newest checkpoint is damaged."""
    search = Search(tmp_path)
    job = search.next_job()
    search.report(job, 500, 0.1)
    size_bytes = (tmp_path / JOURNAL_NAME).stat().st_size
    assert search.report(job, 250, 0.9) is GO
    assert search.report(job, 500, 0.1) is GO
    assert (tmp_path / JOURNAL_NAME).stat().st_size == size_bytes


def test_more_trials_continue_a_finished_search(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=4)
    assert not search.jobs.is_finished
    run_to_the_end(search)
    assert search.jobs.is_finished
    before = list(search.record.trials)
    search.restart(trials=9)
    assert not search.jobs.is_finished
    run_to_the_end(search)
    assert list(search.record.trials)[:4] == before
    assert len(search.record.trials) == 9


IF_SGD = (("optim.name", "sgd"),)
THREE: list[Mapping[str, ParameterSpec]] = [
    {"train.batch_size": ChoiceSpec((32, 64, 128))},
    {"train.batch_size": IntSpec(32, 96, step=32), "train.clip_norm": FloatSpec(1.0, 1.0)},
    {"train.batch_size": IntSpec(7, 9, log=True), "train.epochs": IntSpec(2, 2)},
    {
        "optim.momentum": ChoiceSpec((0.8, 0.9), when=IF_SGD),
        "optim.name": ChoiceSpec(("adam", "sgd")),
    },
]


@pytest.mark.parametrize("specs", THREE)
@pytest.mark.parametrize("sampler", ["random", "auto"])
def test_a_used_up_space_ends_the_search_and_says_so(
    tmp_path: Path, specs: Mapping[str, ParameterSpec], sampler: Sampler
) -> None:
    search = Search(tmp_path, specs=specs, sampler=sampler, trials=20)
    while isinstance(job := search.jobs.next_job(), Job):
        assert not search.jobs.exhausted
        search.report(job, 9000, 0.5)
    assert search.jobs.exhausted
    assert len(search.record.trials) == 3
    search.restart()
    assert search.jobs.is_finished
    assert search.jobs.exhausted


def test_a_space_is_not_used_up_while_a_trial_may_still_go_on(tmp_path: Path) -> None:
    search = Search(tmp_path, specs=THREE[0], trials=20)
    for top1 in (0.5, 0.4, 0.3):
        search.report(search.next_job(), 1000, top1)
    search.restart()
    assert not search.jobs.is_finished
    assert search.next_job().trial_number == 0


def test_optuna_sees_how_far_a_stopped_trial_came_and_never_a_score_of_its_end(
    tmp_path: Path,
) -> None:
    """As a score of its end that of a short training would pass for one of a whole one."""
    search = Search(tmp_path, trials=8)
    run_to_the_end(search)
    study = optuna.load_study(
        study_name="s", storage=JournalStorage(JournalFileBackend(str(tmp_path / JOURNAL_NAME)))
    )
    complete = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    stopped = [trial for trial in study.trials if trial.state == TrialState.PRUNED]
    failed = [trial for trial in study.trials if trial.state == TrialState.FAIL]
    assert len(complete) + len(stopped) + len(failed) == 8
    assert all(max(trial.intermediate_values) == 9000 for trial in complete)
    assert {max(trial.intermediate_values) for trial in stopped} <= {1000, 3000}
    assert all(
        trial.state != "complete" for trial in search.record.trials if trial.samples_seen < 9000
    )
    assert study.best_trial in complete


POINTS = [{"optim.lr": rate, "train.batch_size": 32} for rate in (0.3, 0.1, 0.2)]


def proposed(search: Search) -> list[Mapping[str, Any]]:
    """The settings of every trial, once the search has ended."""
    run_to_the_end(search)
    return [trial.settings for trial in search.record.trials]


def test_given_points_come_first_and_count_as_trials(tmp_path: Path) -> None:
    without = proposed(Search(tmp_path / "without", trials=5))
    given = proposed(Search(tmp_path / "given", trials=5, points=POINTS))
    assert given == [*POINTS, *without[3:]]
    search = Search(tmp_path / "few", trials=2, points=POINTS)
    assert proposed(search) == POINTS[:2]
    assert search.jobs.is_finished


def test_a_point_is_tried_once_though_it_is_given_twice(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=4, points=[*POINTS, POINTS[0]])
    settings = proposed(search)
    assert settings[:3] == POINTS
    assert settings[3] not in POINTS


def test_points_given_later_are_tried_where_they_have_not_been(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=2, points=POINTS[1:])
    run_to_the_end(search)
    search.restart(trials=4, points=POINTS)
    settings = proposed(search)
    assert settings[:3] == [*POINTS[1:], POINTS[0]]
    assert len(settings) == 4


def observed(search: Search) -> dict[int, Observation]:
    """What the model is shown, by trial number."""
    numbers = {settings_key(trial.settings): trial.number for trial in search.record.trials}
    return {numbers[settings_key(seen.settings)]: seen for seen in search.jobs._history()}


def test_the_model_sees_how_far_every_trial_got_and_how_well(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=20)
    jobs = [search.next_job() for _ in range(8)]
    search.report(jobs[0], 3000, 0.1)
    search.report(jobs[1], 1000, 0.2)
    search.report(jobs[2], 900, 0.3)
    search.jobs.fail(jobs[3], "diverged")
    search.jobs.fail(jobs[4], "out_of_memory")
    for _ in range(2):
        search.jobs.fail(jobs[5], "killed")
        jobs[5] = search.next_job() if jobs[5].attempt == 1 else jobs[5]
    search.restart()
    seen = observed(search)
    assert {number: each.state for number, each in seen.items()} == {
        **dict.fromkeys((0, 1), "seen"),
        **dict.fromkeys((2, 6, 7), "running"),
        3: "failed",
        4: "infeasible",
    }
    assert {number: each.scores for number, each in seen.items() if each.scores} == {
        0: {1000: 0.1, 3000: 0.1},
        1: {1000: 0.2},
    }


def test_a_trial_that_was_promoted_is_seen_as_running_with_its_scores_so_far(
    tmp_path: Path,
) -> None:
    search = Search(tmp_path, trials=20, direction="minimize")
    for number in range(3):
        search.report(search.next_job(), 1000, number / 10)
    assert search.next_job().trial_number == 0
    seen = observed(search)[0]
    assert (seen.state, seen.scores) == ("running", {1000: 0.0})
    assert observed(search)[2].scores == {1000: -0.2}  # the higher is better


def test_the_model_takes_over_after_the_start_up(tmp_path: Path) -> None:
    def proposed_by(sampler: Sampler) -> list[Mapping[str, Any]]:
        return proposed(Search(tmp_path / sampler, trials=12, sampler=sampler, scheduler="none"))

    model, qmc = proposed_by("auto"), proposed_by("qmc")
    assert model[:START_UP_TRIALS] == qmc[:START_UP_TRIALS]
    assert model[START_UP_TRIALS] != qmc[START_UP_TRIALS]
