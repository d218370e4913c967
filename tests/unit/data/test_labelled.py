"""What a label file names is looked up below the root, and every mistake is told by its line."""

import codecs
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tuner.data.index import Splits, load_splits
from tuner.data.labelled import list_csv, list_lines
from tuner.data.listing import Listing
from tuner.errors import DataError

Write = Callable[..., None]
TRAIN, VALID = "label/train_label.csv", "label/valid_label.csv"
LOOKED = "looked in train/, data.root itself; add it or remove the line"


@pytest.fixture
def root(hostile_tmp_path: Path) -> Path:
    for path in ("train/1.jpg", "train/2.jpg", "train/a/3.jpg", "4.jpg", "test/9.jpg"):
        (hostile_tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (hostile_tmp_path / path).touch()
    return hostile_tmp_path


def write(root: Path, name: str, *lines: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def problems(root: Path, list_images: Callable[[Path], Listing] = list_csv) -> Sequence[str]:
    with pytest.raises(DataError) as caught:
        list_images(root)
    return caught.value.problems


def test_names_are_looked_up_in_train_and_then_in_the_root(root: Path) -> None:
    (root / "1.jpg").touch()
    names = ("1.jpg,x", "a/3.jpg,y", "4.jpg,y", "train/2.jpg,x", f"{root}/test/9.jpg,x")
    write(root, TRAIN, *names)
    assert list_csv(root) == Listing(
        {"x": ["train/1.jpg", "train/2.jpg", "test/9.jpg"], "y": ["train/a/3.jpg", "4.jpg"]},
        None,
        (),
    )


@pytest.mark.parametrize("name", ["val", "validation", "valid", "Valid"])
def test_validation_names_are_looked_up_in_their_own_folder_first(root: Path, name: str) -> None:
    (root / name).mkdir()
    (root / name / "1.jpg").touch()
    write(root, TRAIN, "1.jpg,x", "4.jpg,y")
    write(root, VALID, "1.jpg,x", "2.jpg,y", "test/9.jpg,y")
    assert list_csv(root).validation == {
        "x": [f"{name}/1.jpg"],
        "y": ["train/2.jpg", "test/9.jpg"],
    }


def test_the_folder_of_unlabelled_test_images_is_no_validation(root: Path) -> None:
    write(root, TRAIN, "1.jpg,x", "4.jpg,y")
    write(root, VALID, "9.jpg,x")
    assert problems(root) == (
        f"{VALID} line 1: image '9.jpg' does not exist under data.root; {LOOKED}",
    )


def test_lines_are_read_from_files_of_their_own(root: Path) -> None:
    write(root, "train.txt", "# path label", "1.jpg x", "a/3.jpg y")
    write(root, "val.txt", "2.jpg x")
    assert list_lines(root) == Listing(
        {"x": ["train/1.jpg"], "y": ["train/a/3.jpg"]}, {"x": ["train/2.jpg"]}, ()
    )


@pytest.mark.parametrize(("name", "separator"), [("train.txt", " "), (TRAIN, ",")])
def test_a_byte_order_mark_is_no_part_of_the_first_name(
    root: Path, name: str, separator: str
) -> None:
    write(root, name, f"1.jpg{separator}x", f"2.jpg{separator}y")
    (root / name).write_bytes(codecs.BOM_UTF8 + (root / name).read_bytes())
    list_images = list_csv if name == TRAIN else list_lines
    assert list_images(root).train == {"x": ["train/1.jpg"], "y": ["train/2.jpg"]}


def test_label_files_may_lie_anywhere(root: Path, tmp_path: Path) -> None:
    write(tmp_path, "elsewhere.csv", "1.jpg,x", "gone.jpg,y", "4.jpg,y")
    write(root, "mine.csv", "2.jpg,x")
    with pytest.raises(DataError) as caught:
        list_csv(root, train_labels=f"{tmp_path}/elsewhere.csv", validation_labels="mine.csv")
    assert caught.value.problems == (
        f"{tmp_path}/elsewhere.csv line 2: image 'gone.jpg' does not exist under data.root; "
        f"{LOOKED}",
    )


def test_a_label_file_that_is_asked_for_must_be_there(root: Path) -> None:
    assert problems(root) == (
        f"data.train_labels: '{root}/{TRAIN}' does not exist; "
        "put it there or name another, data.train_labels=FILE",
    )
    write(root, TRAIN, "1.jpg,x", "4.jpg,y")
    with pytest.raises(DataError, match="n' does not exist; put it there"):
        list_csv(root, train_labels="n" * 300)
    with pytest.raises(DataError) as caught:
        list_csv(root, validation_labels="label")
    assert caught.value.problems == (
        f"data.validation_labels: '{root}/label' is not a file; "
        "put it there or name another, data.validation_labels=FILE",
    )


def test_mistakes_of_both_files_are_told_together_by_line(root: Path) -> None:
    write(root, TRAIN, "path,label", "1.jpg,x", "b.jpg,x", "../../out.jpg,y", "/etc/passwd,y", "2,")
    (root / VALID).write_bytes("é.jpg,x".encode("latin-1"))
    outside = "lies outside data.root; copy it there"
    assert problems(root) == (
        f"{TRAIN} line 6: image '2' has no label; write one or remove the line",
        f"{TRAIN} line 3: image 'b.jpg' does not exist under data.root; {LOOKED}",
        f"{TRAIN} line 4: image '../../out.jpg' {outside}",
        f"{TRAIN} line 5: image '/etc/passwd' {outside}",
        f"{VALID} line 1: byte 0xE9 is not UTF-8 (Latin-1 or Windows-1252, it seems); "
        "save it as UTF-8",
    )


def test_an_image_with_two_labels_is_refused_by_both_lines(root: Path) -> None:
    write(root, TRAIN, "1.jpg,x", "2.jpg,y", "train/1.jpg,y", "./1.jpg,x")
    assert problems(root) == (
        f"{TRAIN} line 3: image 'train/1.jpg' is 'y' here and 'x' in line 1; remove one of them",
    )


def test_an_image_named_twice_with_one_label_is_used_once_and_counted(root: Path) -> None:
    write(root, TRAIN, "1.jpg,x", "2.jpg,y", "1.jpg,x", "./1.jpg,x")
    listing = list_csv(root)
    assert listing.train == {"x": ["train/1.jpg"], "y": ["train/2.jpg"]}
    assert listing.notes == (f"{TRAIN}: lines that repeat an earlier one: 2 (1.jpg, ./1.jpg)",)


def test_hidden_files_are_ignored_and_counted(root: Path) -> None:
    for name in (".DS_Store", ".1.jpg", "Thumbs.db"):
        (root / "train" / name).touch()
    write(root, TRAIN, "1.jpg,x", ".DS_Store,x", "2.jpg,y", ".1.jpg,z")
    write(root, VALID, "1.jpg,x", "Thumbs.db,x")
    listing = list_csv(root)
    assert list(listing.train) == ["x", "y"]
    assert listing.notes == ("data.root: hidden or system files ignored: 3",)


def test_links_may_not_leave_the_root(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "5.jpg").touch()
    (root / "train/5.jpg").symlink_to(outside / "5.jpg")
    (root / "train/6.jpg").symlink_to(root / "gone.jpg")
    (root / "train/linked").symlink_to(outside)
    (root / "train/inner.jpg").symlink_to(root / "4.jpg")
    write(root, TRAIN, "1.jpg,x", "5.jpg,x", "6.jpg,x", "linked/5.jpg,x", "inner.jpg,y")
    copy = "copy the file instead"
    assert problems(root) == (
        f"{TRAIN} line 2: image '5.jpg': the link leads out of data.root ({outside}/5.jpg); {copy}",
        f"{TRAIN} line 3: image '6.jpg': the link leads nowhere ({root}/gone.jpg); remove it",
        f"{TRAIN} line 4: image 'linked/5.jpg': the link leads out of data.root ({outside}); "
        f"{copy}",
    )


def test_what_is_no_regular_file_does_not_exist(root: Path) -> None:
    os.mkfifo(root / "train/pipe.jpg")
    write(root, TRAIN, "1.jpg,x", "a,y", "pipe.jpg,y", f"{'n' * 300}.jpg,y", "1.jpg/x,y")
    assert len(problems(root)) == 4
    assert all("does not exist" in problem for problem in problems(root))


def test_missing_images_may_be_left_to_the_verdict_on_every_file(root: Path) -> None:
    write(root, TRAIN, "1.jpg,x", "gone.jpg,x", "2.jpg,y")
    listing = list_csv(root, may_lack_images=True)
    assert listing.train == {"x": ["train/1.jpg", "train/gone.jpg"], "y": ["train/2.jpg"]}


def test_classes_come_from_training_in_natural_order(root: Path) -> None:
    write(root, TRAIN, "1.jpg,10", "2.jpg,9", "4.jpg,-100", "a/3.jpg,1")
    write(root, VALID, "1.jpg,9", "2.jpg,cat", "4.jpg,cat")
    assert problems(root) == (
        f"{VALID} line 2: class 'cat' is not in '{TRAIN}'; add it there or remove it",
    )
    write(root, VALID, "1.jpg,9")
    assert list(list_csv(root).train) == ["1", "9", "10", "-100"]


def test_labels_of_any_numbers_become_those_from_zero(root: Path) -> None:
    write(root, TRAIN, "1.jpg,-100", "2.jpg,9", "a/3.jpg,9", "4.jpg,255", "train/../test/9.jpg,1")
    splits = load_splits(root, validation_fraction=0.5, split_seed=0, list_images=list_csv)
    assert splits.train.classes == splits.validation.classes == ("1", "9", "255", "-100")
    assert sorted(splits.train.labels) == [0, 1, 2, 3]
    assert splits.validation.labels.tolist() == [1]


def test_nothing_to_learn_from_is_told(root: Path) -> None:
    write(root, TRAIN)
    needed = "at least two classes are needed"
    assert problems(root) == (f"data.train_labels: '{TRAIN}' has no labelled images; {needed}",)
    write(root, TRAIN, "path,label", "1.jpg,x")
    assert problems(root) == (f"data.train_labels: '{TRAIN}' has one class (x); {needed}",)
    write(root, TRAIN, "1.jpg,x", "2.jpg,y")
    write(root, VALID, "path,label")
    assert problems(root) == (
        f"data.validation_labels: '{VALID}' has no labelled images; add some or remove the file",
    )


def test_a_root_that_is_no_folder_is_told(root: Path) -> None:
    remedy = "give the folder that image names are relative to"
    for name in ("no", "n" * 300):
        line = f"data.root: '{root}/{name}' does not exist; {remedy}"
        assert problems(root / name) == (line,)


def test_validation_is_drawn_from_training_where_there_is_none(root: Path) -> None:
    for number in range(20):
        (root / f"train/{number}.jpg").touch()
    write(root, TRAIN, *(f"{number}.jpg,{number % 2}" for number in range(20)))

    def load(seed: int) -> Splits:
        return load_splits(root, validation_fraction=0.2, split_seed=seed, list_images=list_csv)

    splits = load(0)
    assert (len(splits.train), len(splits.validation)) == (16, 4)
    assert sorted(splits.validation.labels) == [0, 0, 1, 1]
    assert list(load(0).train.paths()) == list(splits.train.paths())
    assert list(load(1).train.paths()) != list(splits.train.paths())
