"""Images that a label file names, from its lines to classes of files below the root."""

import os
import stat
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.data.csv_rows import csv_rows
from tuner.data.label_text import Problems, ReadRows, Row, read_text, shown
from tuner.data.list_rows import list_rows
from tuner.data.listing import (
    VALIDATION_NAMES,
    Classes,
    Listing,
    class_problems,
    counted,
    hidden_note,
    is_hidden,
    is_within,
    link_problem,
    natural_order,
    require_folder,
)
from tuner.errors import DataError

CSV_FILES = ("label/train_label.csv", "label/valid_label.csv")
LIST_FILES = ("train.txt", "val.txt")
KEYS = ("data.train_labels", "data.validation_labels")


def list_csv(
    root: Path,
    *,
    train_labels: str | None = None,
    validation_labels: str | None = None,
    may_lack_images: bool = False,
) -> Listing:
    """Return the images that CSV files name, by default those in CSV_FILES.

    A name is looked up in `train/`, one of validation before that in `val/` (`validation/`,
    `valid/`), and last in `root` itself. An image may be named twice with one label.

    Args:
        root: The folder that no image may lie outside of.
        train_labels: A file relative to `root` or absolute.
        validation_labels: Another; without it and the default one there is no validation.
        may_lack_images: Whether images that do not exist stay in the list, to be found unreadable.

    Raises:
        DataError: All that is wrong with either file, by line; else classes too few or unknown.
    """
    names = (train_labels or CSV_FILES[0], validation_labels or CSV_FILES[1])
    needed = (True, validation_labels is not None)
    return _list_labelled(root, csv_rows, names, needed, may_lack_images)


def list_lines(
    root: Path,
    *,
    train_labels: str | None = None,
    validation_labels: str | None = None,
    may_lack_images: bool = False,
) -> Listing:
    """Return the images that files of `path label` lines name, by default those in LIST_FILES.

    Arguments and errors are those of `list_csv`.
    """
    names = (train_labels or LIST_FILES[0], validation_labels or LIST_FILES[1])
    needed = (True, validation_labels is not None)
    return _list_labelled(root, list_rows, names, needed, may_lack_images)


@dataclass(slots=True)
class Labelled:
    """What a label file says: the rows by image id, the first of each; and what there is to say."""

    told: str
    rows: dict[str, Row] = field(default_factory=dict)
    repeats: list[str] = field(default_factory=list)
    num_hidden: int = 0
    problems: list[str] = field(default_factory=list)

    def classes(self) -> Classes:
        """Return the images of each class, classes in natural order."""
        images = defaultdict(list)
        for path, row in self.rows.items():
            images[row.label].append(path)
        return {label: images[label] for label in sorted(images, key=natural_order)}

    def seen_at(self) -> dict[str, str]:
        """Return for each class the line that names it first."""
        rows = reversed(self.rows.values())
        return {row.label: f"{self.told} line {row.line}" for row in rows}

    def notes(self) -> list[str]:
        """Return what was passed over."""
        if not self.repeats:
            return []
        return [f"{self.told}: lines that repeat an earlier one: {counted(self.repeats)}"]


def _list_labelled(
    root: Path,
    read_rows: ReadRows,
    names: tuple[str, str],
    needed: tuple[bool, bool],
    may_lack_images: bool,
) -> Listing:
    require_folder(root, "give the folder that image names are relative to")
    root = Path(os.path.abspath(root))
    folders = label_folders(root)
    files = [
        read_labelled(root, read_rows, key, name, places, may_lack_images)
        for key, name, is_needed, places in zip(KEYS, names, needed, folders, strict=True)
        if is_needed or os.path.lexists(root / name)
    ]
    if problems := [line for labelled in files for line in labelled.problems]:
        raise DataError(*problems)
    train, validation = files[0].classes(), files[1].classes() if files[1:] else None
    problems = class_problems(
        KEYS[0],
        files[0].told,
        train,
        validation,
        nothing="labelled images",
        seen_at=files[-1].seen_at(),
    )
    if validation is not None and not validation:
        problems.append(
            f"{KEYS[1]}: '{files[1].told}' has no labelled images; add some or remove the file"
        )
    if problems:
        raise DataError(*problems)
    notes = [note for labelled in files for note in labelled.notes()]
    if num_hidden := sum(labelled.num_hidden for labelled in files):
        notes.append(hidden_note(num_hidden))
    return Listing(train, validation, tuple(notes))


