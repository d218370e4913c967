"""A search whose disk fills up ends in one line, and with more room goes on as if it had not."""

import csv
import shlex
from pathlib import Path

import optuna
import pytest
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.conftest import SmallDisk
from tests.integration.conftest import Command
from tuner.settings.text import read_yaml
from tuner.training.checkpoint import CheckpointFolder

SEARCH = (
    *("space=tiny.yaml", "data.root=images"),
    *("search.max_concurrent=1", "resources.cpus_per_trial=1", "search.confirm_top=0"),
    "resources.disk_budget_gb=1",  # of what is free a search would not take more than there is
)
TOO_SMALL_BYTES = 4 * 2**20  # Ray takes about 1.5 MB of it, each of seven trials 0.65 MB and more
TIMES = ("seconds", "images_per_s")


def table(folder: Path) -> list[dict[str, str]]:
    """Return the rows of the leaderboard, times excepted."""
    with (folder / "leaderboard.csv").open(encoding="utf-8", newline="") as file:
        return [{key: row[key] for key in row if key not in TIMES} for row in csv.DictReader(file)]


def assert_checkpoints_load(folder: Path) -> int:
    """Check that torch reads every one as it is, and return how many there are."""
    paths = list(folder.rglob("*.pt"))
    for path in paths:
        assert torch.load(path, weights_only=True)["samples_seen"] == int(path.stem)
        CheckpointFolder(path.parent, pytest.fail).load(int(path.stem))
    return len(paths)


def assert_the_best_epoch_is_the_same_everywhere(folder: Path) -> None:
    """Check score, epoch and file of the winner in all that a search leaves."""
    row, result = table(folder)[0], read_yaml(folder / "best.yaml")["result"]
    checkpoint = f"trials/{int(row['trial_number']):04d}/{result['samples_seen']:09d}.pt"
    history = torch.load(folder / checkpoint)["history"]
    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    study = optuna.load_study(study_name="tiny", storage=storage)
    assert history[-1]["top1"] == max(report["top1"] for report in history)
    assert history[-1]["top1"] == result["top1"] == float(row["top1"]) == study.best_value
    assert history[-1]["epoch"] == result["epoch"]
    assert study.best_trial.number == result["trial_number"] == int(row["trial_number"])


def stops_with(command: Command, *arguments: str) -> str:
    """Run a search that ends with exit code 1 and return what it said in stderr."""
    stopped = command.run("search", *arguments)
    assert stopped.returncode == 1
    # Ray's own logger may say, from C++, that it could not write one of its files just then.
    said = [line for line in stopped.stderr.splitlines() if "[ray_log_sink] Failed" not in line]
    return "\n".join(said)


def test_a_search_on_a_full_disk_ends_in_one_line_and_goes_on_once_there_is_room(
    command: Command, small_disk: SmallDisk
) -> None:
    arguments = (*SEARCH, f"output={small_disk.path}", "name=tiny")
    folder = small_disk.path / "tiny"
    what_to_do = (
        f"make room; go on with: {shlex.join(['python', '-m', 'tuner.search', *arguments])}"
    )
    small_disk.resize(TOO_SMALL_BYTES)
    with command.start("search", *SEARCH, "name=tiny") as never_full:
        assert stops_with(command, *arguments) == (
            f"error: {folder}/trials: no checkpoint can be written (No space left on device, "
            f"0 MB free); {what_to_do}"
        )
        assert assert_checkpoints_load(folder) > 1
        small_disk.fill()
        assert stops_with(command, *arguments) == (
            f"error: {folder}: a file cannot be read or written (No space left on device, "
            f"0 MB free); {what_to_do}"
        )
        small_disk.resize(4 * TOO_SMALL_BYTES)
        done = command.run("search", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert never_full.wait(timeout=240) == 0
    assert table(folder) == table(command.folder / "results" / "tiny")
    assert {row["state"] for row in table(folder)} == {"complete", "stopped"}
    assert assert_checkpoints_load(folder) > 1
    assert_the_best_epoch_is_the_same_everywhere(folder)
