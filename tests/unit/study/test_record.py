"""The record on disk: what a killed process, a full disk or another search leaves of it."""

import json
import os
import re
import resource
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tests.conftest import SmallDisk
from tests.unit.study.conftest import SETTINGS, open_record, plain_trials
from tuner.errors import StoppedError, StudyError
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec
from tuner.study.record import JOURNAL_NAME, Record, TrialRecord


def play_every_kind_of_event(record: Record) -> Iterator[Sequence[TrialRecord]]:
    """The trials after each event."""
    record.add_trial({"optim.lr": 0.1})
    yield list(record.trials)
    record.add_report(0, {"samples_seen": 1024, "nominal_samples": 1000, "top1": 0.25})
    yield list(record.trials)
    record.add_failure(0, "killed", "gone")
    yield list(record.trials)
    record.add_report(0, {"samples_seen": 2048, "nominal_samples": 2000, "top1": 0.5})
    yield list(record.trials)
    record.end(0, "complete")
    yield list(record.trials)
    for _ in range(3):
        record.add_trial({"optim.lr": 0.01})
        yield list(record.trials)
    record.end(1, "infeasible", "out_of_memory", "at 32 images")
    yield list(record.trials)
    record.end_all([2, 3], "stopped")
    yield list(record.trials)


def test_a_journal_cut_at_any_byte_opens_and_loses_at_most_its_last_event(quick_path: Path) -> None:
    whole = quick_path / "whole" / JOURNAL_NAME
    record = open_record(whole.parent)
    kept: list[tuple[int, Sequence[TrialRecord]]] = [(0, [])]
    for trials in play_every_kind_of_event(record):
        kept.append((whole.stat().st_size, trials))
    cut_folder = quick_path / "cut"
    cut_folder.mkdir()
    for size_bytes in range(whole.stat().st_size + 1):
        shutil.copyfile(whole, cut_folder / JOURNAL_NAME)
        os.truncate(cut_folder / JOURNAL_NAME, size_bytes)
        expected = next(trials for size, trials in reversed(kept) if size <= size_bytes)
        record = open_record(cut_folder)
        assert record.trials == expected
        if size_bytes % 7:
            continue
        record.add_trial(SETTINGS)
        expected = list(record.trials)
        record = open_record(cut_folder)
        assert record.trials == expected


def test_every_event_is_one_append_and_one_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = open_record(tmp_path)
    counting = Mock(wraps=os.fsync)
    monkeypatch.setattr(os, "fsync", counting)
    for num_events, _ in enumerate(play_every_kind_of_event(record), start=1):
        assert counting.call_count == num_events


def test_plain_optuna_shows_states_values_parameters_and_reports(tmp_path: Path) -> None:
    record = open_record(tmp_path)
    list(play_every_kind_of_event(record))
    record.add_trial(SETTINGS)
    record.end(4, "failed", "diverged", "top1 is not a finite number")
    record.add_trial(SETTINGS)
    complete, infeasible, stopped, _, failed, running = plain_trials(tmp_path)
    assert complete.state == TrialState.COMPLETE
    assert complete.value == 0.5
    assert complete.params == {"optim.lr": 0.1}
    assert complete.intermediate_values == {1000: 0.25, 2000: 0.5}
    assert complete.user_attrs["report:000002048"]["top1"] == 0.5
    assert complete.user_attrs["failure:1"] == {"reason": "killed", "message": "gone"}
    assert infeasible.state == stopped.state == TrialState.PRUNED
    assert infeasible.constraints == {"memory": 1.0}
    assert stopped.constraints == {}
    assert failed.state == TrialState.FAIL
    assert failed.user_attrs["end"]["reason"] == "diverged"
    assert running.state == TrialState.RUNNING


def test_the_metric_has_its_name_in_optuna(tmp_path: Path) -> None:
    open_record(tmp_path, metric="validation_loss", direction="minimize")
    storage = JournalStorage(JournalFileBackend(str(tmp_path / JOURNAL_NAME)))
    study = optuna.load_study(study_name="small", storage=storage)
    assert study.metric_names == ["validation_loss"]
    assert study.direction == optuna.study.StudyDirection.MINIMIZE


