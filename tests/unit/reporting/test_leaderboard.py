"""The leaderboard says of every trial where it stands and what it took."""

import csv
from pathlib import Path
from typing import Any

import pytest

from tuner.reporting.leaderboard import best_trial, leaderboard_rows, write_leaderboard
from tuner.settings.config import Config
from tuner.settings.space import ChoiceSpec, FloatSpec, ParameterSpec
from tuner.study.record import Direction, Record

SPACE: dict[str, ParameterSpec] = {
    "optim.lr": FloatSpec(1e-3, 1.0, log=True),
    "train.batch_size": ChoiceSpec((32, 64)),
}


def open_record(folder: Path, metric: str, direction: Direction) -> Record:
    return Record.open(
        folder,
        name="x",
        metric=metric,
        direction=direction,
        parameters=SPACE,
        data_fingerprint="",
        settings_plain={},
    )


def report(samples_seen: int, top1: float) -> dict[str, Any]:
    return {
        "samples_seen": samples_seen,
        "epoch": samples_seen / 100,
        "top1": top1,
        "top5": 1.0,
        "validation_loss": 1 - top1,
        "train_s": 3.0,
        "data_wait_s": 1.0,
        "seconds": 5.0,
        "micro_batch_size": 32,
    }


@pytest.fixture
def record(tmp_path: Path) -> Record:
    record = open_record(tmp_path, "top1", "maximize")
    for lr, scores in [(0.1, [0.2, 0.9, 0.1]), (0.2, [0.5]), (0.3, []), (0.4, [0.9])]:
        number = record.add_trial({"optim.lr": lr, "train.batch_size": 64}).number
        for k, score in enumerate(scores, start=1):
            record.add_report(number, report(100 * k, score))
    record.end(0, "complete")
    record.end(2, "failed", "diverged", "training loss is nan")
    return record


def test_rows_rank_by_the_best_report_and_show_how_far_each_came(record: Record) -> None:
    rows = leaderboard_rows(record, Config(), [100, 300], ["optim.lr", "train.batch_size"])
    assert [row["trial_number"] for row in rows] == [0, 3, 1, 2]
    assert rows[0] == {
        "trial_number": 0,
        "state": "complete",
        "reason": None,
        "top1": 0.9,
        "top5": 1.0,
        "epochs": 3.0,
        "samples_seen": 300,
        "rung": 2,
        "seconds": 15.0,
        "images_per_s": 25.0,
        "batch_size": 64,
        "micro_batch_size": 32,
        "accumulate_steps": 1,
        "num_workers": 0,
        "optim.lr": 0.1,
        "train.batch_size": 64,
    }
    assert [(row["state"], row["reason"]) for row in rows[1:]] == [
        ("waiting", None),
        ("waiting", None),
        ("failed", "diverged"),
    ]


def test_of_equal_scores_the_earlier_trial_is_the_best(record: Record) -> None:
    best = best_trial(record)
    assert best is not None
    assert best.number == 0
    assert record.best_report(0) == report(200, 0.9)


def test_a_trial_that_failed_is_never_the_best(record: Record) -> None:
    diverged = record.add_trial({"optim.lr": 0.5, "train.batch_size": 32}).number
    record.add_report(diverged, report(100, 0.99))
    record.end(diverged, "failed", "diverged", "training loss is nan")
    rows = leaderboard_rows(record, Config(), [100, 300], [])
    assert [row["trial_number"] for row in rows] == [0, 3, 1, 2, diverged]
    best = best_trial(record)
    assert best is not None
    assert best.number == 0


def test_a_loss_ranks_upward(tmp_path: Path) -> None:
    record = open_record(tmp_path, "validation_loss", "minimize")
    for score in (0.3, 0.8):
        number = record.add_trial({"optim.lr": score, "train.batch_size": 32}).number
        record.add_report(number, report(100, score))
    best = best_trial(record)
    assert best is not None
    assert best.number == 1


def test_without_any_score_there_is_no_best(tmp_path: Path) -> None:
    record = open_record(tmp_path, "top1", "maximize")
    record.add_trial({"optim.lr": 0.1, "train.batch_size": 32})
    assert best_trial(record) is None


def test_the_file_begins_with_the_number_and_ends_with_the_parameters(
    record: Record, tmp_path: Path
) -> None:
    parameters = ["optim.lr", "train.batch_size"]
    path = tmp_path / "leaderboard.csv"
    write_leaderboard(path, leaderboard_rows(record, Config(), [100, 300], parameters))
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert next(iter(rows[0])) == "trial_number"
    assert list(rows[0])[-2:] == parameters
    assert [float(row["optim.lr"]) for row in rows] == [0.1, 0.4, 0.2, 0.3]
