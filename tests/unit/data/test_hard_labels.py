"""A file of hard images is read by the rules of label files, and is part of what a run is."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.unit.data.conftest import run
from tuner.data.changes import describe_image_changes
from tuner.data.hard_labels import read_hard
from tuner.data.index import ImageIndex
from tuner.data.prepare import load_prepared
from tuner.errors import DataError

PATHS = ["a/1.jpg", "a/2.jpg", "b/3.jpg", "b/4 x.jpg"]


@pytest.fixture
def train(hostile_tmp_path: Path) -> ImageIndex:
    """Return an index of files that are there."""
    for path in (*PATHS, "c/9.jpg"):
        (hostile_tmp_path / path).parent.mkdir(exist_ok=True)
        (hostile_tmp_path / path).touch()
    return ImageIndex.from_paths("train", hostile_tmp_path, ("a", "b"), PATHS, [0, 0, 1, 1])


def read(train: ImageIndex, name: str, *lines: str) -> tuple[list[int], list[str]]:
    (train.root / name).write_text("\n".join(lines), encoding="utf-8")
    positions, notes = read_hard(train.root, train, name)
    return positions.tolist(), notes


def problems(train: ImageIndex, name: str, *lines: str) -> tuple[str, ...]:
    with pytest.raises(DataError) as caught:
        read(train, name, *lines)
    return tuple(caught.value.problems)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("hard.csv", ["path,label,loss", "b/4 x.jpg,b,3.5", "a/2.jpg,a,0.5"]),
        ("hard.tsv", ["b/4 x.jpg\tb", "a/2.jpg\ta"]),
        ("hard.txt", ["b/4 x.jpg b", "a/2.jpg a"]),
        ("hard", ["a/2.jpg a", "b/4 x.jpg\tb", "a/2.jpg a"]),
    ],
)
def test_hard_images_are_found_among_those_of_training(
    train: ImageIndex, name: str, lines: list[str]
) -> None:
    assert read(train, name, *lines) == ([1, 3], [])


def test_images_that_are_not_in_training_are_left_out_and_counted(train: ImageIndex) -> None:
    assert read(train, "hard.csv", "a/1.jpg,a", "c/9.jpg,c", "gone.jpg,a") == (
        [0],
        ["data.mining_labels: images left out that are not in training: 2 (c/9.jpg, gone.jpg)"],
    )


def test_a_file_that_names_no_training_image_is_refused(train: ImageIndex) -> None:
    assert problems(train, "hard.csv", "c/9.jpg,c") == (
        "data.mining_labels: 'hard.csv' names no training image; name some or remove the file",
    )


def test_a_label_that_is_not_that_of_training_is_told_by_its_line(train: ImageIndex) -> None:
    assert problems(train, "hard.csv", "path,label", "a/1.jpg,a", "b/3.jpg,a") == (
        "hard.csv line 3: image 'b/3.jpg' is 'a' here and 'b' in training; mend one of them",
    )


def test_mistakes_are_told_as_those_of_other_label_files(train: ImageIndex) -> None:
    assert problems(train, "hard.csv", "a/1.jpg,a", "a/2.jpg,") == (
        "hard.csv line 2: image 'a/2.jpg' has no label; write one or remove the line",
    )
    with pytest.raises(DataError) as caught:
        read_hard(train.root, train, "no.csv")
    assert caught.value.problems == (
        f"data.mining_labels: '{train.root}/no.csv' does not exist; "
        "put it there or name another, data.mining_labels=FILE",
    )


def test_hard_images_travel_with_the_record_and_make_another_run(
    image_folder: Path, tmp_path: Path
) -> None:
    report = tmp_path / "dataset.json"
    plain = run(image_folder, report_path=report)
    report.unlink()
    names = [plain.train.path(position) for position in (2, 5)]
    (image_folder / "hard.csv").write_text(
        "".join(f"{name},{name.split('/')[1]}\n" for name in names)
    )
    read_file = partial(read_hard, image_folder, name="hard.csv")
    mined = run(image_folder, report_path=report, read_hard=read_file)
    assert mined.first_hard is not None
    assert mined.first_hard.tolist() == [2, 5]
    assert plain.fingerprint == plain.images_fingerprint == mined.images_fingerprint
    assert mined.fingerprint != plain.fingerprint
    loaded = load_prepared(report, image_folder)
    np.testing.assert_array_equal(loaded.first_hard, mined.first_hard)
    assert loaded.images_fingerprint == plain.fingerprint
    assert load_prepared_without(report, image_folder) is None
    assert describe_image_changes(report, plain) == "0 more and 2 fewer are hard first"


def load_prepared_without(report: Path, root: Path) -> object:
    """Return what is hard first by a record that does not say."""
    record = json.loads(report.read_text())
    del record["first_hard"]
    other = report.with_name("other.json")
    other.write_text(json.dumps(record))
    return load_prepared(other, root).first_hard