def test_what_is_not_finite_is_null_in_the_file_and_no_score(tmp_path: Path) -> None:
    record = open_record(tmp_path)
    record.add_trial(SETTINGS)
    record.add_report(0, {"samples_seen": 10, "top1": 0.2, "train_loss": float("inf")})
    trial = record.add_report(0, {"samples_seen": 20, "top1": float("nan")})
    assert [report["top1"] for report in trial.reports] == [0.2, None]
    assert record.best_report(0) == {"samples_seen": 10, "top1": 0.2, "train_loss": None}
    text = (tmp_path / JOURNAL_NAME).read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert plain_trials(tmp_path)[0].intermediate_values == {10: 0.2}


@pytest.mark.parametrize(
    ("direction", "samples_seen"), [("maximize", 20), ("minimize", 10)], ids=["up", "down"]
)
def test_the_best_report_is_the_earliest_of_the_best(
    tmp_path: Path, direction: str, samples_seen: int
) -> None:
    record = open_record(tmp_path, direction=direction)
    record.add_trial(SETTINGS)
    assert record.best_report(0) is None
    for samples, score in [(10, 0.2), (20, 0.9), (30, 0.2), (40, 0.9)]:
        record.add_report(0, {"samples_seen": samples, "top1": score})
    best = record.best_report(0)
    assert best is not None
    assert best["samples_seen"] == samples_seen


def test_a_trial_counts_its_images_seconds_and_failures(tmp_path: Path) -> None:
    record = open_record(tmp_path)
    trial = record.add_trial(SETTINGS)
    assert (trial.samples_seen, trial.seconds, trial.failures) == (0, 0.0, 0)
    record.add_report(0, {"samples_seen": 10, "top1": 0.1, "seconds": 1.5})
    record.add_failure(0, "killed", "")
    record.add_failure(0, "error", "boom")
    trial = record.add_report(0, {"samples_seen": 20, "top1": 0.2, "seconds": 2.0})
    assert (trial.samples_seen, trial.seconds, trial.failures) == (20, 3.5, 2)


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    space = {
        "flag": ChoiceSpec((True, False)),
        "text": ChoiceSpec(("a", None)),
        "rate": FloatSpec(0.0, 1.0),
        "count": IntSpec(1, 10, step=4),
    }
    settings = {"flag": False, "text": None, "rate": 0.1 + 0.2, "count": 9}
    record = open_record(tmp_path, parameters=space)
    record.add_trial(settings)
    record = open_record(tmp_path, parameters=space)
    assert record.trials[0].settings == settings
    assert list(map(type, record.trials[0].settings.values())) == [
        bool,
        type(None),
        float,
        int,
    ]


