"""What every source of images gives, and the rules that all of them share."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import DataError

ROOT_KEY = "data.root"
VALIDATION_NAMES = ("val", "validation", "valid", "test")
IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
    + (".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".avif")
)
SYSTEM_NAMES = frozenset(("thumbs.db", "desktop.ini", "__macosx"))
CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # surrogates stand for bytes outside UTF-8

Classes = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Listing:
    """The images of each class in natural class order, as paths relative to the root.

    `validation` is None where the source holds classes but no split.
    """

    train: Classes
    validation: Classes | None
    notes: tuple[str, ...]


ListImages = Callable[[Path], Listing]


def require_folder(root: Path, remedy: str, key: str = ROOT_KEY) -> None:
    """Check that there is a folder.

    Raises:
        DataError: There is none; the line begins with `key`, the setting, and ends with `remedy`.
    """
    if not os.path.isdir(root):  # unlike Path's it takes a name that is too long
        what = "is not a folder" if os.path.exists(root) else "does not exist"
        raise DataError(f"{key}: '{root}' {what}; {remedy}")


def is_hidden(name: str) -> bool:
    """Return whether the name of a file or folder is one that no person gave to an image."""
    return name.startswith(".") or name.lower() in SYSTEM_NAMES


def hidden_note(num_hidden: int, key: str = ROOT_KEY) -> str:
    """Return what is said about hidden files below the folder that a setting names."""
    return f"{key}: hidden or system files ignored: {num_hidden}"


def is_image_name(name: str) -> bool:
    """Return whether the ending of the name is that of an image."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def is_within(real_root: str, target: str) -> bool:
    """Return whether a path without links lies in `real_root`, itself without links."""
    return os.path.commonpath((real_root, target)) == real_root


def link_problem(real_root: str, absolute: str, key: str = ROOT_KEY) -> str | None:
    """Return why the link at `absolute` is not followed; None where it is."""
    target = os.path.realpath(absolute)
    if not is_within(real_root, target):
        return f"the link leads out of {key} ({target}); copy the file instead"
    if not os.path.exists(target):
        return f"the link leads nowhere ({target}); remove it"
    return None


def class_problems(
    key: str,
    place: str,
    train: Classes,
    validation: Classes | None,
    *,
    nothing: str,
    seen_at: Mapping[str, str] | None = None,
) -> list[str]:
    """Return one line for each class that cannot be learned, or that training lacks.

    Args:
        key: The setting that the lines begin with.
        place: Where training's classes come from.
        train: The images of training.
        validation: Those of validation, where the source has some.
        nothing: What is missing where there is no class at all.
        seen_at: Begins the line of a class that training lacks, in place of `key`.
    """
    if len(train) < 2:
        found = f"one class ({', '.join(train)})" if train else f"no {nothing}"
        return [f"{key}: '{place}' has {found}; at least two classes are needed"]
    empty = [name for name, images in train.items() if not images]
    unknown = [name for name in validation or () if name not in train]
    return [
        f"{(seen_at or {}).get(name, key)}: class '{name}' {what}; {remedy}"
        for names, what, remedy in (
            (empty, f"has no images in '{place}'", "add some or remove the class"),
            (unknown, f"is not in '{place}'", "add it there or remove it"),
        )
        for name in names
    ]


def counted(names: Sequence[str]) -> str:
    """Return how many names there are, and the first five of them."""
    return f"{len(names)} ({', '.join(names[:5])}{' ...' if len(names) > 5 else ''})"


def natural_order(name: str) -> tuple[list[str | tuple[int, str]], str]:
    """Return the sort key that puts `class 2` before `class 10`."""
    parts = re.split(r"([0-9]+)", name.casefold())
    return [_number(part) if place % 2 else part for place, part in enumerate(parts)], name


def _number(digits: str) -> tuple[int, str]:
    # Ordered as numbers are, of any length: int() refuses 4,301 digits.
    significant = digits.lstrip("0")
    return len(significant), significant
