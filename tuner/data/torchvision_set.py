"""A classification set of torchvision by name: written once as files with labels beside them.

From there on it is a `csv` source like any other, so that paths, verdicts, draws and the decoded
cache are the same for all.
"""

import csv
import hashlib
import inspect
import operator
import os
import shutil
import socket
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from tuner.data.labelled import CSV_FILES, list_csv
from tuner.data.listing import Classes, Listing, class_problems, natural_order
from tuner.data.once import ensure_folder
from tuner.errors import DataError, did_you_mean

FOLDER = "torchvision"
TRAIN_SPLITS = ("train", "trainval")
VALIDATION_SPLITS = ("val", "valid", "validation", "test")
NO_NAMED_SETS = ("VisionDataset", "DatasetFolder", "ImageFolder", "FakeData")
PNG_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA"))
NETWORK_TIMEOUT_S = 30.0
REMEDY = "set data.download=true to download it"

Item = Path | Image.Image
Progress = Callable[[int, int], None]


def written_folder(cache_root: Path, name: str, root: Path) -> Path:
    """Return where the set `name`, downloaded to `root`, is written under `cache_root`."""
    key = hashlib.sha256(os.path.realpath(root).encode()).hexdigest()[:8]
    return cache_root / FOLDER / f"{name}-{key}"