def label_folders(root: Path) -> tuple[list[str], list[str]]:
    """Return the folders that names of training, and of validation, are looked up in, in order."""
    try:
        names = sorted(os.listdir(root))
    except OSError as error:
        raise DataError(
            f"data.root: '{root}' cannot be listed ({error.strerror}); mend that or use another"
        ) from error
    there = {name.lower(): name for name in names if os.path.isdir(root / name)}
    # `test` holds images without labels in this layout.
    own = [there[name] for name in VALIDATION_NAMES if name in there and name != "test"]
    train = [there[name] for name in ("train",) if name in there]
    return [*train, ""], [*own, *train, ""]


def read_labelled(
    root: Path,
    read_rows: ReadRows,
    key: str,
    name: str,
    folders: Sequence[str],
    may_lack_images: bool,
) -> Labelled:
    """Return what a label file says, and all that is wrong with it.

    Args:
        root: Absolute; no image may lie outside of it.
        read_rows: Reads its form.
        key: The setting that names it.
        name: Relative to `root` or absolute.
        folders: Those below `root` that names are relative to, in the order they are tried.
        may_lack_images: Whether images that do not exist stay among the rows.
    """
    path = Path(os.path.abspath(root / name))
    told = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    if not os.path.isfile(path):
        what = "is not a file" if os.path.exists(path) else "does not exist"
        line = f"{key}: '{path}' {what}; put it there or name another, {key}=FILE"
        return Labelled(told, problems=[line])
    problems = Problems(told)
    try:
        rows = read_rows(read_text(path, told), problems)
    except DataError as error:
        return Labelled(told, problems=list(error.problems))
    labelled, finder = Labelled(told), _Finder(root, folders)
    for row in rows:
        _take(labelled, row, finder, problems, may_lack_images)
    labelled.problems = problems.lines()
    return labelled


def _take(
    labelled: Labelled, row: Row, finder: "_Finder", problems: Problems, may_lack_images: bool
) -> None:
    """Take one row in, or say what is wrong with it."""
    found = finder.find(row.name)
    before = labelled.rows.get(found.path)
    if found.is_missing and not may_lack_images:
        problems.add(
            row.line,
            "with images that do not exist",
            f"image {shown(row.name)} does not exist under data.root; "
            f"looked in {finder.told}; add it or remove the line",
        )
    elif found.problem:
        problems.add(row.line, "with images outside data.root", found.problem)
    elif any(map(is_hidden, found.path.split("/"))):
        labelled.num_hidden += 1
    elif before is None:
        labelled.rows[found.path] = row
    elif before.label == row.label:
        labelled.repeats.append(row.name)
    else:
        problems.add(
            row.line,
            "with a second label for an image",
            f"image {shown(row.name)} is {shown(row.label)} here and {shown(before.label)} "
            f"in line {before.line}; "
            "remove one of them",
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """An image id, whether there is no such file, and why it may not be used."""

    path: str
    is_missing: bool = False
    problem: str | None = None


class _Finder:
    """Finds the file that a name in a label file means.

    Args:
        root: The folder that no image may lie outside of.
        folders: Those below it that names are relative to, in the order they are tried.
    """

    def __init__(self, root: Path, folders: Sequence[str]) -> None:
        self._root = str(root)
        self._within = self._root.rstrip("/") + "/"
        self._real_root = os.path.realpath(root)
        self._folders = folders
        self._real_folders: dict[str, str] = {}

    @property
    def told(self) -> str:
        """Return the folders, for people."""
        return ", ".join(f"{folder}/" if folder else "data.root itself" for folder in self._folders)

    def find(self, name: str) -> _Found:
        """Return the first file that there is; else the path where it should be."""
        absolutes = [
            os.path.normpath(os.path.join(self._root, folder, name)) for folder in self._folders
        ]
        inside = [path for path in absolutes if path.startswith(self._within)]
        if not inside:
            return _Found(
                name, problem=f"image {shown(name)} lies outside data.root; copy it there"
            )
        for absolute in inside:
            path = absolute.removeprefix(self._within)
            if (status := _status(absolute)) is None:
                continue
            if problem := self._link_problem(absolute, stat.S_ISLNK(status.st_mode)):
                return _Found(path, problem=f"image {shown(name)}: {problem}")
            if os.path.isfile(absolute):
                return _Found(path)
        return _Found(inside[0].removeprefix(self._within), is_missing=True)

    def _link_problem(self, absolute: str, is_link: bool) -> str | None:
        if is_link:
            return link_problem(self._real_root, absolute)
        # Only the folders above it may be links: looked at once for all their files.
        folder = os.path.dirname(absolute)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        if is_within(self._real_root, self._real_folders[folder]):
            return None
        return link_problem(self._real_root, folder)


def _status(absolute: str) -> os.stat_result | None:
    try:
        return os.lstat(absolute)
    except OSError:  # no such file, a file where a folder should be, a name too long
        return None
