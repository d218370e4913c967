"""What counts as a split, a class and an image, and what is said about the rest."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.data.folder import list_folder
from tuner.data.listing import natural_order
from tuner.errors import DataError

Touch = Callable[..., None]


@pytest.fixture
def root(hostile_tmp_path: Path) -> Path:
    return hostile_tmp_path


@pytest.fixture
def touch(root: Path) -> Touch:
    def touch_all(*paths: str) -> None:
        for path in paths:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()

    return touch_all


def problems(root: Path) -> tuple[str, ...]:
    with pytest.raises(DataError) as caught:
        list_folder(root)
    return caught.value.problems


@pytest.mark.parametrize("name", ["val", "validation", "valid", "test", "VAL"])
def test_a_folder_may_come_split(root: Path, touch: Touch, name: str) -> None:
    touch("train/cat/1.jpg", "train/dog/1.PNG", f"{name}/cat/2.webp", f"{name}/dog/2.tiff")
    listing = list_folder(root)
    assert listing.train == {"cat": ["train/cat/1.jpg"], "dog": ["train/dog/1.PNG"]}
    assert listing.validation == {"cat": [f"{name}/cat/2.webp"], "dog": [f"{name}/dog/2.tiff"]}
    assert listing.notes == ()


def test_a_folder_may_hold_classes_alone(root: Path, touch: Touch) -> None:
    touch("cat/1.jpg", "cat/deep/er/2.jpg", "dog/1.jpg")
    listing = list_folder(root)
    assert listing.train == {"cat": ["cat/1.jpg", "cat/deep/er/2.jpg"], "dog": ["dog/1.jpg"]}
    assert listing.validation is None


def test_training_without_validation_is_drawn_from(root: Path, touch: Touch) -> None:
    touch("train/cat/1.jpg", "train/dog/1.jpg")
    listing = list_folder(root)
    assert list(listing.train) == ["cat", "dog"]
    assert listing.validation is None


def test_a_class_may_be_called_train(root: Path, touch: Touch) -> None:
    touch("train/1.jpg", "bus/1.jpg")
    assert list_folder(root).train == {"bus": ["bus/1.jpg"], "train": ["train/1.jpg"]}


def test_what_stands_beside_a_lone_train_of_classes_is_refused(root: Path, touch: Touch) -> None:
    touch("train/cat/1.jpg", "train/dog/1.jpg", "dev/cat/2.jpg", "dev/dog/2.jpg", "extra/1.jpg")
    assert problems(root) == (
        "data.root: folders beside 'train' that are no split: 2 (dev, extra); "
        "a split is named val, validation, valid, test",
    )


def test_a_class_called_train_may_have_folders_beside_its_images(root: Path, touch: Touch) -> None:
    touch("train/1.jpg", "train/steam/.hidden", "train/steam/2.jpg", "bus/1.jpg")
    listing = list_folder(root)
    assert listing.train == {"bus": ["bus/1.jpg"], "train": ["train/1.jpg", "train/steam/2.jpg"]}
    assert listing.notes == ("data.root: hidden or system files ignored: 1",)


def test_classes_stand_in_natural_order(root: Path, touch: Touch) -> None:
    touch("class 10/1.jpg", "class 2/1.jpg", "Class 1/1.jpg", "ä/1.jpg", "b'c/1.jpg")
    assert list(list_folder(root).train) == ["b'c", "Class 1", "class 2", "class 10", "ä"]


@given(st.lists(st.text(alphabet="aB1² 0٣é", max_size=6), unique=True), st.randoms())
def test_any_names_have_one_order(names: list[str], random: Random) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)
    assert sorted(names, key=natural_order) == sorted(shuffled, key=natural_order)


def test_everything_passed_over_is_counted(root: Path, touch: Touch) -> None:
    touch("train/cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg", "val/dog/1.jpg", "test/cat/1.jpg")
    touch(".DS_Store", "train/.ipynb_checkpoints/1.jpg", "train/cat/.1.jpg", "val/cat/Thumbs.db")
    touch("train/cat/notes.txt", "train/dog/labels.txt", "train/dog/model.pt", "train/dog/README")
    touch("1.jpg", "train/2.jpg")
    listing = list_folder(root)
    assert listing.train == {"cat": ["train/cat/1.jpg"], "dog": ["train/dog/1.jpg"]}
    assert listing.notes == (
        "data.root: folders not used: 1 (test)",
        "data.root: hidden or system files ignored: 4",
        "data.root: images ignored outside the class folders: 2",
        "data.root: files ignored that are no images: 4 (.txt 2, no ending 1, .pt 1)",
    )


def test_a_missing_folder_and_a_file_are_refused(root: Path, touch: Touch) -> None:
    touch("file")
    assert problems(root / "gone") == (
        f"data.root: '{root}/gone' does not exist; give a folder with one folder per class",
    )
    assert problems(root / "file") == (
        f"data.root: '{root}/file' is not a folder; give a folder with one folder per class",
    )


def test_fewer_than_two_classes_are_refused(root: Path, touch: Touch) -> None:
    expected = f"data.root: '{root}' has no class folders; at least two classes are needed"
    assert problems(root) == (expected,)
    touch("1.jpg", "2.jpg", ".hidden/1.jpg")
    assert problems(root) == (expected,)
    touch("cat/1.jpg")
    expected = f"data.root: '{root}' has one class (cat); at least two classes are needed"
    assert problems(root) == (expected,)


def test_empty_and_unknown_classes_are_refused_together(root: Path, touch: Touch) -> None:
    touch(
        "train/cat/1.jpg", "train/dog/x.txt", "train/eel/.1.jpg", "val/cat/1.jpg", "val/yak/1.jpg"
    )
    assert problems(root) == (
        f"data.root: class 'dog' has no images in '{root}/train'; add some or remove the class",
        f"data.root: class 'eel' has no images in '{root}/train'; add some or remove the class",
        f"data.root: class 'yak' is not in '{root}/train'; add it there or remove it",
    )


def test_an_empty_class_in_validation_is_no_mistake(root: Path, touch: Touch) -> None:
    touch("train/cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg")
    (root / "val/dog").mkdir()
    assert list_folder(root).validation == {"cat": ["val/cat/1.jpg"], "dog": []}


def test_links_may_not_leave_the_folder(tmp_path: Path, root: Path, touch: Touch) -> None:
    touch("cat/1.jpg", "dog/1.jpg")
    outside = tmp_path / "outside.jpg"
    outside.touch()
    (root / "cat/2.jpg").symlink_to(outside)
    (root / "cat/3.jpg").symlink_to(root / "gone.jpg")
    (root / "dog/again").symlink_to(root / "dog")
    assert problems(root) == (
        f"cat/2.jpg: the link leads out of data.root ({outside}); copy the file instead",
        f"cat/3.jpg: the link leads nowhere ({root}/gone.jpg); remove it",
        "dog/again: a linked folder within a class is not followed; link its images",
    )


def test_links_within_the_folder_and_to_it_are_followed(
    tmp_path: Path, root: Path, touch: Touch
) -> None:
    touch("raw/cats/1.jpg", "train/dog/1.jpg", "val/dog/1.jpg")
    (root / "train/cat").symlink_to(root / "raw/cats")
    (root / "train/dog/2.jpg").symlink_to(root / "raw/cats/1.jpg")
    (tmp_path / "link").symlink_to(root)
    assert list_folder(tmp_path / "link").train == {
        "cat": ["train/cat/1.jpg"],
        "dog": ["train/dog/1.jpg", "train/dog/2.jpg"],
    }


def test_names_with_a_line_break_or_of_no_encoding_are_refused(root: Path, touch: Touch) -> None:
    touch("cat/1.jpg", "dog/1.jpg", "cat/2\n3.jpg")
    Path(os.fsdecode(os.fsencode(root / "dog") + b"/\xff.jpg")).touch()
    assert problems(root) == (
        "'cat/2\\n3.jpg': the name has a line break or is not UTF-8; rename it",
        "'dog/\\udcff.jpg': the name has a line break or is not UTF-8; rename it",
    )


def test_what_is_no_regular_file_is_not_opened(root: Path, touch: Touch) -> None:
    touch("cat/1.jpg", "dog/1.jpg")
    os.mkfifo(root / "cat/2.jpg")
    listing = list_folder(root)
    assert listing.train["cat"] == ["cat/1.jpg"]
    assert listing.notes == ("data.root: files ignored that are no images: 1 (.jpg 1)",)
