"""A whole search on real images and a real Ray: killed, gone on with, and its winner repeated."""

import csv
import random
import time
from pathlib import Path
from subprocess import Popen

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.integration.conftest import Command

SEARCH = ("space=tiny.yaml", "data.root=images", "search.max_concurrent=1")
TIMES = ("seconds", "images_per_s")


def leaderboard(folder: Path) -> list[dict[str, str]]:
    with (folder / "leaderboard.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{key: row[key] for key in row if key not in TIMES} for row in rows]


def num_events(folder: Path) -> int:
    journal = folder / "study.journal"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def kill_after_events(process: Popen[str], folder: Path, count: int) -> None:
    """SIGKILL as soon as the journal has `count` lines; a process that ends before is an error."""
    while num_events(folder) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.kill()
    process.communicate()


def test_a_killed_search_ends_as_one_that_was_not_and_its_winner_repeats(command: Command) -> None:
    whole, torn = command.folder / "results" / "whole", command.folder / "results" / "torn"
    done = command.run("search", *SEARCH, "name=whole")
    assert (done.returncode, done.stderr) == (0, "")
    moments = random.Random(1)
    begun = 0
    for _ in range(2):
        process = command.start("search", *SEARCH, "name=torn")
        begun += moments.randint(8, 24)
        kill_after_events(process, torn, begun)
    done = command.run("search", *SEARCH, "name=torn")
    assert (done.returncode, done.stderr) == (0, "")
    assert leaderboard(torn) == leaderboard(whole)
    assert (torn / "best" / "model.safetensors").read_bytes() == (
        whole / "best" / "model.safetensors"
    ).read_bytes()

    rows = leaderboard(whole)
    assert [
        int(row["trial_number"]) for row in sorted(rows, key=lambda row: int(row["trial_number"]))
    ] == list(range(7))
    assert {row["state"] for row in rows} == {"complete", "stopped"}
    assert list(rows[0])[-3:] == ["optim.lr", "train.batch_size", "optim.weight_decay"]

    retrained = command.run("retrain", "config=results/torn/best.yaml")
    assert retrained.stdout.splitlines()[-1].startswith("repeated: ")
    assert (torn / "retrain" / "model.safetensors").read_bytes() == (
        torn / "best" / "model.safetensors"
    ).read_bytes()

    again = command.run("search", *SEARCH, "name=torn", "search.trials=7")
    assert again.returncode == 0
    assert leaderboard(torn) == rows
    refused = command.run("search", *SEARCH, "name=torn", "train.epochs=10")
    assert refused.returncode == 2
    assert "train.epochs" in refused.stderr
    assert refused.stderr.count("\n") == 1

    study = optuna.load_study(
        study_name="whole",
        storage=JournalStorage(JournalFileBackend(str(whole / "study.journal"))),
    )
    assert study.metric_names == ["top1"]
    assert study.best_value == float(rows[0]["top1"])


def test_a_search_in_which_every_trial_fails_says_why_once(
    command: Command, space_file: Path
) -> None:
    done = command.run("search", *SEARCH, "name=bad", "parameters.optim.lr={log: [1e30, 1e35]}")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no trial has a score: diverged (")
    assert done.stderr.count("error:") == 1
