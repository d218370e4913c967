"""What ends a search before every trial has ended, and how the next start goes on from there."""

from itertools import cycle
from pathlib import Path

import pytest

from tests.unit.search_logic.conftest import Search, check, run_to_the_end
from tuner.search_logic.jobs import END, GO, STOP, WAIT, Scheduler
from tuner.study.record import JOURNAL_NAME


def fail_all_attempts(search: Search, num_trials: int, message: str) -> None:
    for _ in range(2 * num_trials):
        search.jobs.fail(search.next_job(), "error", message)


def test_the_same_error_in_the_first_three_trials_ends_the_search(tmp_path: Path) -> None:
    search = Search(tmp_path)
    fail_all_attempts(search, 2, "no such file")
    assert search.jobs.fatal is None
    fail_all_attempts(search, 1, "no such file")
    assert search.jobs.fatal == "no such file"
    assert search.jobs.next_job() is END


def test_a_search_that_has_been_mended_goes_on_with_new_trials(tmp_path: Path) -> None:
    search = Search(tmp_path)
    fail_all_attempts(search, 3, "no such file")
    search.restart()
    assert search.jobs.fatal is None
    assert not search.jobs.is_finished
    run_to_the_end(search)
    assert search.states()[:3] == ["failed"] * 3
    assert "failed" not in search.states()[4:]  # the helper lets trial 3 diverge
    assert len(search.states()) == 9
    assert search.jobs.is_finished


def test_an_error_that_has_not_been_mended_costs_three_more_trials(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=10)
    for num_failed in (3, 6):
        fail_all_attempts(search, 3, "no such file")
        assert search.jobs.fatal == "no such file"
        assert search.jobs.next_job() is END
        assert search.states() == ["failed"] * num_failed
        search.restart()
    fail_all_attempts(search, 1, "no such file")
    search.restart()  # killed: of the trial that has failed since nobody knows when it was
    fail_all_attempts(search, 3, "no such file")
    assert search.jobs.fatal == "no such file"


def test_a_new_error_is_named_though_more_than_three_had_failed_in_the_one_before(
    tmp_path: Path,
) -> None:
    search = Search(tmp_path, trials=20, max_failures=0)
    num_failed = 0
    for message in ("no such file", "permission denied", "no space"):
        jobs = [search.next_job(), search.next_job()]  # two slots
        for _ in range(3):
            search.jobs.fail(jobs.pop(0), "error", message)
            if search.jobs.fatal is None:
                jobs.append(search.next_job())
        assert search.jobs.fatal == message
        assert search.jobs.next_job() is WAIT
        search.jobs.fail(jobs.pop(), "error", message)
        assert search.jobs.next_job() is END
        num_failed += 4
        assert search.states() == ["failed"] * num_failed
        search.restart()


def test_where_no_trial_is_left_after_a_fatal_error_the_search_is_finished(tmp_path: Path) -> None:
    search = Search(tmp_path, trials=3)
    fail_all_attempts(search, 3, "no such file")
    search.restart()
    assert search.jobs.is_finished
    assert search.jobs.next_job() is END
    search.restart(trials=4)
    assert search.next_job().trial_number == 3


def test_other_errors_and_diverged_trials_do_not_end_the_search(tmp_path: Path) -> None:
    search = Search(tmp_path / "errors")
    for message in "abc":
        fail_all_attempts(search, 1, message)
    assert search.jobs.fatal is None
    search = Search(tmp_path / "diverged")
    for _ in range(3):
        search.jobs.fail(search.next_job(), "diverged", "top1 is not a finite number")
    assert search.jobs.fatal is None


def test_a_running_trial_may_still_prove_a_shared_error_wrong(tmp_path: Path) -> None:
    search = Search(tmp_path, max_failures=0)
    jobs = [search.next_job() for _ in range(4)]
    for job in jobs[:3]:
        search.jobs.fail(job, "error", "no such file")
    assert search.jobs.next_job() is WAIT
    search.report(jobs[3], 500, 0.3)
    assert search.next_job().trial_number == 4
    search.restart()
    assert search.jobs.fatal is None


def test_what_waits_at_a_fatal_error_goes_on_once_it_is_mended(tmp_path: Path) -> None:
    search = Search(tmp_path, max_failures=1)
    *first, last = [search.next_job() for _ in range(4)]
    search.jobs.fail(last, "error", "no such file")
    search.jobs.lost(first)
    fail_all_attempts(search, 3, "no such file")
    assert search.jobs.next_job() is END
    assert search.states() == ["failed"] * 3 + ["running"]
    check(search, {})
    search.restart()
    job = search.next_job()
    assert (job.trial_number, job.attempt) == (3, 2)


def test_nothing_is_begun_or_decided_once_the_time_is_over(tmp_path: Path) -> None:
    search = Search(tmp_path)
    for samples in (1000, 500):  # one that waits at a rung, one between two rungs
        job = search.next_job()
        search.report(job, samples, 0.5)
    search.jobs.lost([job])
    last = search.next_job()
    before = (tmp_path / JOURNAL_NAME).read_bytes()
    assert search.jobs.next_job(0.0) is WAIT
    search.jobs.lost([last])
    assert search.jobs.next_job(0.0) is END
    assert search.jobs.next_job(-1.0) is END
    assert (tmp_path / JOURNAL_NAME).read_bytes() == before
    assert search.states() == ["running", "running"]
    assert search.jobs.counts()["waiting"] == 2
    assert not search.jobs.is_finished
    check(search, {})


def test_as_long_as_there_is_time_it_changes_nothing(tmp_path: Path) -> None:
    search, other = Search(tmp_path / "a"), Search(tmp_path / "b")
    assert search.jobs.next_job(0.001) == other.jobs.next_job()


def test_a_job_ended_by_the_time_goes_on_at_its_report_and_at_no_charge(tmp_path: Path) -> None:
    search = Search(tmp_path)
    job = search.next_job()
    assert search.report(job, 500, 0.1) is GO
    search.jobs.lost([job])
    assert search.jobs.next_job(0.0) is END
    search.restart()
    again = search.next_job()
    assert (again.trial_number, again.start_samples, again.attempt) == (0, 500, 1)


def test_unfinished_trials_come_before_promotions_and_those_before_new_ones(
    tmp_path: Path,
) -> None:
    search = Search(tmp_path)
    for top1 in (0.5, 0.4, 0.3):
        assert search.report(search.next_job(), 1000, top1) is STOP
    promoted, new = search.next_job(), search.next_job()
    search.report(new, 500, 0.1)
    search.restart()
    assert [search.next_job().trial_number for _ in range(3)] == [
        new.trial_number,
        promoted.trial_number,
        4,
    ]


@pytest.mark.parametrize("scheduler", ["asha", "asha_stopping", "none"])
def test_a_search_whose_time_is_over_again_and_again_does_what_it_would_have_done(
    quick_path: Path, scheduler: Scheduler
) -> None:
    whole = Search(quick_path / "whole", scheduler=scheduler, sampler="tpe", trials=12)
    run_to_the_end(whole)
    search = Search(quick_path / "often", scheduler=scheduler, sampler="tpe", trials=12)

    ends = cycle([True, True, False])

    def is_over() -> bool:
        if not next(ends):
            return False
        search.jobs.lost(list(search.jobs._running.values()))
        assert search.jobs.next_job(0.0) is END
        check(search, {})
        return True

    run_to_the_end(search, is_over)
    assert search.record.trials == whole.record.trials
