"""The study of the confirm runs, in the search's own journal."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.unit.study.conftest import SETTINGS, open_record, plain_trials
from tuner.errors import StudyError
from tuner.study.record import JOURNAL_NAME, Record

RUN = {**SETTINGS, "train.seed": 1}


def record_with_a_trial(folder: Path) -> Record:
    record = open_record(folder)
    record.add_trial(SETTINGS)
    record.add_report(0, {"samples_seen": 10, "top1": 0.5})
    record.end(0, "complete")
    return record


def play(runs: Record) -> Iterator[None]:
    """Adds every kind of event that a confirm run has, one for each step."""
    runs.add_trial(RUN)
    yield
    runs.add_failure(0, "killed", "gone")
    yield
    runs.add_report(0, {"samples_seen": 10, "top1": 0.25})
    yield
    runs.end(0, "complete")
    yield
    runs.add_trial({**SETTINGS, "train.seed": 2})
    yield
    runs.end(1, "failed", "diverged", "training loss is nan")
    yield


def test_both_studies_open_again_after_a_kill_at_any_byte(quick_path: Path) -> None:
    whole = quick_path / "whole" / JOURNAL_NAME
    record = record_with_a_trial(whole.parent)
    trials = list(record.trials)
    search_bytes = whole.stat().st_size
    runs = record.open_confirm()
    kept = [(whole.stat().st_size, list(runs.trials))]
    for _ in play(runs):
        kept.append((whole.stat().st_size, list(runs.trials)))
    cut = quick_path / "cut" / JOURNAL_NAME
    cut.parent.mkdir()
    for size_bytes in range(search_bytes, whole.stat().st_size + 1):
        shutil.copyfile(whole, cut)
        os.truncate(cut, size_bytes)
        expected = next((runs for size, runs in reversed(kept) if size <= size_bytes), [])
        record = open_record(cut.parent)
        assert record.trials == trials
        runs = record.open_confirm()
        assert runs.trials == expected
        if size_bytes % 7:
            continue
        runs.add_trial({**SETTINGS, "train.seed": 9})
        expected = list(runs.trials)
        record = open_record(cut.parent)
        assert record.trials == trials
        assert record.open_confirm().trials == expected


def test_what_happens_in_one_study_leaves_the_other_alone(tmp_path: Path) -> None:
    record = record_with_a_trial(tmp_path)
    runs = record.open_confirm()
    list(play(runs))
    other = {**SETTINGS, "optim.lr": 0.2}
    record.add_trial(other)
    assert [trial.settings for trial in record.trials] == [SETTINGS, other]
    assert [run.settings["train.seed"] for run in runs.trials] == [1, 2]
    reopened = open_record(tmp_path)
    assert reopened.trials == record.trials
    assert reopened.open_confirm().trials == runs.trials


def test_the_parameters_of_a_run_are_those_of_the_search_and_the_seed(tmp_path: Path) -> None:
    record = open_record(tmp_path)
    assert record.parameters == ["optim.lr", "train.batch_size"]
    assert record.open_confirm().parameters == ["optim.lr", "train.batch_size", "train.seed"]
    assert record.parameters == ["optim.lr", "train.batch_size"]


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_runs_are_judged_as_the_trials_are(tmp_path: Path, direction: str) -> None:
    runs = open_record(tmp_path, metric="top5", direction=direction).open_confirm()
    assert (runs.metric, runs.direction) == ("top5", direction)


def test_plain_optuna_shows_the_runs_under_a_name_of_their_own(tmp_path: Path) -> None:
    list(play(record_with_a_trial(tmp_path).open_confirm()))
    (trial,) = plain_trials(tmp_path)
    assert (trial.state, trial.value, trial.params) == (TrialState.COMPLETE, 0.5, SETTINGS)
    complete, failed = plain_trials(tmp_path, "small.confirm")
    assert (complete.state, complete.value) == (TrialState.COMPLETE, 0.25)
    assert complete.params == RUN
    assert failed.state == TrialState.FAIL


@pytest.mark.parametrize("name", ["large", "small.confirm"])
def test_a_renamed_folder_is_refused_with_confirm_runs_too(tmp_path: Path, name: str) -> None:
    record_with_a_trial(tmp_path).open_confirm()
    with pytest.raises(StudyError) as caught:
        open_record(tmp_path, name=name)
    assert caught.value.problems == (
        f"{tmp_path}: holds the search 'small', not {name!r}; "
        "call the folder 'small' again, or use another name=…",
    )


def test_a_search_may_be_called_like_a_study_of_confirm_runs(tmp_path: Path) -> None:
    record = open_record(tmp_path, name="small.confirm")
    record.add_trial(SETTINGS)
    record.open_confirm().add_trial(RUN)
    record = open_record(tmp_path, name="small.confirm")
    assert [trial.settings for trial in record.trials] == [SETTINGS]
    assert len(plain_trials(tmp_path, "small.confirm.confirm")) == 1
