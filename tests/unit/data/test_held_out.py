"""The test split holds good images of known classes, and none that training or validation has."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.data.conftest import CUT, EMPTY, REMEDY, run
from tuner.data.held_out import HeldOut, check_held_out, count_held_out
from tuner.errors import DataError

Check = Callable[..., HeldOut]


@pytest.fixture
def check(image_folder: Path, held_out_root: Path, tmp_path: Path) -> Check:
    """Return what checks the test split beside the images of `image_folder`."""
    used = run(image_folder, report_path=tmp_path / "dataset.json")

    def check_it(root: Path = held_out_root, **changes: Any) -> HeldOut:
        settings = {"limit": None, "split_seed": 0, "decoder": "cv2", "on_bad_image": "fail"}
        report_path = tmp_path / "test_images.json"
        return check_held_out(root, used, report_path=report_path, **(settings | changes))

    return check_it


def refusal(check: Check, root: Path, **changes: Any) -> tuple[str, ...]:
    with pytest.raises(DataError) as caught:
        check(root, **changes)
    return caught.value.problems


def test_its_images_have_the_labels_that_training_gives_their_classes(
    check: Check, held_out_root: Path
) -> None:
    shutil.rmtree(held_out_root / "class 2")
    found = check()
    assert (found.images.split, found.images.root) == ("test", held_out_root)
    assert found.images.classes == ("class 1", "class 2", "class 10")
    assert [
        (path.split("/")[0], int(label))
        for path, label in zip(found.images.paths(), found.images.labels, strict=True)
    ] == [("class 1", 0)] * 5 + [("class 10", 2)] * 5
    assert found.notes == ("data.test_root: classes without test images: 1 (class 2)",)
    assert count_held_out(held_out_root) == 10


def test_identical_copies_of_images_that_are_trained_or_chosen_on_are_left_out(
    check: Check, held_out_root: Path, image_folder: Path
) -> None:
    shutil.copy(image_folder / "train/class 1/0.jpg", held_out_root / "class 1/0.jpg")
    shutil.copy(image_folder / "val/class 2/3.jpg", held_out_root / "class 10/x.jpg")
    found = check()
    assert len(found.images) == 14
    assert not {"class 1/0.jpg", "class 10/x.jpg"} & set(found.images.paths())
    assert found.notes == (
        "data.test_root: images left out that are in training or validation, too: 2 "
        "(class 1/0.jpg, class 10/x.jpg)",
    )
    assert found.record["counts"] == {"test": {"class 1": 4, "class 2": 5, "class 10": 5}}


def test_images_that_a_limit_keeps_from_training_may_be_scored(
    image_folder: Path, tmp_path: Path
) -> None:
    used = run(image_folder, report_path=tmp_path / "dataset.json", limit=6)
    found = check_held_out(
        image_folder / "train",
        used,
        limit=None,
        split_seed=0,
        decoder="cv2",
        on_bad_image="fail",
        report_path=tmp_path / "test_images.json",
    )
    assert set(found.images.paths()) == {
        path.removeprefix("train/")
        for path in run(image_folder).train.paths()
        if path not in set(used.train.paths())
    }


def test_the_validation_images_are_no_test_split(check: Check, image_folder: Path) -> None:
    assert refusal(check, image_folder / "val") == (
        f"data.test_root: no image of '{image_folder}/val' is left to be scored; give readable "
        "images that are neither in training nor in validation",
        "data.test_root: images left out that are in training or validation, too: 12 "
        "(class 1/0.jpg, class 1/1.jpg, class 1/2.jpg, class 1/3.jpg, class 10/0.jpg ...)",
        "data.test_root: classes without test images: 3 (class 1, class 2, class 10)",
    )


def test_folders_that_are_no_class_are_named(check: Check, held_out_root: Path) -> None:
    (held_out_root / "class 3").mkdir()
    (held_out_root / "class 2").rename(held_out_root / "Class 2")
    assert refusal(check, held_out_root) == (
        f"data.test_root: folders of '{held_out_root}' that are no class of training: 2 "
        "(Class 2, class 3); name them as there, or remove them",
    )


@pytest.mark.parametrize("is_there", [False, True])
def test_a_folder_without_images_is_refused_with_the_key(
    check: Check, tmp_path: Path, is_there: bool
) -> None:
    root = tmp_path / "empty"
    if is_there:
        (root / "class 1").mkdir(parents=True)
    what = "has no images in class folders" if is_there else "does not exist"
    told = f"data.test_root: '{root}' {what}; give a folder with one folder per class"
    assert refusal(check, root) == (told,)
    with pytest.raises(DataError) as caught:
        count_held_out(root)
    assert caught.value.problems == (told,)


def test_what_is_passed_over_is_said_with_the_key(
    check: Check, held_out_root: Path, image_folder: Path
) -> None:
    (held_out_root / ".hidden").write_bytes(b"")
    (held_out_root / "list.txt").write_bytes(b"")
    shutil.copy(held_out_root / "class 1/0.jpg", held_out_root / "x.jpg")
    assert check().notes == (
        "data.test_root: hidden or system files ignored: 1",
        "data.test_root: images ignored outside the class folders: 1",
        "data.test_root: files ignored that are no images: 1 (.txt 1)",
    )
    (held_out_root / "class 1" / "y.jpg").symlink_to(image_folder / "train/class 1/0.jpg")
    assert refusal(check, held_out_root) == (
        "data.test_root: class 1/y.jpg: the link leads out of data.test_root "
        f"({image_folder}/train/class 1/0.jpg); copy the file instead",
    )


def test_bad_images_are_all_named_or_left_out(check: Check, held_out_root: Path) -> None:
    cut = held_out_root / "class 1/3.jpg"
    cut.write_bytes(cut.read_bytes()[:200])
    (held_out_root / "class 10/0.jpg").write_bytes(b"")
    assert refusal(check, held_out_root) == (
        f"data.test_root: class 1/3.jpg: {CUT}{REMEDY}",
        f"data.test_root: class 10/0.jpg: {EMPTY}{REMEDY}",
    )
    found = check(on_bad_image="skip")
    assert len(found.images) == 13
    assert found.notes == (
        "data.test_root: unreadable images left out: 2 (class 1/3.jpg, class 10/0.jpg)",
    )


@pytest.mark.parametrize("limit", [3, 7, 11])
def test_a_limit_is_filled_with_images_that_can_be_scored(
    check: Check, held_out_root: Path, image_folder: Path, limit: int
) -> None:
    for number, name in enumerate(("class 1", "class 2", "class 10")):
        (held_out_root / name / "0.jpg").write_bytes(b"")
        copied = image_folder / "train" / name / f"{number}.jpg"
        shutil.copy(copied, held_out_root / name / "1.jpg")
    found = check(limit=limit, on_bad_image="skip")
    assert len(found.images) == min(limit, 9)
    assert not [path for path in found.images.paths() if path.endswith(("0.jpg", "1.jpg"))]
    assert list(check(limit=limit, on_bad_image="skip").images.paths()) == list(
        found.images.paths()
    )


def test_unchanged_files_are_opened_once(check: Check, held_out_root: Path) -> None:
    told: list[tuple[int, int]] = []
    first = check()
    check(progress=lambda *seen: told.append(seen))
    assert told == []
    shutil.copy(held_out_root / "class 1/0.jpg", held_out_root / "class 1/9.jpg")
    again = check(progress=lambda *seen: told.append(seen))
    assert told == [(1, 1)]
    assert again.fingerprint != first.fingerprint


def test_the_fingerprint_is_that_of_what_is_scored_wherever_it_lies(
    check: Check, held_out_root: Path, tmp_path: Path
) -> None:
    first = check()
    shutil.copytree(held_out_root, tmp_path / "moved")
    assert check(tmp_path / "moved").fingerprint == first.fingerprint
    (tmp_path / "moved" / "class 1" / "4.jpg").rename(tmp_path / "moved" / "class 2" / "5.jpg")
    assert check(tmp_path / "moved").fingerprint != first.fingerprint
