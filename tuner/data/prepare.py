"""The data set as training may rely on it: good images alone, a fingerprint, a record of both."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL

from tuner.data.folder import counted
from tuner.data.index import ImageIndex, Splits, classes_without_images, load_splits
from tuner.data.verify import FileFacts, Progress, check_files
from tuner.errors import DataError
from tuner.files import write_text


@dataclass(frozen=True, slots=True, eq=False)
class PreparedData:
    """The images that training may rely on, and the fingerprint of all that they are."""

    train: ImageIndex
    validation: ImageIndex
    fingerprint: str
    notes: tuple[str, ...]


def prepare_dataset(
    root: Path,
    *,
    validation_fraction: float,
    split_seed: int,
    limit: int | None,
    decoder: str,
    on_bad_image: str,
    report_path: Path | None = None,
    num_processes: int = 1,
    progress: Progress | None = None,
) -> PreparedData:
    """Return the images of `root`, all of them opened and found whole.

    The verdicts are kept in `report_path` (`dataset.json`) and used again for files whose size and
    time are unchanged. `progress` is told (images checked, images to check).

    Raises:
        DataError: As `load_splits`; all bad images, one line each, with `on_bad_image` "fail"; a
            class whose training images are all bad with "skip".
    """
    splits = load_splits(
        root, validation_fraction=validation_fraction, split_seed=split_seed, limit=limit
    )
    checked_by = f"{decoder}, opencv {cv2.__version__}, pillow {PIL.__version__}"
    known = _known_facts(report_path, checked_by) if report_path else {}
    facts = check_files(
        root,
        [*splits.train.paths(), *splits.validation.paths()],
        known=known,
        decoder=decoder,
        num_processes=num_processes,
        progress=progress,
    )
    prepared = _without_bad_images(splits, facts)
    if report_path:
        _write_record(report_path, checked_by, splits, facts, prepared)
    bad = [fact.reason for fact in facts.values() if fact.reason]
    if bad and on_bad_image == "fail":
        raise DataError(*bad)
    _require_images(splits, prepared)
    return prepared


def load_prepared(dataset_json: Path, root: Path) -> PreparedData:
    """Return what `prepare_dataset` had recorded, without opening an image.

    Raises:
        DataError: The record is missing or damaged.
    """
    try:
        record = json.loads(dataset_json.read_text(encoding="utf-8"))
        train, validation = (_index_of(split, root, record) for split in ("train", "validation"))
        return PreparedData(train, validation, record["fingerprint"], tuple(record["notes"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{dataset_json}: not a whole record of a data set ({type(error).__name__}); "
            "start the search again to write it anew"
        ) from error


def _index_of(split: str, root: Path, record: Mapping[str, Any]) -> ImageIndex:
    rows = [(path, label) for path, label, *_, reason in record["images"][split] if reason is None]
    paths, labels = [path for path, _ in rows], [label for _, label in rows]
    return ImageIndex.from_paths(split, root, tuple(record["classes"]), paths, labels)


def _known_facts(report_path: Path, checked_by: str) -> dict[str, FileFacts]:
    """Return the facts of the last time by path; none if other versions had found them."""
    try:
        record = json.loads(report_path.read_text(encoding="utf-8"))
        rows = [row for rows in record["images"].values() for row in rows]
        facts = {path: FileFacts(*fact) for path, _, *fact in rows}
        return facts if record["checked_by"] == checked_by else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # missing or damaged: everything is looked at again


def _without_bad_images(splits: Splits, facts: Mapping[str, FileFacts]) -> PreparedData:
    train, validation = (_good(index, facts) for index in (splits.train, splits.validation))
    notes = list(splits.notes)
    if bad := [path for path, fact in facts.items() if fact.reason]:
        notes.append(f"data.root: unreadable images left out: {counted(bad)}")
    notes += _duplicate_notes(train, validation, facts)
    return PreparedData(train, validation, _fingerprint((train, validation), facts), tuple(notes))


def _good(index: ImageIndex, facts: Mapping[str, FileFacts]) -> ImageIndex:
    good = [facts[path].reason is None for path in index.paths()]
    return index if all(good) else index.take(np.flatnonzero(good))


def _require_images(before: Splits, after: PreparedData) -> None:
    before_lacking = classes_without_images(before.train)
    lost = [name for name in classes_without_images(after.train) if name not in before_lacking]
    if lost:
        raise DataError(
            f"data.root: no readable training image in classes: {counted(lost)}; replace the files"
        )
    if not len(after.validation):
        raise DataError("data.root: no readable validation image; replace the files")


def _duplicate_notes(
    train: ImageIndex, validation: ImageIndex, facts: Mapping[str, FileFacts]
) -> Iterator[str]:
    """Yield a line for copies that blur what is learned or measured."""
    labels = defaultdict(set)
    for index in (train, validation):
        for path, label in zip(index.paths(), index.labels.tolist(), strict=True):
            labels[facts[path].digest].add(label)
    both = [path for index in (train, validation) for path in index.paths()]
    if torn := [path for path in both if len(labels[facts[path].digest]) > 1]:
        yield f"data.root: images with an identical copy in another class: {counted(torn)}"
    learned = {facts[path].digest for path in train.paths()}
    if seen := [path for path in validation.paths() if facts[path].digest in learned]:
        yield f"data.root: validation images with an identical training image: {counted(seen)}"


def _fingerprint(indexes: Sequence[ImageIndex], facts: Mapping[str, FileFacts]) -> str:
    """Return the SHA-256 over classes, splits, paths, labels and contents."""
    rows = [
        (index.split, path, label, facts[path].digest)
        for index in indexes
        for path, label in zip(index.paths(), index.labels.tolist(), strict=True)
    ]
    return hashlib.sha256(json.dumps([indexes[0].classes, sorted(rows)]).encode()).hexdigest()


def _write_record(
    report_path: Path,
    checked_by: str,
    splits: Splits,
    facts: Mapping[str, FileFacts],
    prepared: PreparedData,
) -> None:
    indexes = (splits.train, splits.validation)
    record = {
        "fingerprint": prepared.fingerprint,
        "checked_by": checked_by,
        "notes": prepared.notes,
        "classes": splits.train.classes,
        "counts": {index.split: _counts(index) for index in (prepared.train, prepared.validation)},
        "columns": ["path", "label", *FileFacts.__dataclass_fields__],
        "images": {
            index.split: [
                (path, label, *astuple(facts[path]))
                for path, label in zip(index.paths(), index.labels.tolist(), strict=True)
            ]
            for index in indexes
        },
    }
    write_text(report_path, json.dumps(record, ensure_ascii=False, allow_nan=False))


def _counts(index: ImageIndex) -> dict[str, int]:
    counts = np.bincount(index.labels, minlength=len(index.classes))
    return dict(zip(index.classes, counts.tolist(), strict=True))
