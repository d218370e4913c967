"""The tables say of every trial and confirm run where it stands and what it took."""

import csv
from pathlib import Path
from typing import Any

import pytest

from tuner.reporting.leaderboard import Row, confirm_rows, leaderboard_rows, write_rows
from tuner.settings.config import Config
from tuner.settings.space import ChoiceSpec, FloatSpec, ParameterSpec
from tuner.study.confirmed import confirmed
from tuner.study.record import Direction, Record

SPACE: dict[str, ParameterSpec] = {
    "optim.lr": FloatSpec(1e-3, 1.0, log=True),
    "train.batch_size": ChoiceSpec((32, 64)),
}
RUNGS = [100, 300]


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
        "balanced_top1": top1 / 2,
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


def add_run(runs: Record, lr: float, seed: int, *scores: float) -> int:
    """The number of a new confirm run with a report for each score."""
    settings = {"optim.lr": lr, "train.batch_size": 64, "train.seed": seed}
    number = runs.add_trial(settings).number
    for k, score in enumerate(scores, start=1):
        runs.add_report(number, report(100 * k, score))
    return number


@pytest.fixture
def runs(record: Record) -> Record:
    """Return the confirm runs of the trials 0 and 3, of which the second is better."""
    runs = record.open_confirm()
    for seed, (first, second) in enumerate([(0.5, 0.75), (0.25, 0.5)], start=1):
        runs.end(add_run(runs, 0.1, seed, first), "complete")
        runs.end(add_run(runs, 0.4, seed, second, 0.3), "complete")
    return runs


def rows_of(record: Record, runs: Record | None = None) -> list[Row]:
    ranking = confirmed(record, runs) if runs else []
    return leaderboard_rows(record, Config(), RUNGS, list(SPACE), ranking)


def test_rows_rank_by_the_best_report_and_show_how_far_each_came(record: Record) -> None:
    rows = rows_of(record)
    assert [row["trial_number"] for row in rows] == [0, 3, 1, 2]
    assert list(rows[0].items()) == [
        ("trial_number", 0),
        ("state", "complete"),
        ("reason", None),
        ("top1", 0.9),
        ("top5", 1.0),
        ("balanced_top1", 0.45),
        ("validation_loss", 1 - 0.9),
        ("confirmed_mean", None),
        ("confirmed_spread", None),
        ("confirm_runs", 0),
        ("interval_low", None),
        ("interval_high", None),
        ("one_more_run", None),
        ("epochs", 3.0),
        ("samples_seen", 300),
        ("seconds", 15.0),
        ("images_per_s", 25.0),
        ("rung", 2),
        ("batch_size", 64),
        ("micro_batch_size", 32),
        ("accumulate_steps", "auto"),
        ("num_workers", 0),
        ("optim.lr", 0.1),
        ("train.batch_size", 64),
    ]
    assert [(row["state"], row["reason"], row["rung"]) for row in rows[1:]] == [
        ("waiting", None, 1),
        ("waiting", None, 1),
        ("failed", "diverged", 0),
    ]


def test_a_trial_without_reports_has_a_row_all_the_same(record: Record) -> None:
    row = rows_of(record)[-1]
    assert (row["epochs"], row["samples_seen"], row["seconds"]) == (0.0, 0, 0)
    assert row["top1"] is row["images_per_s"] is row["micro_batch_size"] is None


def test_confirmed_trials_come_first_the_winner_at_the_top(record: Record, runs: Record) -> None:
    rows = rows_of(record, runs)
    assert [row["trial_number"] for row in rows] == [3, 0, 1, 2]
    columns = ("confirmed_mean", "confirmed_spread", "confirm_runs")
    assert [tuple(row[column] for column in columns) for row in rows] == [
        (0.625, pytest.approx(0.125 * 2**0.5), 2),
        (0.375, pytest.approx(0.125 * 2**0.5), 2),
        (None, None, 0),
        (None, None, 0),
    ]
    assert [row["top1"] for row in rows] == [0.9, 0.9, 0.5, None]


def test_a_trial_that_failed_is_behind_all_that_did_not(record: Record) -> None:
    diverged = record.add_trial({"optim.lr": 0.5, "train.batch_size": 32}).number
    record.add_report(diverged, report(100, 0.99))
    record.end(diverged, "failed", "diverged", "training loss is nan")
    assert [row["trial_number"] for row in rows_of(record)] == [0, 3, 1, 2, diverged]


