"""What every source of images promises: one set of rules for classes, files, splits and limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tuner.data.folder import list_folder
from tuner.data.labelled import list_csv, list_lines
from tuner.data.listing import ListImages
from tuner.data.prepare import PreparedData, prepare_dataset
from tuner.errors import DataError

Split = Mapping[str, Mapping[str, bytes]]  # by class: the images by name
REMEDY = "replace it or set data.on_bad_image=skip"


@dataclass(frozen=True, slots=True)
class Source:
    """One form that images and labels come in."""

    list_images: ListImages
    write: Callable[[Path, str, Split], None]
    train_place: str  # what errors call the place of training's classes

    def lay_out(self, root: Path, train: Split, validation: Split | None = None) -> Path:
        """Write images and labels; the images lie at the same paths in every form."""
        for split, classes in (("train", train), ("val", validation or {})):
            for label, images in classes.items():
                for name, content in images.items():
                    path = root / split / label / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
        self.write(root, "train", train)
        if validation is not None:
            self.write(root, "val", validation)
        return root

    def prepare(
        self, root: Path, *, limit: int | None = None, on_bad_image: str = "fail"
    ) -> PreparedData:
        """Prepare the images."""
        return prepare_dataset(
            root,
            validation_fraction=0.25,
            split_seed=0,
            limit=limit,
            decoder="simplejpeg",
            on_bad_image=on_bad_image,
            list_images=self.list_images,
        )

    def problems(self, root: Path) -> tuple[str, ...]:
        """Return what is wrong with the images."""
        with pytest.raises(DataError) as caught:
            self.prepare(root)
        return caught.value.problems


def write_nothing(root: Path, split: str, classes: Split) -> None:
    """Folders say it all."""


def write_labels(
    names: Mapping[str, str], separator: str, root: Path, split: str, classes: Split
) -> None:
    pairs = [(f"{label}/{name}", label) for label, images in classes.items() for name in images]
    path = root / names[split]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{separator.join(pair)}\n" for pair in pairs), encoding="utf-8")


CSV_NAMES = {"train": "label/train_label.csv", "val": "label/valid_label.csv"}
LIST_NAMES = {"train": "train.txt", "val": "val.txt"}
SOURCES = {
    "folder": Source(list_folder, write_nothing, "{}/train"),
    "csv": Source(list_csv, partial(write_labels, CSV_NAMES, ","), CSV_NAMES["train"]),
    "list": Source(list_lines, partial(write_labels, LIST_NAMES, "\t"), LIST_NAMES["train"]),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Source:
    return SOURCES[request.param]


def image(seed: int, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 24, 3), np.uint8)
    file = BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind)
    return file.getvalue()


def images(first: int, number: int) -> dict[str, bytes]:
    return {f"{seed}.jpg": image(seed) for seed in range(first, first + number)}


TRAIN = {"1": images(0, 8), "é 10": images(10, 8), "9": images(20, 4)}
VALIDATION = {"1": images(30, 2), "9": images(40, 2), "é 10": images(50, 2)}


def test_labels_of_any_form_become_numbers_in_natural_order(
    source: Source, hostile_tmp_path: Path
) -> None:
    prepared = source.prepare(source.lay_out(hostile_tmp_path, TRAIN, VALIDATION))
    assert prepared.train.classes == prepared.validation.classes == ("1", "9", "é 10")
    for index in (prepared.train, prepared.validation):
        assert [path.split("/")[1] for path in index.paths()] == [
            index.classes[label] for label in index.labels
        ]
    assert (len(prepared.train), len(prepared.validation)) == (20, 6)
    assert prepared.notes == ()


def test_names_and_labels_of_digits_lose_none(source: Source, tmp_path: Path) -> None:
    train = {"007": {"001.jpg": image(1), "01.jpg": image(2)}, "7": {"1.jpg": image(3)}}
    prepared = source.prepare(source.lay_out(tmp_path, train, {"007": {"1e3.jpg": image(4)}}))
    labelled = {
        path: prepared.train.classes[label]
        for path, label in zip(prepared.train.paths(), prepared.train.labels, strict=True)
    }
    assert labelled == {
        "train/007/001.jpg": "007",
        "train/007/01.jpg": "007",
        "train/7/1.jpg": "7",
    }
    assert list(prepared.validation.paths()) == ["val/007/1e3.jpg"]


def test_the_same_images_are_the_same_data_set(tmp_path: Path) -> None:
    fingerprints = {
        each.prepare(each.lay_out(tmp_path / name, TRAIN, VALIDATION)).fingerprint
        for name, each in SOURCES.items()
    }
    assert len(fingerprints) == 1


def test_without_validation_the_same_images_are_drawn(tmp_path: Path) -> None:
    fingerprints = set()
    for name, each in SOURCES.items():
        prepared = each.prepare(each.lay_out(tmp_path / name, TRAIN))
        assert np.bincount(prepared.validation.labels).tolist() == [2, 1, 2]
        fingerprints.add(prepared.fingerprint)
    assert len(fingerprints) == 1


@pytest.mark.parametrize("limit", [1, 3, 5, 17])
def test_a_limit_is_exact_and_draws_the_same(tmp_path: Path, limit: int) -> None:
    fingerprints = set()
    for name, each in SOURCES.items():
        prepared = each.prepare(each.lay_out(tmp_path / name, TRAIN, VALIDATION), limit=limit)
        assert (len(prepared.train), len(prepared.validation)) == (limit, min(limit, 6))
        fingerprints.add(prepared.fingerprint)
    assert len(fingerprints) == 1


def test_validation_may_lack_a_class_and_shifts_none(source: Source, tmp_path: Path) -> None:
    validation = {"é 10": images(50, 2)}
    prepared = source.prepare(source.lay_out(tmp_path, TRAIN, validation))
    assert prepared.validation.labels.tolist() == [2, 2]
    assert prepared.notes == ("data.root: classes without validation images: 2 (1, 9)",)


def test_a_class_of_validation_alone_is_refused(source: Source, tmp_path: Path) -> None:
    root = source.lay_out(tmp_path, TRAIN, {**VALIDATION, "zebra": images(60, 1)})
    (problem,) = source.problems(root)
    place = source.train_place.format(root)
    assert problem.endswith(f": class 'zebra' is not in '{place}'; add it there or remove it")


def test_one_class_is_refused(source: Source, tmp_path: Path) -> None:
    root = source.lay_out(tmp_path, {"1": images(0, 3)}, {"1": images(5, 1)})
    (problem,) = source.problems(root)
    assert problem.endswith(" has one class (1); at least two classes are needed")


def test_hidden_files_are_ignored_and_counted(source: Source, tmp_path: Path) -> None:
    hidden = {".DS_Store": b"x", "Thumbs.db": b"x", ".1.jpg": image(0)}
    train = {**TRAIN, "1": {**TRAIN["1"], **hidden}}
    prepared = source.prepare(source.lay_out(tmp_path, train, VALIDATION))
    assert len(prepared.train) == 20
    assert prepared.notes == ("data.root: hidden or system files ignored: 3",)


def test_bad_files_are_all_named_or_left_out(source: Source, tmp_path: Path) -> None:
    bad = {"cut.jpg": image(0)[:200], "empty.jpg": b"", "text.jpg": b"no image"}
    train = {**TRAIN, "1": {**TRAIN["1"], **bad}}
    root = source.lay_out(tmp_path, train, {**VALIDATION, "1": bad})
    paths = [f"{split}/1/{name}" for split in ("train", "val") for name in bad]
    found = source.problems(root)
    assert [problem.split(":")[0] for problem in found] == paths
    assert all(problem.endswith(REMEDY) for problem in found)
    prepared = source.prepare(root, on_bad_image="skip")
    assert (len(prepared.train), len(prepared.validation)) == (20, 4)
    assert prepared.notes[-1].startswith("data.root: unreadable images left out: 6 (train/1/cut")


def test_images_of_every_kind_pass(source: Source, tmp_path: Path) -> None:
    kinds = {
        f"{kind} {mode}.{kind.lower()}": image(number, kind, mode)
        for number, (kind, mode) in enumerate(
            [("PNG", "LA"), ("PNG", "RGBA"), ("PNG", "P"), ("JPEG", "CMYK"), ("BMP", "1")]
        )
    }
    root = source.lay_out(tmp_path, {**TRAIN, "1": kinds}, VALIDATION)
    assert len(source.prepare(root).train) == 17


def test_links_out_of_the_root_are_refused(source: Source, tmp_path: Path) -> None:
    outside = tmp_path / "outside.jpg"
    outside.write_bytes(image(0))
    root = source.lay_out(tmp_path / "root", TRAIN, VALIDATION)
    link = root / "train/1/0.jpg"
    link.unlink()
    link.symlink_to(outside)
    (problem,) = source.problems(root)
    assert problem.endswith(f": the link leads out of data.root ({outside}); copy the file instead")


def test_copies_across_classes_and_splits_are_counted(source: Source, tmp_path: Path) -> None:
    train = {**TRAIN, "9": {**TRAIN["9"], "copy.jpg": image(0)}}
    validation = {**VALIDATION, "1": {"copy.jpg": image(0)}}
    prepared = source.prepare(source.lay_out(tmp_path, train, validation))
    assert prepared.notes == (
        "data.root: images with an identical copy in another class: 3 "
        "(train/1/0.jpg, train/9/copy.jpg, val/1/copy.jpg)",
        "data.root: validation images with an identical training image: 1 (val/1/copy.jpg)",
    )
