"""From labels on disk to a trained model, for every form that labels come in.

`test_readme.py` searches over all of them.
"""

import json
import socket
from pathlib import Path

import pytest

from tests.integration.conftest import Command, Told, errors, files_in
from tests.unit.data.small_sets import SETS

pytestmark = pytest.mark.usefixtures("space_file")
CSV = ("space=tiny.yaml", "data.source=csv", "data.root=images", "train.epochs=1")
TRAIN = "label/train_label.csv"


@pytest.fixture
def labels(here: Path, csv_dataset: Path) -> Path:
    """Return the file of the training labels; commands start in the folder of the root."""
    return csv_dataset / TRAIN


def test_relative_paths_mean_the_same_from_any_folder(
    here: Path, csv_dataset: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    (csv_dataset / TRAIN).rename(csv_dataset / "mine.csv")
    elsewhere = here / "else where"
    elsewhere.mkdir()
    results = []
    for folder, root in ((here, "images"), (csv_dataset, "."), (elsewhere, "../images/")):
        monkeypatch.chdir(folder)
        given = (f"space={here}/tiny.yaml", "data.source=csv", f"data.root={root}")
        labels = ("data.train_labels=mine.csv", f"output={here}/{folder.name}-run")
        assert told.retrain(*given, *labels, "train.epochs=1") == (0, [])
        summary = json.loads((here / f"{folder.name}-run/summary.json").read_text())
        results.append(summary["data_fingerprint"])
    assert len(set(results)) == 1


def test_lists_of_lines_are_trained_on(here: Path, told: Told) -> None:
    for split, name in (("train", "train.txt"), ("val", "val.txt")):
        paths = sorted((here / "images" / split).rglob("*.jpg"))
        lines = [f"{path.relative_to(here / 'images')}\t{path.parent.name}" for path in paths]
        (here / "images" / name).write_text("\n".join(lines))
    folders = [here / "by-list", here / "by-folder"]
    for source, folder in zip(("list", "folder"), folders, strict=True):
        given = ("space=tiny.yaml", f"data.source={source}", "data.root=images", "train.epochs=1")
        assert told.retrain(*given, f"output={folder}") == (0, [])
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    assert summaries[0]["data_fingerprint"] == summaries[1]["data_fingerprint"]
    assert summaries[0]["result"] == summaries[1]["result"]


@pytest.mark.parametrize("command", ["search", "retrain"])
def test_mistakes_in_labels_are_told_before_anything_is_written(
    here: Path, labels: Path, told: Told, command: str
) -> None:
    with labels.open("a") as file:
        file.write("gone.jpg,class 1\nclass 1 0.jpg,class 2\nclass 2 0.jpg,\n")
    assert getattr(told, command)(*CSV) == errors(
        f"{TRAIN} line 28: image 'class 2 0.jpg' has no label; write one or remove the line",
        f"{TRAIN} line 26: image 'gone.jpg' does not exist under data.root; "
        "looked in train/, data.root itself; add it or remove the line",
        f"{TRAIN} line 27: image 'class 1 0.jpg' is 'class 2' here and 'class 1' in line 2; "
        "remove one of them",
    )
    assert not list(here.glob("results/*"))


def test_missing_and_bad_images_are_left_out_where_that_is_asked_for(
    labels: Path, command: Command
) -> None:
    with labels.open("a") as file:
        file.write("gone.jpg,class 1\n")
    (labels.parents[1] / "train/class 1 0.jpg").write_bytes(b"")
    found = command.run("dataset", *CSV)
    assert found.returncode == 2
    lines = found.stdout.splitlines()
    assert lines[lines.index("unreadable images: 2") + 1 :] == [
        "  train/class 1 0.jpg: the file is empty (0 bytes); "
        "replace it or set data.on_bad_image=skip",
        "  train/gone.jpg: cannot be opened (No such file or directory); "
        "put it back or set data.on_bad_image=skip",
    ]
    skipped = command.run("dataset", *CSV, "data.on_bad_image=skip")
    assert (skipped.returncode, skipped.stderr) == (0, "")
    assert "all          23          12" in skipped.stdout


SET = ("space=tiny.yaml", "data.source=torchvision", "data.root=sets", "train.epochs=1")


def test_a_set_of_torchvision_is_counted_unwritten_and_trained_on(
    here: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    SETS["FashionMNIST"](here / "sets", monkeypatch)
    given = (*SET, "data.dataset=FashionMNIST")
    assert told.run_only("search", *given, "dry_run=true") == 0
    assert "prepare 12 training and 6 validation images" in told.capsys.readouterr().out
    assert not (here / "results").exists()
    assert told.retrain(*given) == (0, [])
    classes = json.loads((here / "results/tiny-retrain/classes.json").read_text())
    assert classes == ["Pullover", "T-shirt/top", "Trouser"]


@pytest.mark.parametrize("command", ["search", "retrain"])
def test_a_set_that_is_not_there_is_told_before_anything_is_written(
    here: Path, told: Told, command: str
) -> None:
    before = files_in(here)
    assert getattr(told, command)(*SET, "data.dataset=CIFAR100") == errors(
        f"data.dataset: CIFAR100 is not in '{here}/sets', or not whole (Dataset not found or "
        "corrupted. You can use download=True to download it); set data.download=true to download "
        "it"
    )
    assert files_in(here) == before


def test_a_dry_run_downloads_nothing(
    here: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    before = files_in(here)
    given = (*SET, "data.dataset=CIFAR100", "data.download=true", "dry_run=true")
    assert told.search(*given) == errors(
        f"data.dataset: CIFAR100 is not in '{here}/sets', or not whole (Dataset not found or "
        "corrupted. You can use download=True to download it); a dry run downloads nothing; "
        "leave out dry_run=true, or run python -m tuner.dataset"
    )
    assert files_in(here) == before
