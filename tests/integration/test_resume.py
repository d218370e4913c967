"""A search goes on wherever its folder has gone, and with whatever the machine has now.

Trials are trained in this process, one after another, without a Ray.
"""

import csv
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Told, begin, errors, train
from tests.laws import MEASURED
from tuner.stages.hand_over import hand_over
from tuner.study.record import Record

SMALL = (
    *("space=tiny.yaml", "data.root=images", "train.epochs=3"),
    *("search.trials=4", "search.confirm_top=0"),
)


pytestmark = pytest.mark.usefixtures("nothing_kept")


def scores(record: Record) -> list[list[float]]:
    return [[report["top1"] for report in each.reports] for each in record.trials]


OF_THE_PROCESS = ("worker_pid", "started_at", "reported_at", "setup_s")


def repeatable(record: Record) -> list[tuple[Any, ...]]:
    """Return all that is recorded of each trial but its times and its process."""
    forgotten = (*MEASURED, *OF_THE_PROCESS)
    return [
        (
            each.settings,
            each.state,
            [
                {key: report[key] for key in report if key not in forgotten}
                for report in each.reports
            ],
        )
        for each in record.trials
    ]


@pytest.mark.parametrize("num_reports", [None, 1, 4, 6])
def test_the_same_search_twice_has_the_same_trials_to_the_last_bit_killed_or_not(
    here: Path, space_file: Path, num_reports: int | None
) -> None:
    (here / "mine.csv").write_text("optim.lr,train.batch_size\n0.1,10\n0.02,\n", encoding="utf-8")
    asked = (*SMALL, "search.trials=9", "search.points=mine.csv", "search.patience=4")
    first, second = begin(*asked, "output=first"), begin(*asked, "output=second")
    train(*first)
    if num_reports is not None:
        train(*second, num_reports=num_reports)
        second = begin(*asked, "output=second")
    train(*second)
    trials = repeatable(first[2])
    assert repeatable(second[2]) == trials
    assert trials[0][0]["optim.lr"] == 0.1
    assert {state for _, state, _ in trials} == {"complete", "stopped"}
    assert all("train_loss" in report for _, _, reports in trials for report in reports)


def test_a_search_whose_folder_was_moved_goes_on_and_its_winner_is_retrained(
    here: Path, space_file: Path, told: Told
) -> None:
    whole = begin(*SMALL, "output=whole")
    train(*whole)
    course, data, record = begin(*SMALL)
    train(course, data, record, num_reports=3)
    journal = (course.search.folder / "study.journal").read_text()
    assert str(here.parent) not in journal

    place = here / "another place"
    shutil.copytree(here / "results", place / "results")
    shutil.rmtree(here / "results")

    course, data, record = begin(*SMALL, "output=another place/results")
    assert len(scores(record)) >= 1
    train(course, data, record)
    assert scores(record) == scores(whole[2])
    winner = hand_over(course, data, record, None)
    assert winner.trial.number == whole[2].ranked()[0].number
    folder = place / "results" / "tiny-images"
    assert told.retrain(f"config={folder / 'best.yaml'}") == (0, [])
    assert (folder / "retrain" / "model.safetensors").read_bytes() == (
        folder / "best" / "model.safetensors"
    ).read_bytes()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a CPU that can be taken away")
def test_a_search_goes_on_with_fewer_cpus_once_less_is_asked_for(
    here: Path, space_file: Path, told: Told
) -> None:
    two_cpus = "resources.cpus_per_trial=2"
    course, data, record = begin(*SMALL, two_cpus)
    train(course, data, record, num_reports=3)
    before = scores(record)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    assert told.search(*SMALL, two_cpus) == errors(
        "resources.cpus_per_trial: 2 wanted, this process may use 1; use at most that"
    )
    course, data, record = begin(*SMALL, "resources.cpus_per_trial=1")
    assert course.plan.threads == 1
    assert scores(record) == before
    train(course, data, record)
    assert [each[: len(old)] for each, old in zip(scores(record), before, strict=False)] == before
    assert len(record.trials) == 4


def test_a_refused_search_begins_anew_with_the_best_of_the_old_one(
    here: Path, space_file: Path, told: Told
) -> None:
    course, data, record = begin(*SMALL)
    train(course, data, record)
    folder = course.search.folder
    changed = (*SMALL, "parameters.train.label_smoothing={float: [0, 0.1]}")
    assert told.search(*changed) == errors(
        f'{folder}: train.label_smoothing was 0.0 and is now {{"float": [0.0, 0.1]}}',
        "change it back, or begin a new search from the best of this one: "
        "resume=never search.points=results/tiny-images",
    )
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    advice = ("resume=never", "search.points=results/tiny-images")
    course, data, anew = begin(*changed, *advice, "search.trials=8")
    lines = told.capsys.readouterr().out.splitlines()
    assert "points    first the best of results/tiny-images: 2 configurations" in lines
    assert course.search.name == "tiny-images-2"
    train(course, data, anew)
    first, second = record.ranked()[:2]
    assert [trial.settings for trial in anew.trials[:2]] == [
        {**first.settings, "train.label_smoothing": 0.0},
        {**second.settings, "train.label_smoothing": 0.0},
    ]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_search_whose_time_is_over_hands_over_what_it_has_and_goes_on_with_more_time(
    here: Path, space_file: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_time = (*SMALL, "search.time_budget_s=1e-9")
    monkeypatch.setattr("sys.argv", ["search", *no_time])
    go_on = shlex.join(["python", "-m", "tuner.search", *no_time, "name=tiny-images"])
    line = "search.time_budget_s: over before any trial had a score; raise it"
    assert told.search(*no_time) == (1, [f"error: {line}; go on with: {go_on}"])
    course, data, record = begin(*SMALL)
    train(course, data, record, num_reports=3)
    assert told.search(*no_time) == (0, [])  # what is trained by then is handed over
    assert (course.search.folder / "best.yaml").exists()
    with (course.search.folder / "leaderboard.csv").open(newline="") as file:
        assert "waiting" in {row["state"] for row in csv.DictReader(file)}
    train(*begin(*SMALL))
    assert told.search(*no_time) == (0, [])
    with (course.search.folder / "leaderboard.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert {row["state"] for row in rows} == {"complete", "stopped"}
