"""What lies in a folder of images: splits, classes and files, and what was passed over."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tuner.data.listing import (
    CONTROL,
    IMAGE_SUFFIXES,
    ROOT_KEY,
    VALIDATION_NAMES,
    Classes,
    Listing,
    class_problems,
    counted,
    hidden_note,
    is_hidden,
    link_problem,
    natural_order,
    require_folder,
)
from tuner.errors import DataError

WHAT_TO_GIVE = "give a folder with one folder per class"


def list_folder(root: Path) -> Listing:
    """Return the images under `root`: `train/` and `val/` (see VALIDATION_NAMES), or only classes.

    Raises:
        DataError: No folder, bad links and names, folders beside a lone `train/` of classes, or
            else too few classes, empty class folders, classes that training lacks; all of a kind
            at once.
    """
    require_folder(root, WHAT_TO_GIVE)
    walk = _Walk(root)
    names = walk.class_folders("")
    train_name, validation_name = _split_names(walk, names)
    notes, validation = [], None
    if train_name is None:
        train = walk.classes("", names)
    else:
        train = walk.classes(train_name, walk.class_folders(train_name))
        unused = [name for name in names if name not in (train_name, validation_name)]
        if unused and validation_name is None:
            walk.problems.append(
                f"data.root: folders beside '{train_name}' that are no split: {counted(unused)}; "
                f"a split is named {', '.join(VALIDATION_NAMES)}"
            )
        elif unused:
            notes.append(f"data.root: folders not used: {counted(unused)}")
    if validation_name is not None:
        validation = walk.classes(validation_name, walk.class_folders(validation_name))
    place = str(root / (train_name or ""))
    problems = walk.problems or class_problems(
        "data.root", place, train, validation, nothing="class folders"
    )
    if problems:
        raise DataError(*problems)
    return Listing(train, validation, (*notes, *walk.notes()))


def list_class_folders(root: Path, key: str) -> tuple[Classes, tuple[str, ...]]:
    """Return the images in each folder in `root`, in natural order, and what was passed over.

    Args:
        root: The folder that the setting `key` names.
        key: Begins what there is to say.

    Raises:
        DataError: There is no such folder; or bad links and names in it, all at once.
    """
    require_folder(root, WHAT_TO_GIVE, key)
    walk = _Walk(root, key)
    classes = walk.classes("", walk.class_folders(""))
    if walk.problems:
        raise DataError(*(f"{key}: {problem}" for problem in walk.problems))
    return classes, tuple(walk.notes())


class _Walk:
    """One pass over the folder, which remembers what it passed over and what is wrong."""

    def __init__(self, root: Path, key: str = ROOT_KEY) -> None:
        self.root = root
        self.key = key
        self.real_root = os.path.realpath(root)
        self.problems: list[str] = []
        self.num_hidden = 0
        self.num_outside = 0
        self.other_files: Counter[str] = Counter()

    def class_folders(self, folder: str) -> list[str]:
        """Return the names of the folders in `folder`; images beside them belong to no class."""
        names, images = self.look(folder)
        self.num_outside += len(images)
        return names

    def holds_classes(self, folder: str) -> bool:
        """Return whether there are folders in `folder` and no images beside them."""
        folders, images = _Walk(self.root).look(folder)  # what it passes over is counted later
        return bool(folders) and not images

    def classes(self, folder: str, names: Sequence[str]) -> Classes:
        """Return the images of each class."""
        return {name: self.images(_join(folder, name)) for name in sorted(names, key=natural_order)}

    def images(self, folder: str) -> list[str]:
        """Return all images in `folder` and the folders below it."""
        folders, images = self.look(folder)
        paths = [_join(folder, name) for name in images]
        for name in folders:
            path = _join(folder, name)
            # A class may be a link; links further down could run in a circle.
            if (self.root / path).is_symlink():
                self.problems.append(
                    f"{path}: a linked folder within a class is not followed; link its images"
                )
            else:
                paths += self.images(path)
        return paths

    def look(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the images directly in `folder`."""
        folders, images = [], []
        for entry in self.entries(folder):
            suffix = os.path.splitext(entry.name)[1].lower()
            if is_hidden(entry.name):
                self.num_hidden += 1
            elif problem := self.problem(entry, _join(folder, entry.name)):
                self.problems.append(problem)
            elif entry.is_dir():
                folders.append(entry.name)
            elif suffix in IMAGE_SUFFIXES and entry.is_file():
                images.append(entry.name)
            else:
                self.other_files[suffix or "no ending"] += 1
        return folders, images

    def entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append(f"{folder or self.root}: cannot be listed ({error.strerror})")
            return []

    def problem(self, entry: os.DirEntry[str], path: str) -> str | None:
        if CONTROL.search(entry.name):
            return f"{path!r}: the name has a line break or is not UTF-8; rename it"
        if not entry.is_symlink():
            return None
        problem = link_problem(self.real_root, entry.path, self.key)
        return f"{path}: {problem}" if problem else None

    def notes(self) -> list[str]:
        """Return one line for each kind of thing that was passed over."""
        endings = ", ".join(f"{ending} {n}" for ending, n in self.other_files.most_common(5))
        outside, others = self.num_outside, self.other_files.total()
        found = (
            (self.num_hidden, hidden_note(self.num_hidden, self.key)),
            (outside, f"{self.key}: images ignored outside the class folders: {outside}"),
            (others, f"{self.key}: files ignored that are no images: {others} ({endings})"),
        )
        return [note for is_any, note in found if is_any]


def _split_names(walk: _Walk, names: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the names of the training and the validation folder, where the folder is split."""
    by_name = {name.lower(): name for name in names}
    train = by_name.get("train")
    validation = next((by_name[name] for name in VALIDATION_NAMES if name in by_name), None)
    # Without validation, a folder `train` of images is a class among others: trains and buses, say.
    if train is None or (validation is None and len(names) > 1 and not walk.holds_classes(train)):
        return None, None
    return train, validation


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