def test_a_loss_ranks_upward(tmp_path: Path) -> None:
    record = open_record(tmp_path, "validation_loss", "minimize")
    for score in (0.3, 0.8):
        number = record.add_trial({"optim.lr": score, "train.batch_size": 32}).number
        record.add_report(number, report(100, score))
    assert [row["trial_number"] for row in rows_of(record)] == [1, 0]


def test_a_confirm_run_names_its_trial_and_seed(record: Record, runs: Record) -> None:
    rows = confirm_rows(record, runs, list(SPACE))
    assert list(rows[1].items()) == [
        ("run_number", 1),
        ("trial_number", 3),
        ("seed", 1),
        ("state", "complete"),
        ("reason", None),
        ("top1", 0.75),
        ("top5", 1.0),
        ("balanced_top1", 0.375),
        ("validation_loss", 0.25),
        ("epochs", 2.0),
        ("samples_seen", 200),
        ("seconds", 10.0),
        ("images_per_s", 25.0),
        ("score_in_search", 0.9),
        ("confirmed_mean", 0.625),
        ("interval_low", 0.0),
        ("interval_high", 1.0),
        ("one_more_run", "0.0 to 100.0 %, 9 times in 10"),
        ("optim.lr", 0.4),
        ("train.batch_size", 64),
    ]
    assert [(row["run_number"], row["trial_number"], row["seed"]) for row in rows] == [
        (0, 0, 1),
        (1, 3, 1),
        (2, 0, 2),
        (3, 3, 2),
    ]


def test_both_tables_say_what_one_more_run_scores(record: Record) -> None:
    runs = record.open_confirm()
    for seed, (first, second) in enumerate([(0.51, 0.61), (0.49, 0.59)], start=1):
        runs.end(add_run(runs, 0.1, seed, first), "complete")
        runs.end(add_run(runs, 0.4, seed, second), "complete")
    add_run(runs, 0.2, 1)
    margin = 2.919986 * 0.02 / 2**0.5 * 1.5**0.5
    columns = ("trial_number", "interval_low", "interval_high", "one_more_run")
    found: list[tuple[Any, ...]] = [
        (3, pytest.approx(0.6 - margin), pytest.approx(0.6 + margin),
         "54.9 to 65.1 %, 9 times in 10"),
        (0, pytest.approx(0.5 - margin), pytest.approx(0.5 + margin),
         "44.9 to 55.1 %, 9 times in 10"),
        (1, None, None, None),
    ]  # fmt: skip
    rows = rows_of(record, runs)[:3]
    assert [tuple(row[column] for column in columns) for row in rows] == found
    rows = confirm_rows(record, runs, [])
    assert [tuple(row[column] for column in columns) for row in rows] == [
        found[place] for place in (1, 0, 1, 0, 2)
    ]


def test_a_confirm_run_that_failed_or_was_cut_short_has_a_row(record: Record, runs: Record) -> None:
    failed = add_run(runs, 0.1, 3)
    runs.end(failed, "failed", "killed", "gone")
    add_run(runs, 0.4, 3, 0.5)
    rows = confirm_rows(record, runs, [])[4:]
    assert [(row["state"], row["reason"], row["top1"], row["epochs"]) for row in rows] == [
        ("failed", "killed", None, 0.0),
        ("waiting", None, 0.5, 1.0),
    ]


def test_the_file_reads_back_as_the_rows(record: Record, runs: Record, tmp_path: Path) -> None:
    path = tmp_path / "leaderboard.csv"
    rows = rows_of(record, runs)
    write_rows(path, rows)
    with path.open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert [list(row) for row in read] == [list(rows[0])] * 4
    assert read == [
        {key: "" if value is None else str(value) for key, value in row.items()} for row in rows
    ]


def test_a_text_with_commas_quotes_and_lines_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    rows = [{"number": 1, "reason": 'a "b", c'}, {"number": 2, "reason": "d\ne"}]
    write_rows(path, rows)
    assert path.read_bytes().startswith(b"number,reason\n1,")
    with path.open(encoding="utf-8", newline="") as file:
        assert [row["reason"] for row in csv.DictReader(file)] == ['a "b", c', "d\ne"]