@pytest.mark.parametrize("name", [f"{JOURNAL_NAME}.lock", f"{JOURNAL_NAME}.lock12-34.rename"])
@pytest.mark.parametrize("points_to", [None, JOURNAL_NAME, "gone"])
def test_a_lock_left_by_a_killed_process_costs_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, points_to: str | None
) -> None:
    open_record(tmp_path)
    left = tmp_path / name
    if points_to is None:
        left.touch()
    else:
        left.symlink_to(points_to)
    monkeypatch.setattr(time, "sleep", pytest.fail)  # what Optuna does while a lock is held
    record = open_record(tmp_path)
    record.add_trial(SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == [JOURNAL_NAME]


def test_a_changed_search_is_refused_with_every_difference_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_record(tmp_path)
    changes: dict[str, Any] = {
        "data_fingerprint": "beef",
        "parameters": {"optim.lr": FloatSpec(0.01, 1.0, log=True), "optim.momentum": SPACE_CHOICE},
        "settings_plain": {"train.epochs": 12, "train.batch_size": 128},
    }
    with pytest.raises(StudyError) as caught:
        open_record(tmp_path, **changes)
    what_to_do = "change it back, or begin a new search from the best of this one: resume=never"
    assert caught.value.problems == (
        *(
            f"{tmp_path}: {change}"
            for change in [
                "the images are others",
                'optim.lr was {"log": [0.001, 1.0]} and is now {"log": [0.01, 1.0]}',
                'train.batch_size was {"choices": [32, 64]} and is now 128',
                "train.epochs was 9 and is now 12",
                'optim.momentum was absent and is now {"choices": [0.0, 0.9]}',
            ]
        ),
        f"{what_to_do} search.points={tmp_path}",
    )
    monkeypatch.chdir(tmp_path.parent)
    with pytest.raises(StudyError) as caught:
        open_record(tmp_path, **changes)
    assert caught.value.problems[-1] == f"{what_to_do} search.points={tmp_path.name}"
    open_record(tmp_path)
    with pytest.raises(StudyError, match='direction was "maximize" and is now "minimize"'):
        open_record(tmp_path, direction="minimize")


def test_a_search_by_another_metric_is_refused_and_gives_no_points(tmp_path: Path) -> None:
    open_record(tmp_path)
    with pytest.raises(StudyError) as caught:
        open_record(tmp_path, metric="validation_loss", direction="minimize")
    assert caught.value.problems == (
        f'{tmp_path}: metric was "top1" and is now "validation_loss"',
        "change it back, or begin a new search: resume=never",
    )


SPACE_CHOICE = ChoiceSpec((0.0, 0.9))


def test_a_folder_of_another_search_is_refused(tmp_path: Path) -> None:
    open_record(tmp_path)
    with pytest.raises(StudyError) as caught:
        open_record(tmp_path, name="large")
    assert caught.value.problems == (
        f"{tmp_path}: holds the search 'small', not 'large'; "
        "call the folder 'small' again, or use another name=…",
    )


def test_a_moved_folder_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = open_record(Path("here"))
    record.add_trial(SETTINGS)
    Path("here").rename("there")
    record = open_record(Path("there"))
    record.add_report(0, {"samples_seen": 10, "top1": 0.5})
    assert len(record.trials) == 1


def test_a_damaged_journal_is_refused_and_left_alone(tmp_path: Path) -> None:
    record = open_record(tmp_path)
    record.add_trial(SETTINGS)
    path = tmp_path / JOURNAL_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:1], b"{" + lines[1], *lines[2:]])
    path.write_bytes(damaged)
    with pytest.raises(StudyError) as caught:
        open_record(tmp_path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{path}: damaged (JSONDecodeError(")
    assert problem.endswith("); use name=… or resume=never for a new search")
    assert path.read_bytes() == damaged


def test_a_journal_that_this_user_may_not_open_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_NAME
    path.mkdir()  # root may open every file
    with pytest.raises(StudyError) as caught:
        open_record(tmp_path)
    assert caught.value.problems == (
        f"{path}: cannot be opened (Is a directory); use name=… or resume=never for a new search",
    )


def test_a_disk_that_fails_as_a_journal_is_opened_stays_its_own_error(
    small_disk: SmallDisk,
) -> None:
    small_disk.make_read_only()
    with pytest.raises(OSError, match="Read-only file system"):
        open_record(small_disk.path)


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """The kernel refuses to let any file grow beyond `size_bytes`, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_grow_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_NAME
    report = {"samples_seen": 10, "top1": 0.5}
    record = open_record(tmp_path)
    record.add_trial(SETTINGS)
    before = path.read_bytes()
    with largest_file(len(before) + 50), pytest.raises(StoppedError) as caught:
        record.add_report(0, report)
    assert re.sub(r"[\d,]+ MB", "N MB", str(caught.value)) == (
        f"{tmp_path}: study.journal cannot be written (File too large, N MB free); mend that"
    )
    assert path.read_bytes() == before
    record.add_report(0, report)
    record = open_record(tmp_path)
    assert record.trials[0].reports == (report,)


def add_trials(record: Record, count: int) -> None:
    for _ in range(count):
        record.add_trial(SETTINGS)


def test_a_full_disk_ends_the_search_and_with_room_it_goes_on(small_disk: SmallDisk) -> None:
    record = open_record(small_disk.path)
    small_disk.fill()
    with pytest.raises(StoppedError) as caught:
        add_trials(record, 100)
    assert caught.value.problems == (
        f"{small_disk.path}: study.journal cannot be written (No space left on device, 0 MB free); "
        "make room",
    )
    trials = list(record.trials)
    record = open_record(small_disk.path)
    assert record.trials == trials
    small_disk.resize(2**21)
    record.add_trial(SETTINGS)
    assert [trial.settings for trial in open_record(small_disk.path).trials] == (
        [SETTINGS] * (len(trials) + 1)
    )


def test_an_event_is_dropped_when_it_cannot_be_made(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_NAME
    record = open_record(tmp_path)
    record.add_trial(SETTINGS)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        record.add_report(0, {"samples_seen": 10, "top1": 0.5, "bad": object()})
    assert path.read_bytes() == before
    record.end(0, "stopped")
    assert [json.loads(line)["op_code"] for line in path.read_text().splitlines()[-2:]] == [8, 6]
