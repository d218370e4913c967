"""A file of hard images is read by the rules of label files, and is part of what a run is."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.unit.data.conftest import run
from tuner.data.changes import describe_image_changes
from tuner.data.hard_labels import HardImages, read_hard
from tuner.data.index import ImageIndex
from tuner.data.prepare import load_prepared
from tuner.errors import DataError
from tuner.files import csv_line

PATHS = ["a/1.jpg", "a/2.jpg", "b/3.jpg", "b/4 x.jpg"]


@pytest.fixture
def train(hostile_tmp_path: Path) -> ImageIndex:
    """Return an index of files that are there."""
    for path in (*PATHS, "c/9.jpg"):
        (hostile_tmp_path / path).parent.mkdir(exist_ok=True)
        (hostile_tmp_path / path).touch()
    return ImageIndex.from_paths("train", hostile_tmp_path, ("a", "b"), PATHS, [0, 0, 1, 1])


def read(train: ImageIndex, name: str, *lines: str) -> tuple[list[str], list[str]]:
    (train.root / name).write_text("\n".join(lines), encoding="utf-8")
    found = read_hard(train.root, train, name)
    return sorted(found.paths), list(found.notes)


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
    assert read(train, name, *lines) == (["a/2.jpg", "b/4 x.jpg"], [])


def test_images_that_are_not_in_training_are_left_out_and_counted(train: ImageIndex) -> None:
    assert read(train, "hard.csv", "a/1.jpg,a", "c/9.jpg,c", "gone.jpg,a") == (
        ["a/1.jpg"],
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
    assert mined.first_hard.tolist() == [2, 5]
    assert plain.fingerprint == plain.images_fingerprint == mined.images_fingerprint
    assert mined.fingerprint != plain.fingerprint
    loaded = load_prepared(report, image_folder)
    np.testing.assert_array_equal(loaded.first_hard, mined.first_hard)
    assert loaded.images_fingerprint == plain.fingerprint
    assert describe_image_changes(report, plain) == "0 more and 2 fewer are hard first"


def test_hard_images_that_a_limit_leaves_out_are_counted_and_no_mistake(
    image_folder: Path,
) -> None:
    plain = run(image_folder, limit=9)
    used = set(plain.train.paths())
    names = [path for path in run(image_folder).train.paths() if path not in used][:3]
    told = HardImages(frozenset(names), ())
    limited = run(image_folder, limit=9, read_hard=lambda _: told)
    assert limited.first_hard.tolist() == []
    assert limited.fingerprint == plain.fingerprint
    assert limited.notes[-1] == "data.mining_labels: hard images that are not used here: 3"


def test_mistakes_are_told_before_any_image_is_opened(image_folder: Path) -> None:
    def refuse(_: ImageIndex) -> HardImages:
        raise DataError("hard.csv line 1: wrong")

    opened: list[int] = []
    with pytest.raises(DataError):
        run(image_folder, read_hard=refuse, progress=lambda *seen: opened.append(*seen[:1]))
    assert opened == []


def test_a_class_whose_name_begins_with_a_blank_is_found_again(hostile_tmp_path: Path) -> None:
    (hostile_tmp_path / " a").mkdir()
    (hostile_tmp_path / " a/1.jpg").touch()
    index = ImageIndex.from_paths("train", hostile_tmp_path, (" a", "b"), [" a/1.jpg"], [0])
    (hostile_tmp_path / "hard.csv").write_text(
        csv_line(("path", "label")) + csv_line((" a/1.jpg", " a"))
    )
    assert read_hard(hostile_tmp_path, index, "hard.csv").paths == {" a/1.jpg"}
