"""Every image opened once before training: verdicts, the data set's fingerprint, its record."""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL

from tuner.data.decode import check_image
from tuner.data.folder import counted
from tuner.data.index import ImageIndex, Splits, classes_without_images, load_splits
from tuner.errors import DataError
from tuner.files import write_text

POOL_MIN_IMAGES = 500  # below this the processes take longer to start than the images to read
CHUNK_IMAGES = 64

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedData:
    """The images that training may rely on, and the fingerprint of all that they are."""

    train: ImageIndex
    validation: ImageIndex
    fingerprint: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What reading a file once has shown; `reason` says why it is no good, None if it is."""

    num_bytes: int
    mtime_ns: int
    digest: str
    width: int
    height: int
    reason: str | None


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
    facts = _check_files(splits, known, decoder, num_processes, progress)
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


def _check_files(
    splits: Splits,
    known: Mapping[str, FileFacts],
    decoder: str,
    num_processes: int,
    progress: Progress | None,
) -> dict[str, FileFacts]:
    """Return the facts of every image by path, in the order of the splits."""
    root = splits.train.root
    paths = [*_paths(splits.train), *_paths(splits.validation)]
    facts = {path: known[path] for path in paths if _is_unchanged(root / path, known.get(path))}
    todo = [path for path in paths if path not in facts]
    chunks = [todo[start : start + CHUNK_IMAGES] for start in range(0, len(todo), CHUNK_IMAGES)]
    num_processes = num_processes if len(todo) > POOL_MIN_IMAGES else 1
    num_checked = 0
    with _mapping(num_processes) as map_chunks:
        checked = map_chunks(partial(_check_chunk, root, decoder), chunks)
        for chunk, chunk_facts in zip(chunks, checked, strict=True):
            facts.update(zip(chunk, chunk_facts, strict=True))
            num_checked += len(chunk)
            if progress:
                progress(num_checked, len(todo))
    return {path: facts[path] for path in paths}


@contextmanager
def _mapping(num_processes: int) -> Iterator[Callable[..., Iterable[list[FileFacts]]]]:
    """Yield a `map` over this many processes; over none of its own for one."""
    if num_processes <= 1:
        yield map
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, context, initializer=_start_worker) as pool:
        yield pool.map


def _start_worker() -> None:
    """Make a worker leave Ctrl-C to its parent and end when that ends, however it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _check_chunk(root: Path, decoder: str, paths: Sequence[str]) -> list[FileFacts]:
    return [_check_file(root, decoder, path) for path in paths]


def _check_file(root: Path, decoder: str, path: str) -> FileFacts:
    try:
        status = (root / path).stat()
        data = (root / path).read_bytes()
    except OSError as error:
        reason = f"{path}: cannot be opened ({error.strerror}); put it back or set data.on_bad_image=skip"
        return FileFacts(0, 0, "", 0, 0, reason)
    verdict = check_image(data, path, decoder)
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    size = (verdict.width, verdict.height)
    return FileFacts(len(data), status.st_mtime_ns, digest, *size, verdict.reason)


def _is_unchanged(path: Path, fact: FileFacts | None) -> bool:
    if fact is None:
        return False
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (fact.num_bytes, fact.mtime_ns)


def _without_bad_images(splits: Splits, facts: Mapping[str, FileFacts]) -> PreparedData:
    train, validation = (_good(index, facts) for index in (splits.train, splits.validation))
    notes = list(splits.notes)
    if bad := [path for path, fact in facts.items() if fact.reason]:
        notes.append(f"data.root: unreadable images left out: {counted(bad)}")
    notes += _duplicate_notes(train, validation, facts)
    return PreparedData(train, validation, _fingerprint((train, validation), facts), tuple(notes))


def _good(index: ImageIndex, facts: Mapping[str, FileFacts]) -> ImageIndex:
    good = [facts[path].reason is None for path in _paths(index)]
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
        for path, label in zip(_paths(index), index.labels.tolist(), strict=True):
            labels[facts[path].digest].add(label)
    both = [path for index in (train, validation) for path in _paths(index)]
    if torn := [path for path in both if len(labels[facts[path].digest]) > 1]:
        yield f"data.root: images with an identical copy in another class: {counted(torn)}"
    learned = {facts[path].digest for path in _paths(train)}
    if seen := [path for path in _paths(validation) if facts[path].digest in learned]:
        yield f"data.root: validation images with an identical training image: {counted(seen)}"


def _fingerprint(indexes: Sequence[ImageIndex], facts: Mapping[str, FileFacts]) -> str:
    """Return the SHA-256 over classes, splits, paths, labels and contents."""
    rows = [
        (index.split, path, label, facts[path].digest)
        for index in indexes
        for path, label in zip(_paths(index), index.labels.tolist(), strict=True)
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
                for path, label in zip(_paths(index), index.labels.tolist(), strict=True)
            ]
            for index in indexes
        },
    }
    write_text(report_path, json.dumps(record, ensure_ascii=False, allow_nan=False))


def _counts(index: ImageIndex) -> dict[str, int]:
    counts = np.bincount(index.labels, minlength=len(index.classes))
    return dict(zip(index.classes, counts.tolist(), strict=True))


def _paths(index: ImageIndex) -> Iterator[str]:
    return map(index.path, range(len(index)))
