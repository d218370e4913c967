"""The data set as training may rely on it: good images alone, a fingerprint, a record of both."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.data.decode import WHAT_TO_DO, decoder_versions
from tuner.data.folder import list_folder
from tuner.data.hard_labels import HardImages
from tuner.data.index import (
    ImageIndex,
    Splits,
    classes_without_images,
    draw_order,
    load_splits,
)
from tuner.data.label_text import shown
from tuner.data.listing import ListImages, counted
from tuner.data.verify import FileFacts, Progress, check_files
from tuner.errors import DataError
from tuner.files import write_text

UNEVEN = 10  # times the images of the smallest class in the largest: worth a word

Facts = Mapping[str, FileFacts]
ReadHard = Callable[[ImageIndex], HardImages]  # given all images of training


@dataclass(frozen=True, slots=True, eq=False)
class PreparedData:
    """The images that training may rely on, and the fingerprint of all that they are.

    Attributes:
        fingerprint: Of classes, splits, labels, contents, and of which images are hard first.
        images_fingerprint: The same without the last.
        first_hard: Positions in `train`, int64 (h,), of images that are known to be hard.
        record: The text for `dataset.json`; None where the images come from there.
    """

    train: ImageIndex
    validation: ImageIndex
    fingerprint: str
    images_fingerprint: str
    notes: tuple[str, ...]
    first_hard: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    record: str | None = None


def prepare_dataset(
    root: Path,
    *,
    validation_fraction: float,
    split_seed: int,
    limit: int | None,
    decoder: str,
    on_bad_image: str,
    list_images: ListImages = list_folder,
    read_hard: ReadHard | None = None,
    report_path: Path | None = None,
    num_processes: int = 1,
    progress: Progress | None = None,
) -> PreparedData:
    """Return the images that `list_images` finds below `root`, all opened and found whole.

    Bad images are left out with `on_bad_image` "skip"; those that `limit` had drawn are replaced
    while there are others. The verdicts in `report_path` (`dataset.json`) are used again for files
    that are unchanged. A record of other images stays there: whoever knows that it may go calls
    `write_dataset_record`. `progress` is told (images checked, images to check). `read_hard` says
    which of the training images are known to be hard.

    Raises:
        DataError: As `load_splits` and `read_hard`; all bad images, one line each, with
            `on_bad_image` "fail"; a class whose training images are all bad with "skip".
    """
    whole = load_splits(
        root,
        validation_fraction=validation_fraction,
        split_seed=split_seed,
        list_images=list_images,
    )
    hard = read_hard(whole.train) if read_hard else None  # its mistakes come before the long check
    checked_by = f"{decoder}, {decoder_versions()}"
    old_fingerprint, known = recall_facts(report_path, checked_by) if report_path else (None, {})
    check = partial(
        check_files,
        root,
        known=known,
        decoder=decoder,
        num_processes=num_processes,
        progress=progress,
    )
    drawn, facts = _draw(whole, limit, split_seed, on_bad_image == "skip", check)
    prepared = _without_bad_images(drawn, facts, checked_by, hard)
    if report_path and old_fingerprint in (None, prepared.fingerprint):
        write_dataset_record(report_path, prepared)
    bad = [fact.reason for fact in facts.values() if fact.reason]
    if bad and on_bad_image == "fail":
        raise DataError(*bad)
    _require_images(whole, facts, prepared)
    return prepared


def write_dataset_record(path: Path, prepared: PreparedData) -> None:
    """Write what `prepare_dataset` has found to `path`, whatever was there."""
    assert prepared.record is not None
    write_text(path, prepared.record)


def load_prepared(dataset_json: Path, root: Path) -> PreparedData:
    """Return what `prepare_dataset` had recorded, without opening an image.

    Raises:
        DataError: The record is missing or damaged.
    """
    try:
        record = json.loads(dataset_json.read_text(encoding="utf-8"))
        train, validation = (_index_of(split, root, record) for split in ("train", "validation"))
        return PreparedData(
            train,
            validation,
            record["fingerprint"],
            record["images_fingerprint"],
            tuple(record["notes"]),
            np.array(record["first_hard"], np.int64),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{dataset_json}: not a whole record of a data set ({type(error).__name__}); "
            "start the search again to write it anew"
        ) from error


def _index_of(split: str, root: Path, record: Mapping[str, Any]) -> ImageIndex:
    rows = [(path, label) for path, label, *_, reason in record["images"][split] if reason is None]
    paths, labels = [path for path, _ in rows], [label for _, label in rows]
    return ImageIndex.from_paths(split, root, tuple(record["classes"]), paths, labels)


def recall_facts(report_path: Path, checked_by: str) -> tuple[str | None, Facts]:
    """Return the fingerprint and the facts by path of the last time; no facts of other versions."""
    try:
        record = json.loads(report_path.read_text(encoding="utf-8"))
        fingerprint, rows = record["fingerprint"], chain.from_iterable(record["images"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, {}  # missing or damaged: everything is looked at again
    try:
        facts = {path: FileFacts(*fact) for path, _, *fact in rows}
        return fingerprint, facts if record["checked_by"] == checked_by else {}
    except (ValueError, KeyError, TypeError):
        return fingerprint, {}  # of other columns


def _draw(
    whole: Splits,
    limit: int | None,
    seed: int,
    replace_bad: bool,
    check: Callable[[Sequence[str]], Facts],
) -> tuple[Splits, Facts]:
    """Return at most `limit` images of each split, bad ones not counted, and the facts of all.

    Bad ones are replaced by the next in the order of the draw. No round draws more than are still
    wanted, so what is drawn depends on nothing but the files, the limit and the seed.
    """
    indexes = (whole.train, whole.validation)
    orders = [draw_order(index, seed) for index in indexes]
    starts, ends = [0, 0], [len(order[:limit]) for order in orders]
    facts: dict[str, FileFacts] = {}
    while starts != ends:
        new = [
            [index.path(position) for position in order[start:end]]
            for index, order, start, end in zip(indexes, orders, starts, ends, strict=True)
        ]
        facts |= check([path for paths in new for path in paths])
        num_bad = [sum(facts[path].reason is not None for path in paths) for paths in new]
        starts = ends
        if replace_bad:
            ends = [
                min(end + bad, len(order))
                for order, end, bad in zip(orders, ends, num_bad, strict=True)
            ]
    train, validation = (
        index.take(np.sort(order[:end]))
        for index, order, end in zip(indexes, orders, ends, strict=True)
    )
    paths = chain(train.paths(), validation.paths())
    return Splits(train, validation, whole.notes), {path: facts[path] for path in paths}


def _without_bad_images(
    drawn: Splits, facts: Facts, checked_by: str, hard: HardImages | None
) -> PreparedData:
    train, validation = (good_images(index, facts) for index in (drawn.train, drawn.validation))
    notes = list(drawn.notes)
    if uneven := _uneven(train):
        notes.append(f"data.root: {uneven}; search.metric=balanced_top1 counts every class alike")
    if lacking := classes_without_images(train):
        notes.append(f"data.limit: classes left without training images: {counted(lacking)}")
    bad = [path for path, fact in facts.items() if fact.reason]
    if bad:
        notes.append(f"data.root: unreadable images left out: {counted(bad)}")
    across_classes, across_splits = _copies(train, validation, facts)
    if torn := [path for paths in across_classes for path in paths]:
        notes.append(f"data.root: images with an identical copy in another class: {counted(torn)}")
    judged = set(validation.paths())
    if seen := [path for paths in across_splits for path in paths if path in judged]:
        notes.append(
            f"data.root: validation images with an identical training image: {counted(seen)}"
        )
    fingerprint = images_fingerprint = fingerprint_of((train, validation), facts)
    first_hard = np.empty(0, np.int64)
    if hard is not None:
        notes += hard.notes
        first_hard = np.flatnonzero([path in hard.paths for path in train.paths()])
        if num_others := len(hard.paths) - len(first_hard):
            notes.append(f"data.mining_labels: hard images that are not used here: {num_others}")
    if len(first_hard):
        fingerprint = _sha256(
            [fingerprint, [train.path(position) for position in first_hard.tolist()]]
        )
    record = {
        "fingerprint": fingerprint,
        "images_fingerprint": images_fingerprint,
        "checked_by": checked_by,
        "notes": notes,
        "classes": train.classes,
        "counts": {index.split: class_counts(index) for index in (train, validation)},
        "unreadable": bad,
        "copies_across_classes": across_classes,
        "copies_across_splits": across_splits,
        "first_hard": first_hard.tolist(),
        "columns": ["path", "label", *FileFacts.__dataclass_fields__],
        "images": {
            index.split: [
                (path, label, *astuple(facts[path]))
                for path, label in zip(index.paths(), index.labels.tolist(), strict=True)
            ]
            for index in (drawn.train, drawn.validation)
        },
    }
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    return PreparedData(
        train, validation, fingerprint, images_fingerprint, tuple(notes), first_hard, text
    )


def _uneven(train: ImageIndex) -> str:
    """Return the largest and the smallest class, where that has images and they are far apart."""
    counts = {name: count for name, count in class_counts(train).items() if count}
    largest, smallest = (choose(counts, key=counts.__getitem__) for choose in (max, min))
    if counts[largest] <= UNEVEN * counts[smallest]:
        return ""
    return (
        f"training classes are uneven: {counts[largest]:,} images of {shown(largest)}, "
        f"{counts[smallest]:,} of {shown(smallest)}"
    )


def good_images(index: ImageIndex, facts: Mapping[str, FileFacts]) -> ImageIndex:
    good = [facts[path].reason is None for path in index.paths()]
    return index if all(good) else index.take(np.flatnonzero(good))


def _require_images(whole: Splits, facts: Facts, prepared: PreparedData) -> None:
    bad = {path for path, fact in facts.items() if fact.reason}
    readable = {
        label
        for path, label in zip(whole.train.paths(), whole.train.labels.tolist(), strict=True)
        if path not in bad  # a limit may not have drawn it
    }
    lost = [name for label, name in enumerate(whole.train.classes) if label not in readable]
    if lost:
        label_of = dict(zip(whole.train.paths(), whole.train.labels.tolist(), strict=True))
        names = set(lost)
        reasons = (
            fact.reason.removesuffix(WHAT_TO_DO)
            for path, fact in facts.items()
            if fact.reason and path in label_of and whole.train.classes[label_of[path]] in names
        )
        raise DataError(
            f"data.root: no readable training image in classes: {counted(lost)}; replace the files",
            *reasons,
        )
    if not len(prepared.validation):
        raise DataError("data.root: no readable validation image; replace the files")


def _copies(
    train: ImageIndex, validation: ImageIndex, facts: Facts
) -> tuple[list[list[str]], list[list[str]]]:
    """Return the groups of identical files that span classes, and those that span the splits.

    The first blur what is learned, the second what is measured.
    """
    groups = defaultdict(list)
    for index in (train, validation):
        for path, label in zip(index.paths(), index.labels.tolist(), strict=True):
            groups[facts[path].digest].append((path, label, index.split))
    across_classes, across_splits = [], []
    for group in groups.values():
        paths, labels, splits = zip(*group, strict=True)
        once = list(dict.fromkeys(paths))  # a label file may name one image in both splits
        if len(set(labels)) > 1:
            across_classes.append(once)
        if len(set(splits)) > 1:
            across_splits.append(once)
    return across_classes, across_splits


def fingerprint_of(indexes: Sequence[ImageIndex], facts: Mapping[str, FileFacts]) -> str:
    """Return the SHA-256 over classes, splits, paths, labels and contents."""
    rows = [
        (index.split, path, label, facts[path].digest)
        for index in indexes
        for path, label in zip(index.paths(), index.labels.tolist(), strict=True)
    ]
    return _sha256([indexes[0].classes, sorted(rows)])


def _sha256(plain: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def class_counts(index: ImageIndex) -> dict[str, int]:
    counts = np.bincount(index.labels, minlength=len(index.classes))
    return dict(zip(index.classes, counts.tolist(), strict=True))