def ensure_written(
    cache_root: Path,
    *,
    name: str,
    root: Path,
    may_download: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Return the folder of the set under `cache_root`: images, and CSV files of their labels.

    Files of a set are linked or copied, arrays written as PNG: no pixel changes. `progress` is told
    (images written, images to write).

    Raises:
        DataError: There is no such set, it is not in `root` or cannot be downloaded, its images
            have no single class each, or nothing can be written.
    """
    folder = written_folder(cache_root, name, root)
    if os.path.isdir(folder):
        return folder
    splits = _open_splits(name, root, may_download)
    return ensure_folder(folder, lambda unfinished: _write(unfinished, splits, progress))


def list_set(
    root: Path, *, name: str, cache_root: Path, may_download: bool = False, remedy: str = REMEDY
) -> Listing:
    """Return the images of the set, whether it has been written or not; nothing is written.

    `remedy` ends the line of a set that is not there and could be downloaded.

    Raises:
        DataError: As `ensure_written`; or the classes are too few.
    """
    folder = written_folder(cache_root, name, root)
    if os.path.isdir(folder):
        return list_csv(folder)
    listed = [_classes(split) for split in _open_splits(name, root, may_download, remedy)]
    train, validation = listed[0], listed[1] if listed[1:] else None
    if problems := class_problems("data.dataset", name, train, validation, nothing="images"):
        raise DataError(*problems)
    return Listing(train, validation, ())


@dataclass(frozen=True, slots=True)
class _Split:
    """One split of a set: `folder` names it as label files do."""

    name: str
    folder: str
    images: Any  # torchvision's set
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)

    def items(self) -> Iterator[tuple[Item, str]]:
        """Yield each image, or its path, with its class."""
        for number in range(len(self)):
            item, label = self._read(number)
            names = self.class_names
            yield item, names[label] if label < len(names) else str(label)

    def _read(self, number: int) -> tuple[Item, int]:
        try:
            item, label = self.images[number]
            label = operator.index(label)
        except Exception as error:  # a set reads with whatever library its makers chose
            raise DataError(
                f"data.dataset: image {number} of {self.name} ({self.folder}) cannot be read as an "
                f"image with one class ({_one_line(error)}); use a set for classification that "
                "is whole"
            ) from error
        if not isinstance(item, Path | Image.Image) or label < 0:
            raise DataError(
                f"data.dataset: {self.name} gives no images with one class each "
                f"({type(item).__name__}, {label}); use a set for classification"
            )
        return item, label


def _open_splits(name: str, root: Path, may_download: bool, remedy: str = REMEDY) -> list[_Split]:
    """Return training and, where the set has one, validation."""
    kind = _find_set(name)
    parameters = inspect.signature(kind).parameters
    opener = _Opener(name, kind, root, parameters, may_download, remedy)
    if "train" in parameters:
        opened = [opener.open(train=True), opener.open(train=False)]
    elif "split" in parameters:
        opened = [opener.open_first(splits) for splits in (TRAIN_SPLITS, VALIDATION_SPLITS)]
    else:
        opened = [opener.open()]
    names = _class_names(opened[0])
    return [
        _Split(name, folder, images, names)
        for folder, images in zip(("train", "val"), opened, strict=False)
    ]


def _find_set(name: str) -> Any:
    # Here: it takes seconds, and no other source needs it.
    from torchvision import datasets

    kinds = {
        each: kind
        for each in datasets.__all__
        if isinstance(kind := vars(datasets).get(each), type) and each not in NO_NAMED_SETS
    }
    if name not in kinds:
        raise DataError(
            f"data.dataset: torchvision has no such set ({name!r}); "
            f"use a name from torchvision.datasets{did_you_mean(name, kinds)}"
        )
    return kinds[name]


@dataclass(frozen=True, slots=True)
class _Opener:
    """Opens the splits of one set in one folder, downloaded where that is allowed."""

    name: str
    kind: Any
    root: Path
    parameters: Mapping[str, Any]
    may_download: bool
    remedy: str

    def open_first(self, splits: tuple[str, ...]) -> Any:
        """Return the first of these splits that the set has."""
        for split in splits[:-1]:
            try:
                return self._open(split=split)
            except ValueError:  # torchvision's way to say that it has none of that name
                continue
        return self.open(split=splits[-1])

    def open(self, **split: Any) -> Any:
        """Return that split."""
        try:
            return self._open(**split)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"data.dataset: {self.name} cannot be opened as training and validation images "
                f"({_one_line(error)}); use another set"
            ) from error

    def _open(self, **split: Any) -> Any:
        arguments: dict[str, Any] = dict(split)
        if "loader" in self.parameters or _is_folder_set(self.kind):
            arguments["loader"] = Path  # files stay files
        can_download = "download" in self.parameters
        if can_download:
            arguments["download"] = self.may_download
        try:
            with warnings.catch_warnings(action="ignore"), _network_timeout():
                return self.kind(str(self.root), **arguments)
        except (TypeError, ValueError):
            raise
        except Exception as error:  # missing files, damaged files, no network: each its own kind
            raise DataError(self._problem(error, can_download)) from error

    def _problem(self, error: Exception, can_download: bool) -> str:
        if self.may_download and can_download:
            return (
                f"data.download: {self.name} cannot be downloaded to '{self.root}' "
                f"({_one_line(error)}); connect to the network, or put the files there"
            )
        remedy = self.remedy if can_download else "put its files there"
        return (
            f"data.dataset: {self.name} is not in '{self.root}', or not whole "
            f"({_one_line(error)}); {remedy}"
        )


def _is_folder_set(kind: Any) -> bool:
    from torchvision.datasets import DatasetFolder

    return issubclass(kind, DatasetFolder)


@contextmanager
def _network_timeout() -> Iterator[None]:
    """Let a silent network end a download: torchvision itself would wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(NETWORK_TIMEOUT_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _class_names(images: Any) -> tuple[str, ...]:
    """Return what the set calls its classes, each name once; none where it has no names."""
    given = getattr(images, "classes", ())
    names = [each if isinstance(each, str) else ", ".join(each) for each in given]
    names = [" ".join(name.split()) for name in names]
    if len(set(names)) < len(names):  # ImageNet has two cranes
        names = [f"{number} {name}" for number, name in enumerate(names)]
    return tuple(names)


def _write(folder: Path, splits: list[_Split], progress: Progress | None) -> None:
    total = sum(map(len, splits))
    num_written = 0
    for split, label_file in zip(splits, CSV_FILES, strict=False):
        (folder / split.folder).mkdir(parents=True)
        (folder / label_file).parent.mkdir(exist_ok=True)
        with (folder / label_file).open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            table.writerow(("path", "label"))
            for number, (item, label) in enumerate(split.items()):
                name = _image_name(number, item)
                _write_image(folder / split.folder / name, item)
                table.writerow((f"{split.folder}/{name}", label))
                num_written += 1
                if progress:
                    progress(num_written, total)
    os.sync()  # before the folder gets its final name; one fsync a file would take minutes


def _image_name(number: int, item: Item) -> str:
    suffix = item.suffix.lower() if isinstance(item, Path) else ".png"
    return f"{number:07d}{suffix}"


def _write_image(path: Path, item: Item) -> None:
    if isinstance(item, Image.Image):
        image = item if item.mode in PNG_MODES else item.convert("RGB")
        image.save(path, "PNG", compress_level=1)
        return
    original = os.path.realpath(item)
    try:
        os.link(original, path)
    except OSError:  # another disk, or one that knows no links
        shutil.copyfile(original, path)


def _classes(split: _Split) -> Classes:
    images = defaultdict(list)
    for number, (item, label) in enumerate(split.items()):
        images[label].append(f"{split.folder}/{_image_name(number, item)}")
    return {label: images[label] for label in sorted(images, key=natural_order)}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
