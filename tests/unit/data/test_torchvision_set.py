"""A set of torchvision becomes files and labels, pixel for pixel, once and without a network."""

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision import datasets

from tests.unit.data.small_sets import CLASSES, LABELS, NAMED_SPLITS, SETS
from tuner.data.decode import decode
from tuner.data.index import Splits, load_splits
from tuner.data.labelled import list_csv
from tuner.data.listing import ListImages
from tuner.data.torchvision_set import ensure_written, list_set, written_folder
from tuner.errors import DataError

CANNOT = "cannot be opened as training and validation images"


@pytest.fixture(params=SETS)
def name(request: pytest.FixtureRequest, root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    SETS[request.param](root, monkeypatch)
    return str(request.param)


@pytest.fixture
def root(hostile_tmp_path: Path) -> Path:
    return hostile_tmp_path / "download"


@pytest.fixture
def cache_root(hostile_tmp_path: Path) -> Path:
    return hostile_tmp_path / "cache"


def load(folder: Path, list_images: ListImages) -> Splits:
    return load_splits(folder, validation_fraction=0.25, split_seed=0, list_images=list_images)


def problem(root: Path, cache_root: Path, name: str, **arguments: Any) -> str:
    with pytest.raises(DataError) as caught:
        ensure_written(cache_root, name=name, root=root, **arguments)
    (line,) = caught.value.problems
    return line


def test_pixels_labels_and_order_are_those_of_torchvision(
    root: Path, cache_root: Path, name: str
) -> None:
    told: list[tuple[int, int]] = []
    folder = ensure_written(
        cache_root, name=name, root=root, progress=lambda *both: told.append(both)
    )
    assert told == [(number, 18) for number in range(1, 19)]
    splits = load(folder, list_csv)
    assert splits.train.classes == CLASSES[name]
    kind = vars(datasets)[name]
    for index, split in ((splits.train, "train"), (splits.validation, "val")):
        is_named = name in NAMED_SPLITS
        theirs = kind(str(root), **({"split": split} if is_named else {"train": split == "train"}))
        assert len(index) == len(theirs)
        for position in range(len(index)):
            image, label = theirs[position]
            names = theirs.classes[label]
            assert index.classes[index.labels[position]] == (
                names if isinstance(names, str) else ", ".join(names)
            )
            ours = decode(index.absolute(position).read_bytes(), "", "simplejpeg")
            np.testing.assert_array_equal(ours, np.asarray(image.convert("RGB")))


def test_it_is_counted_before_it_is_written_as_it_will_be(
    root: Path, cache_root: Path, name: str
) -> None:
    def list_it(folder: Path) -> Any:
        return list_set(folder, name=name, cache_root=cache_root)

    before = load(root, list_it)
    assert not cache_root.exists()
    written = ensure_written(cache_root, name=name, root=root)
    for splits in (load(root, list_it), load(written, list_csv)):
        assert list(splits.train.paths()) == list(before.train.paths())
        assert splits.train.labels.tolist() == before.train.labels.tolist()
        assert list(splits.validation.paths()) == list(before.validation.paths())


def test_it_is_written_once_and_needs_its_origin_no_more(
    root: Path, cache_root: Path, name: str
) -> None:
    folder = ensure_written(cache_root, name=name, root=root)
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")}
    root.rename(root.with_name("elsewhere"))
    root.mkdir()
    assert ensure_written(cache_root, name=name, root=root) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")} == stamps
    lock = folder.with_name(f"{folder.name}.lock")
    assert sorted(cache_root.glob("*/*")) == [folder, lock]


def test_what_a_killed_process_left_is_written_anew(
    root: Path, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SETS["CIFAR10"](root, monkeypatch)
    folder = written_folder(cache_root, "CIFAR10", root)
    left = folder.with_name(f"{folder.name}.unfinished")
    (left / "train").mkdir(parents=True)
    (left / "train/0000099.png").touch()
    ensure_written(cache_root, name="CIFAR10", root=root)
    assert len(list((folder / "train").iterdir())) == 12
    assert not left.exists()


def test_files_are_copied_where_they_cannot_be_linked(
    root: Path, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SETS["Imagenette"](root, monkeypatch)

    def refuse(*_: object) -> None:
        raise OSError("another disk")

    monkeypatch.setattr(os, "link", refuse)
    folder = ensure_written(cache_root, name="Imagenette", root=root)
    theirs = {path.read_bytes() for path in root.rglob("*.JPEG")}
    assert {path.read_bytes() for path in folder.rglob("*.jpeg")} == theirs


def test_one_folder_may_hold_several_sets_and_two_folders_the_same(
    root: Path, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CIFAR10", "CIFAR100"):
        SETS[name](root, monkeypatch)
    folders = {ensure_written(cache_root, name=name, root=root) for name in ("CIFAR10", "CIFAR100")}
    folders |= {written_folder(cache_root, "CIFAR10", root / "other")}
    assert len(folders) == 3


def test_a_set_without_splits_is_drawn_from(
    root: Path, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, label in enumerate(LABELS["train"]):
        path = root / "eurosat/2750" / ("Forest", "River", "Sea")[label] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
    splits = load(ensure_written(cache_root, name="EuroSAT", root=root), list_csv)
    assert (len(splits.train), len(splits.validation)) == (8, 4)


def test_a_missing_set_is_told_with_the_setting_that_downloads_it(
    root: Path, cache_root: Path
) -> None:
    assert problem(root, cache_root, "CIFAR10") == (
        f"data.dataset: CIFAR10 is not in '{root}', or not whole (Dataset not found or corrupted. "
        "You can use download=True to download it); set data.download=true to download it"
    )
    assert problem(root, cache_root, "FER2013").endswith("; put its files there")
    assert not root.exists()
    assert not cache_root.exists()


@pytest.mark.parametrize("name", ["CIFAR10", "MNIST", "Flowers102"])
def test_a_missing_network_is_told_in_one_line(
    root: Path, cache_root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    line = problem(root, cache_root, name, may_download=True)
    assert line.startswith(f"data.download: {name} cannot be downloaded to '{root}' (")
    assert line.endswith("); connect to the network, or put the files there")
    assert "name resolution" in line
    assert "\n" not in line
    assert socket.getdefaulttimeout() is None


def test_nothing_is_downloaded_that_is_there(
    root: Path, cache_root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked for the network")

    if name == "Flowers102":
        monkeypatch.setattr(datasets.Flowers102, "_check_integrity", lambda self: True)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert ensure_written(cache_root, name=name, root=root, may_download=True).is_dir()


def test_an_unknown_name_is_told_with_the_nearest(root: Path, cache_root: Path) -> None:
    use = "use a name from torchvision.datasets"
    assert problem(root, cache_root, "CIFAR_10") == (
        f"data.dataset: torchvision has no such set ('CIFAR_10'); {use}; did you mean CIFAR10?"
    )
    assert problem(root, cache_root, "ImageFolder").startswith(
        f"data.dataset: torchvision has no such set ('ImageFolder'); {use}"
    )


def test_a_set_that_is_none_of_classes_is_told(
    root: Path, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CANNOT in problem(root, cache_root, "EMNIST")
    assert CANNOT in problem(root, cache_root, "CocoDetection")

    class Pairs(datasets.SEMEION):  # type: ignore[misc]
        def __init__(self, root: str, download: bool = False) -> None:
            self.labels = [3]

        def __len__(self) -> int:
            return 1

        def __getitem__(self, number: int) -> tuple[str, int]:
            return "text", 3

    monkeypatch.setattr(datasets, "SEMEION", Pairs)
    assert problem(root, cache_root, "SEMEION") == (
        "data.dataset: SEMEION gives no images with one class each (str, 3); "
        "use a set for classification"
    )
    assert not list(cache_root.glob("*/*-????????"))


def test_damage_is_told_by_the_image(
    root: Path, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SETS["FashionMNIST"](root, monkeypatch)

    def fail(self: Any, number: int) -> None:
        raise IndexError(f"no image\n{number}")

    monkeypatch.setattr(datasets.FashionMNIST, "__getitem__", fail)
    assert problem(root, cache_root, "FashionMNIST") == (
        "data.dataset: image 0 of FashionMNIST (train) cannot be read as an image with one class "
        "(no image 0); use a set for classification that is whole"
    )


def test_a_cache_that_cannot_be_written_is_told(
    root: Path, hostile_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SETS["CIFAR10"](root, monkeypatch)
    in_the_way = hostile_tmp_path / "file"
    in_the_way.touch()
    assert problem(root, in_the_way, "CIFAR10") == (
        f"data.cache_root: cannot write to {in_the_way}/torchvision (Not a directory); "
        "use another folder"
    )
