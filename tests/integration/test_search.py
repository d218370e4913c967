"""A whole search on real images and a real Ray: killed, gone on with, and its winner repeated."""

import csv
import json
import os
import random
import shlex
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import fmean, stdev
from subprocess import Popen

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from ray.thirdparty_files import psutil

from tests.integration.conftest import Command
from tuner.settings.text import read_yaml

SEARCH = (
    *("space=tiny.yaml", "data.root=images"),
    *("search.max_concurrent=1", "resources.cpus_per_trial=1"),
)
TIMES = ("seconds", "images_per_s")


def table(folder: Path, name: str = "leaderboard.csv") -> list[dict[str, str]]:
    """Return the rows of a table, times excepted."""
    with (folder / name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{key: row[key] for key in row if key not in TIMES} for row in rows]


def num_events(folder: Path) -> int:
    journal = folder / "study.journal"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def num_events_of_search(folder: Path) -> int:
    """Return how many lines the journal had when the confirm study was begun; 0 before that."""
    lines = (folder / "study.journal").read_text().splitlines()
    begins = (number for number, line in enumerate(lines) if f"{folder.name}.confirm" in line)
    return next(begins, 0)


def kill_after_events(process: Popen[str], folder: Path, count: int) -> None:
    """SIGKILL as soon as the journal has `count` lines; a process that ends before is an error."""
    while num_events(folder) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.kill()
    process.communicate()


def kill_a_trial(process: Popen[str], folder: Path) -> None:
    """SIGKILL the process of a trial as soon as one works on a job."""
    pids: list[str] = []
    while not any(pids):
        assert process.poll() is None, process.communicate()
        with suppress(OSError):  # no job yet, or none any more
            pids = [path.read_text() for path in folder.glob(".ray-*/beats/*")]
    os.kill(int(pids[0]), signal.SIGKILL)


def test_a_killed_search_extended_later_ends_as_one_that_was_not_and_its_winner_repeats(
    command: Command,
) -> None:
    whole, torn = command.folder / "results" / "whole", command.folder / "results" / "torn"
    done = command.run("search", *SEARCH, "name=whole", "search.confirm_seeds=3")
    assert (done.returncode, done.stderr) == (0, "")
    moments = random.Random(1)
    search_events = num_events_of_search(whole)
    for moment in (moments.randrange(8, search_events), search_events + moments.randrange(3, 20)):
        process = command.start("search", *SEARCH, "name=torn", "search.confirm_seeds=1")
        kill_after_events(process, torn, moment)
    process = command.start("search", *SEARCH, "name=torn", "search.confirm_seeds=3")
    kill_a_trial(process, torn)
    assert (process.communicate(timeout=240)[1], process.returncode) == ("", 0)
    assert table(torn) == table(whole)
    assert table(torn, "confirm.csv") == table(whole, "confirm.csv")
    assert (torn / "best" / "model.safetensors").read_bytes() == (
        whole / "best" / "model.safetensors"
    ).read_bytes()

    rows = table(whole)
    assert sorted(int(row["trial_number"]) for row in rows) == list(range(7))
    assert {row["state"] for row in rows} == {"complete", "stopped"}
    assert list(rows[0])[-3:] == ["optim.lr", "train.batch_size", "optim.weight_decay"]
    assert_the_mean_decided(whole)
    evaluations = [
        json.loads((folder / "summary.json").read_text())["evaluation"] for folder in (whole, torn)
    ]
    assert evaluations[0] == evaluations[1]
    best = read_yaml(torn / "best.yaml")["result"]
    assert sum(evaluations[0]["confusion"][k][k] for k in range(3)) == best["num_correct"]
    assert evaluations[0]["balanced_top1"] == best["balanced_top1"]

    retrained = command.run("retrain", "config=results/torn/best.yaml")
    assert retrained.stdout.splitlines()[-1].startswith("repeated: ")
    assert (torn / "retrain" / "model.safetensors").read_bytes() == (
        torn / "best" / "model.safetensors"
    ).read_bytes()

    study = optuna.load_study(
        study_name="whole",
        storage=JournalStorage(JournalFileBackend(str(whole / "study.journal"))),
    )
    assert study.metric_names == ["top1"]
    assert study.best_value == max(float(row["top1"]) for row in rows if row["top1"])


def assert_the_mean_decided(folder: Path) -> None:
    """Check the confirm stage of three seeds on the best two against its tables."""
    runs, winner = table(folder, "confirm.csv"), table(folder)[0]
    first, second = runs[0]["trial_number"], runs[1]["trial_number"]
    assert [(run["trial_number"], run["seed"]) for run in runs] == [
        (number, str(seed)) for seed in (1, 2, 3) for number in (first, second)
    ]
    scores = {
        number: [float(run["top1"]) for run in runs if run["trial_number"] == number]
        for number in (first, second)
    }
    chosen = scores[winner["trial_number"]]
    assert fmean(chosen) == max(map(fmean, scores.values()))
    assert float(winner["confirmed_mean"]) == pytest.approx(fmean(chosen))
    assert float(winner["confirmed_spread"]) == pytest.approx(stdev(chosen))
    best = read_yaml(folder / "best.yaml")
    assert best["confirmed"]["scores"] == chosen
    assert best["confirmed"]["mean"] == float(winner["confirmed_mean"])
    assert best["result"]["top1"] == max(chosen)
    assert best["settings"]["train"]["seed"] == 1 + chosen.index(max(chosen))


def test_an_interrupt_leaves_no_process_and_says_how_to_go_on(
    command: Command,
) -> None:
    begun = command.folder / "results" / "tiny" / "study.journal"
    begun.parent.mkdir(parents=True)
    begun.touch()
    folder = command.folder / "results" / "tiny-2"
    quick = ("search.trials=3", "train.epochs=3", "throughput.loader.num_workers=[0, 1]")
    first = (*SEARCH, *quick, "name=tiny", "resume=never")
    again = (*SEARCH, *quick, "name=tiny-2")
    go_on = shlex.join(["python", "-m", "tuner.search", *SEARCH, *quick, "name=tiny-2"])
    stopped = f"stopped, nothing is lost; go on with: {go_on}\n"
    twice, once = (signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)  # the second leaves at once
    moments: list[tuple[tuple[str, ...], Callable[[], bool], tuple[int, ...], int]] = [
        (first, lambda: (folder / "config.yaml").exists(), twice, 130),
        (again, lambda: num_events_of_search(folder) > 0, once, 143),
    ]
    for arguments, has_come, numbers, code in moments:
        process = command.start("search", *arguments)
        while not has_come():
            assert process.poll() is None, process.communicate()
            time.sleep(0.002)
        others = psutil.Process(process.pid).children(recursive=True)
        stderr, said = process.stderr, ""
        assert stderr is not None
        for number in numbers:
            process.send_signal(number)
            said = said or stderr.readline()
        _, rest = process.communicate(timeout=60)
        assert (process.returncode, said, rest) == (code, stopped, "")
        assert not psutil.wait_procs(others, timeout=15)[1]
