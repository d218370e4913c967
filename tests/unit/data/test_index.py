"""Indexes keep path, label and key together; draws are stratified, exact and keyed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.data.index import ImageIndex, Splits, draw_order, load_splits
from tuner.data.keyed import stable_keys
from tuner.errors import DataError

NAMES = ("class 1", "class 2", "class 10")


def load(root: Path, *, fraction: float = 0.25, seed: int = 0) -> Splits:
    return load_splits(root, validation_fraction=fraction, split_seed=seed)


def counts(index: ImageIndex) -> list[int]:
    return np.bincount(index.labels, minlength=len(index.classes)).tolist()


def make_classes(root: Path, sizes: list[int]) -> Path:
    for name, size in enumerate(sizes):
        (root / f"{name}").mkdir(parents=True)
        for number in range(size):
            (root / f"{name}/{number}.jpg").touch()
    return root


def test_a_split_folder_becomes_two_indexes(image_folder: Path) -> None:
    splits = load(image_folder)
    assert splits.train.classes == splits.validation.classes == NAMES
    assert counts(splits.train) == [8, 8, 8]
    assert counts(splits.validation) == [4, 4, 4]
    assert list(splits.validation.paths())[:5] == [
        *(f"val/class 1/{number}.jpg" for number in range(4)),
        "val/class 10/0.jpg",
    ]
    assert splits.validation.labels[:5].tolist() == [0, 0, 0, 0, 2]
    assert all(splits.train.absolute(position).is_file() for position in range(24))
    assert splits.notes == ()


def test_classes_come_from_training_alone(image_folder: Path) -> None:
    for image in (image_folder / "val/class 1").iterdir():
        image.unlink()
    (image_folder / "val/class 1").rmdir()
    splits = load(image_folder)
    assert splits.validation.classes == NAMES
    assert counts(splits.validation) == [0, 4, 4]
    assert splits.notes == ("data.root: classes without validation images: 1 (class 1)",)


@given(
    st.lists(st.text(alphabet="aé日 '/", min_size=1, max_size=9), unique=True, max_size=20),
    st.data(),
)
def test_taking_keeps_path_label_and_key_together(names: list[str], data: st.DataObject) -> None:
    index = ImageIndex.from_paths("train", Path("r"), ("a",) * 20, names, range(len(names)))
    assert list(index.paths()) == names
    bound = max(len(names) - 1, 0)
    chosen = data.draw(st.lists(st.integers(0, bound), max_size=30 if names else 0))
    taken = index.take(chosen)
    assert list(taken.paths()) == [names[position] for position in chosen]
    assert taken.labels.tolist() == chosen
    assert taken.keys.tolist() == stable_keys(taken.paths()).tolist()
    assert (taken.split, taken.root, taken.classes) == (index.split, index.root, index.classes)


def test_a_drawn_split_is_stratified_and_leaves_each_class_both_sides(tmp_path: Path) -> None:
    splits = load(make_classes(tmp_path / "r", [40, 8, 2, 1, 3]), fraction=0.25)
    assert counts(splits.validation) == [10, 2, 1, 0, 1]
    assert counts(splits.train) == [30, 6, 1, 1, 2]
    assert not set(splits.train.paths()) & set(splits.validation.paths())
    assert (splits.train.split, splits.validation.split) == ("train", "validation")
    assert splits.notes == ("data.root: classes without validation images: 1 (3)",)


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_no_fraction_empties_a_class(tmp_path: Path, fraction: float) -> None:
    splits = load(make_classes(tmp_path / "r", [9, 2, 2]), fraction=fraction)
    assert min(counts(splits.train)) >= 1
    assert min(counts(splits.validation)) >= 1


def test_the_split_seed_alone_draws_the_split(tmp_path: Path) -> None:
    root = make_classes(tmp_path / "r", [30, 30])
    assert list(load(root, seed=1).train.paths()) == list(load(root, seed=1).train.paths())
    assert list(load(root, seed=1).train.paths()) != list(load(root, seed=2).train.paths())


def test_the_split_does_not_depend_on_where_the_folder_lies(tmp_path: Path) -> None:
    here = load(make_classes(tmp_path / "here", [30, 30]))
    there = load(make_classes(tmp_path / "there", [30, 30]))
    assert list(here.train.paths()) == list(there.train.paths())


def test_a_single_image_per_class_leaves_nothing_for_validation(tmp_path: Path) -> None:
    root = make_classes(tmp_path / "r", [1, 1])
    with pytest.raises(DataError) as caught:
        load(root)
    assert str(caught.value) == (
        f"data.root: '{root}' leaves no image for validation; fill its validation folder, "
        "or give at least one class two images"
    )


@pytest.mark.parametrize("limit", range(1, 60, 7))
def test_every_head_of_the_draw_is_stratified(tmp_path: Path, limit: int) -> None:
    index = load(make_classes(tmp_path / "r", [40, 20, 20])).train
    order = draw_order(index, 0)
    assert sorted(order) == list(range(60))
    quota = np.array([30, 15, 15]) * limit / 60
    assert np.abs(counts(index.take(order[:limit])) - quota).max() < 1


def test_a_draw_does_not_take_the_head_of_the_list(tmp_path: Path) -> None:
    index = load(make_classes(tmp_path / "r", [100, 100])).train
    drawn = index.take(draw_order(index, 0)[:20])
    heads = [f"{label}/{number}.jpg" for label in range(2) for number in range(10)]
    assert len(set(drawn.paths()) & set(heads)) < 10
