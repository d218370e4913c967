"""How images differ from those of a record is told by counts and classes."""

import shutil
from pathlib import Path

import pytest

from tests.unit.data.conftest import run
from tuner.data.changes import describe_image_changes


def changes(root: Path, record: Path) -> str:
    """Return what is told of the images against the record, which stays as it is."""
    before = record.read_bytes()
    told = describe_image_changes(record, run(root, report_path=record))
    assert record.read_bytes() == before
    return told


@pytest.fixture
def record(image_folder: Path, tmp_path: Path) -> Path:
    """Return the record of the images as they are."""
    path = tmp_path / "dataset.json"
    run(image_folder, report_path=path)
    return path


def test_images_that_are_the_same_differ_in_nothing(image_folder: Path, record: Path) -> None:
    assert changes(image_folder, record) == ""


def test_added_removed_and_other_images_are_counted(image_folder: Path, record: Path) -> None:
    train, val = image_folder / "train", image_folder / "val"
    (train / "class 1" / "0.jpg").unlink()
    (train / "class 1" / "1.jpg").rename(train / "class 2" / "of class 1.jpg")
    (train / "class 1" / "2.jpg").rename(train / "class 1" / "another name.jpg")
    (train / "class 1" / "3.jpg").rename(val / "class 1" / "of train.jpg")
    shutil.copy(train / "class 2" / "4.jpg", train / "class 1" / "4.jpg")
    shutil.copy(train / "class 2" / "5.jpg", train / "class 2" / "copy.jpg")
    assert changes(image_folder, record) == (
        "1 added, 1 removed, 1 relabelled, 1 in the other split, 1 changed, 1 renamed"
    )


def test_classes_that_come_and_go_are_named(image_folder: Path, record: Path) -> None:
    shutil.rmtree(image_folder / "train" / "class 2")
    shutil.rmtree(image_folder / "val" / "class 2")
    for split in ("train", "val"):
        folder = image_folder / split
        (folder / "class 10").rename(folder / "ten")
    assert changes(image_folder, record) == (
        "12 removed, 12 relabelled, new classes: 1 (ten), classes gone: 2 (class 2, class 10)"
    )


@pytest.mark.parametrize("content", [b"", b"[]", b'{"fingerprint": "", "images": {"train": [3]}}'])
def test_nothing_is_told_without_a_whole_record(
    image_folder: Path, record: Path, content: bytes
) -> None:
    prepared = run(image_folder, report_path=record)
    record.write_bytes(content)
    assert describe_image_changes(record, prepared) == ""
    record.unlink()
    assert describe_image_changes(record, prepared) == ""
