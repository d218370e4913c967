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
    assert sorted(int(row["trial_number"]) for row in rows) == list(range(7))
    assert {row["state"] for row in rows} == {"complete", "stopped"}
    assert list(rows[0])[-3:] == ["optim.lr", "train.batch_size", "optim.weight_decay"]

    retrained = command.run("retrain", "config=results/torn/best.yaml")
    assert retrained.stdout.splitlines()[-1].startswith("repeated: ")
    assert (torn / "retrain" / "model.safetensors").read_bytes() == (
        torn / "best" / "model.safetensors"
    ).read_bytes()

    before = (torn / "best.yaml").read_bytes()
    again = command.run("search", *SEARCH, "name=torn", "resume=must")
    assert again.returncode == 0
    assert leaderboard(torn) == rows
    assert (torn / "best.yaml").read_bytes() == before
    study = optuna.load_study(
        study_name="whole",
        storage=JournalStorage(JournalFileBackend(str(whole / "study.journal"))),
    )
    assert study.metric_names == ["top1"]
    assert study.best_value == float(rows[0]["top1"])


def test_an_interrupted_search_says_with_which_command_it_goes_on(command: Command) -> None:
    begun = command.folder / "results" / "tiny" / "study.journal"
    begun.parent.mkdir(parents=True)
    begun.touch()
    process = command.start("search", *SEARCH, "name=tiny", "resume=never")
    folder = command.folder / "results" / "tiny-2"
    while num_events(folder) < 8:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert err == (
        "stopped, nothing is lost; go on with: python -m tuner.search "
        "space=tiny.yaml data.root=images search.max_concurrent=1 name=tiny-2\n"
    )
