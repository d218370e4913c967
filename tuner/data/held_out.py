"""The test split: images by which nothing is chosen, none of them in training or validation."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tuner.data.decode import decoder_versions
from tuner.data.folder import WHAT_TO_GIVE, list_class_folders
from tuner.data.index import ImageIndex, classes_without_images, draw_order
from tuner.data.listing import Classes, counted
from tuner.data.prepare import (
    Facts,
    PreparedData,
    class_counts,
    fingerprint_of,
    good_images,
    recall_facts,
)
from tuner.data.verify import FileFacts, Progress, check_files
from tuner.errors import DataError
from tuner.files import write_text

KEY = "data.test_root"


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """The images of the test split, all opened and found whole.

    Attributes:
        images: With the classes of training.
        fingerprint: Of classes, labels and contents.
        notes: What there is to say.
        record: As `dataset.json` has it for the other splits.
    """

    images: ImageIndex
    fingerprint: str
    notes: tuple[str, ...]
    record: Mapping[str, Any]


def count_held_out(root: Path) -> int:
    """Return how many images there seem to be below `root`; files are listed and not opened.

    Raises:
        DataError: There is no such folder, or it has no class folders of images.
    """
    classes, _ = _listed(root)
    return sum(map(len, classes.values()))


def check_held_out(
    root: Path,
    used: PreparedData,
    *,
    limit: int | None,
    split_seed: int,
    decoder: str,
    on_bad_image: str,
    report_path: Path,
    num_processes: int = 1,
    progress: Progress | None = None,
) -> HeldOut:
    """Return the images in the class folders of `root`, but for those that are in `used`.

    Of these, and of bad ones with `on_bad_image` "skip", a `limit` draws others in their place.
    The verdicts in `report_path` are used again for files that are unchanged.

    Args:
        root: Holds a folder for each class, of the names that training gives them.
        used: Training and validation, as they were checked; an identical file is left out.
        limit: The most images; None is all.
        split_seed: Seed of that draw.
        decoder: As for training.
        on_bad_image: "fail" or "skip".
        report_path: Where the verdicts go.
        num_processes: Processes that check.
        progress: Is told (images checked, images to check).

    Raises:
        DataError: There is no such folder, it has folders that are no class, nothing is left; or
            all bad images, one line each, with "fail".
    """
    whole, notes = _index(root, used.train.classes)
    checked_by = f"{decoder}, {decoder_versions()}"
    _, known = recall_facts(report_path, checked_by)
    check = partial(
        check_files,
        root,
        known=known,
        decoder=decoder,
        num_processes=num_processes,
        progress=progress,
    )
    unwanted = _digests(used)
    drawn, facts = _draw(whole, limit, split_seed, on_bad_image == "skip", unwanted, check)
    found = _without_unwanted(drawn, facts, unwanted, notes, checked_by)
    write_text(report_path, json.dumps(found.record, ensure_ascii=False, allow_nan=False))
    bad = [fact.reason for fact in facts.values() if fact.reason]
    if bad and on_bad_image == "fail":
        raise DataError(*(f"{KEY}: {reason}" for reason in bad))
    if not len(found.images):
        raise DataError(
            f"{KEY}: no image of '{root}' is left to be scored; give readable images that are "
            "neither in training nor in validation",
            *found.notes,
        )
    return found


def _listed(root: Path) -> tuple[Classes, tuple[str, ...]]:
    classes, notes = list_class_folders(root, KEY)
    if not any(classes.values()):
        raise DataError(f"{KEY}: '{root}' has no images in class folders; {WHAT_TO_GIVE}")
    return classes, notes


def _index(root: Path, classes: Sequence[str]) -> tuple[ImageIndex, tuple[str, ...]]:
    images, notes = _listed(root)
    label_of = {name: label for label, name in enumerate(classes)}
    if unknown := [name for name in images if name not in label_of]:
        raise DataError(
            f"{KEY}: folders of '{root}' that are no class of training: {counted(unknown)}; "
            "name them as there, or remove them"
        )
    pairs = sorted((path, label_of[name]) for name in images for path in images[name])
    paths, labels = [path for path, _ in pairs], [label for _, label in pairs]
    return ImageIndex.from_paths("test", root, tuple(classes), paths, labels), notes


def _digests(used: PreparedData) -> frozenset[str]:
    """Return the digests of the images that training may rely on."""
    assert used.record is not None
    rows = (row for split in json.loads(used.record)["images"].values() for row in split)
    facts = (FileFacts(*fact) for _, _, *fact in rows)
    return frozenset(fact.digest for fact in facts if fact.reason is None)


def _draw(
    whole: ImageIndex,
    limit: int | None,
    seed: int,
    replace_bad: bool,
    unwanted: frozenset[str],
    check: Callable[[Sequence[str]], Facts],
) -> tuple[ImageIndex, Facts]:
    """Return at most `limit` images, those that are left out not counted, and the facts of all."""
    order = draw_order(whole, seed)
    start, end = 0, len(order[:limit])
    facts: dict[str, FileFacts] = {}
    while start != end:
        new = check([whole.path(position) for position in order[start:end]])
        facts |= new
        is_left_out = (
            fact.digest in unwanted or (replace_bad and fact.reason is not None)
            for fact in new.values()
        )
        start, end = end, min(end + sum(is_left_out), len(order))
    drawn = whole.take(np.sort(order[:end]))
    return drawn, {path: facts[path] for path in drawn.paths()}


def _without_unwanted(
    drawn: ImageIndex,
    facts: Facts,
    unwanted: frozenset[str],
    notes: Sequence[str],
    checked_by: str,
) -> HeldOut:
    good = good_images(drawn, facts)
    is_fresh = [facts[path].digest not in unwanted for path in good.paths()]
    images = good.take(np.flatnonzero(is_fresh))
    bad = [path for path, fact in facts.items() if fact.reason]
    copies = [path for path, fresh in zip(good.paths(), is_fresh, strict=True) if not fresh]
    told = (
        ("unreadable images left out", bad),
        ("images left out that are in training or validation, too", copies),
        ("classes without test images", classes_without_images(images)),
    )
    notes = [*notes, *(f"{KEY}: {what}: {counted(names)}" for what, names in told if names)]
    fingerprint = fingerprint_of((images,), facts)
    record = {
        "fingerprint": fingerprint,
        "checked_by": checked_by,
        "notes": notes,
        "counts": {"test": class_counts(images)},
        "unreadable": bad,
        "copies": copies,
        "columns": ["path", "label", *FileFacts.__dataclass_fields__],
        "images": {
            "test": [
                (path, label, *astuple(facts[path]))
                for path, label in zip(drawn.paths(), drawn.labels.tolist(), strict=True)
            ]
        },
    }
    return HeldOut(images, fingerprint, tuple(notes), record)
