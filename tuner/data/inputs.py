"""Images that a model is asked about: those of a folder, a list or a csv, one after the other.

Nothing is kept of them but a count, so there may be any number: they are gone through twice, once
to count and check them and once to be read.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.data.listing import (
    CONTROL,
    IMAGE_SUFFIXES,
    SYSTEM_NAMES,
    VALIDATION_NAMES,
    counted,
)
from tuner.data.pool import LONGEST_PATH_BYTES
from tuner.errors import DataError

SPLIT_NAMES = ("train", *VALIDATION_NAMES)


@dataclass(frozen=True, slots=True)
class Input:
    """One image: as it is called, where it lies, its class number if that is known.

    `problem` says why it cannot even be opened; `path` is empty then.
    """

    image: str
    path: str
    label: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """All images that are asked about.

    Attributes:
        notes: What there is to say of what was passed over.
        begin: Goes through them anew, in their order.
    """

    num_images: int
    notes: tuple[str, ...]
    begin: Callable[[], Iterator[Input]]


def named_input(image: str, root: str, label: int | None) -> Input:
    """Return the image of that name, relative to `root` or absolute."""
    path = os.path.join(root, image)
    if CONTROL.search(image):
        shown = CONTROL.sub(lambda found: repr(found[0])[1:-1], image)
        problem = "the name has a line break or is not UTF-8; rename it"
        return Input(shown, "", label, problem)
    if len(os.fsencode(path)) > LONGEST_PATH_BYTES:
        return Input(image, "", label, f"the path is longer than {LONGEST_PATH_BYTES} bytes")
    return Input(image, path, label)


def folder_inputs(root: Path, classes: Sequence[str]) -> Inputs:
    """Return all images below `root`, in the order of their paths; hidden files are passed over.

    Labels are known where all folders in `root`, or in its `train/` and `val/`, are named as
    classes: then as for training. Links are followed, in a circle only once.

    Raises:
        DataError: A folder cannot be listed, or there is no image.
    """
    walk = _Walk(os.path.abspath(root), _find_labels(root, classes))
    num_images = sum(1 for _ in walk.images())
    if not num_images:
        raise DataError(f"images: '{root}' holds no image ({', '.join(sorted(IMAGE_SUFFIXES))})")
    notes = walk.notes()
    return Inputs(num_images, notes, walk.images)


@dataclass(frozen=True, slots=True)
class _Labels:
    """Which part of a path is the name of a class: by folders of splits, or all by the first."""

    number_of: dict[str, int]
    splits: frozenset[str]
    is_by_first: bool
    unknown: tuple[str, ...] = ()

    def label(self, path: str) -> int | None:
        first, *more = path.split("/")
        if self.is_by_first and more:
            return self.number_of.get(first)
        if first in self.splits and len(more) > 1:
            return self.number_of.get(more[0])
        return None


def _find_labels(root: Path, classes: Sequence[str]) -> _Labels:
    number_of = {name: number for number, name in enumerate(classes)}
    folders = _folders(root)
    if folders and number_of.keys() >= set(folders):
        return _Labels(number_of, frozenset(), is_by_first=True)
    inside = {name: _folders(root / name) for name in folders if name.lower() in SPLIT_NAMES}
    splits = [name for name, found in inside.items() if found and number_of.keys() >= set(found)]
    looked_at = {*folders, *(name for found in inside.values() for name in found)}
    unknown: tuple[str, ...] = ()
    if not splits and number_of.keys() & looked_at:
        unknown = tuple(sorted(looked_at - number_of.keys() - inside.keys()))
    return _Labels(number_of, frozenset(splits), is_by_first=False, unknown=unknown)


def _folders(folder: Path) -> list[str]:
    return [entry.name for entry in _entries(str(folder)) if entry.is_dir() and not _hidden(entry)]


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    """Return what lies in a folder, in the order that sorts whole paths."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda each: each.name + "/" * each.is_dir())
    except OSError as error:
        raise DataError(
            f"images: '{folder}' cannot be listed ({error.strerror}); mend that"
        ) from error


def _hidden(entry: "os.DirEntry[str]") -> bool:
    return entry.name.startswith(".") or entry.name.lower() in SYSTEM_NAMES


class _Walk:
    """Goes through a folder; counts what is passed over each time."""

    def __init__(self, root: str, labels: _Labels) -> None:
        self.root = root
        self.labels = labels
        self._forget()

    def images(self) -> Iterator[Input]:
        self._forget()
        for path in self._below("", (os.path.realpath(self.root),)):
            yield named_input(path, self.root, self.labels.label(path))

    def notes(self) -> tuple[str, ...]:
        endings = ", ".join(f"{ending} {n}" for ending, n in self.other_files.most_common(5))
        unknown = self.labels.unknown
        found = (
            (self.num_hidden, f"hidden or system files ignored: {self.num_hidden}"),
            (endings, f"files ignored that are no images: {self.other_files.total()} ({endings})"),
            (self.num_circles, f"links ignored that lead back: {self.num_circles}"),
            (
                unknown,
                f"no labels, for these folders are no class of the model: {counted(unknown)}",
            ),
        )
        return tuple(f"images: {note}" for is_any, note in found if is_any)

    def _forget(self) -> None:
        self.num_hidden = self.num_circles = 0
        self.other_files: Counter[str] = Counter()

    def _below(self, folder: str, around: tuple[str, ...]) -> Iterator[str]:
        for entry in _entries(os.path.join(self.root, folder)):
            path = f"{folder}/{entry.name}" if folder else entry.name
            suffix = os.path.splitext(entry.name)[1].lower()
            if _hidden(entry):
                self.num_hidden += 1
            elif entry.is_dir():
                real = os.path.realpath(entry.path)
                if real in around:
                    self.num_circles += 1
                else:
                    yield from self._below(path, (*around, real))
            # A link that leads nowhere is an image that cannot be opened; a pipe would never end.
            elif suffix in IMAGE_SUFFIXES and (entry.is_file() or not os.path.exists(entry.path)):
                yield path
            else:
                self.other_files[suffix or "no ending"] += 1
