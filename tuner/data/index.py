"""Which images there are, with label and split; and the draws that split and limit them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tuner.data.folder import list_folder
from tuner.data.keyed import Stream, keyed_bits, stable_keys
from tuner.data.listing import Classes, ListImages, counted
from tuner.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class ImageIndex:
    """The images of one split, in a fixed order.

    Paths lie in one bytes blob: a list of strings is copied, page by page, into every worker
    that counts references to it (pytorch#13246).
    """

    split: str
    root: Path
    classes: tuple[str, ...]
    path_blob: bytes
    path_offsets: NDArray[np.int64]  # (n + 1,)
    labels: NDArray[np.int64]  # (n,)
    keys: NDArray[np.uint64]  # (n,)

    @classmethod
    def from_paths(
        cls,
        split: str,
        root: Path,
        classes: tuple[str, ...],
        paths: Sequence[str],
        labels: ArrayLike,
    ) -> ImageIndex:
        """Return the index of `paths` (relative to root, with `/`) in the order given."""
        blob, offsets = _pack([path.encode() for path in paths])
        return cls(
            split=split,
            root=root,
            classes=classes,
            path_blob=blob,
            path_offsets=offsets,
            labels=np.asarray(labels, np.int64),
            keys=stable_keys(paths),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, position: int) -> str:
        """Return the image id: the path relative to root, with `/`."""
        start, end = self.path_offsets[position], self.path_offsets[position + 1]
        return self.path_blob[start:end].decode()

    def paths(self) -> Iterator[str]:
        """Yield all image ids in order."""
        return map(self.path, range(len(self)))

    def absolute(self, position: int) -> Path:
        """Return where the file lies."""
        return self.root / self.path(position)

    def take(self, positions: Sequence[int] | NDArray[np.int64]) -> ImageIndex:
        """Return the index of the images at `positions`, in that order."""
        chosen = np.asarray(positions, np.int64)
        bounds = zip(self.path_offsets[chosen], self.path_offsets[chosen + 1], strict=True)
        blob, offsets = _pack([self.path_blob[start:end] for start, end in bounds])
        return replace(
            self,
            path_blob=blob,
            path_offsets=offsets,
            labels=self.labels[chosen],
            keys=self.keys[chosen],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """The images to learn from, those to be judged by, and what there is to say about them."""

    train: ImageIndex
    validation: ImageIndex
    notes: tuple[str, ...]


def load_splits(
    root: Path,
    *,
    validation_fraction: float,
    split_seed: int,
    list_images: ListImages = list_folder,
) -> Splits:
    """Return the images that `list_images` finds below `root`, sorted by path.

    Where there is no validation among them, a stratified draw keyed by `split_seed` takes
    `validation_fraction` of every class that has two images or more. The classes are those of
    training, in natural order.

    Raises:
        DataError: As `list_images`; also when nothing is left for validation.
    """
    listing = list_images(root)
    train = _index("train", root, tuple(listing.train), listing.train)
    if listing.validation is None:
        train, validation = _draw_validation(train, validation_fraction, split_seed)
    else:
        validation = _index("validation", root, train.classes, listing.validation)
    if not len(validation):
        raise DataError(
            f"data.root: '{root}' leaves no image for validation; fill its validation folder, "
            "or give at least one class two images"
        )
    notes = list(listing.notes)
    if lacking := classes_without_images(validation):
        notes.append(f"data.root: classes without validation images: {counted(lacking)}")
    return Splits(train, validation, tuple(notes))


def draw_order(index: ImageIndex, seed: int) -> NDArray[np.int64]:
    """Return all positions, int64 (n,), in the order that a limit takes images in.

    Any head of it shares the images among the classes by their size (Sainte-Lague's method).
    """
    bits = keyed_bits(index.keys, seed=seed, epoch=0, stream=Stream.LIMIT)
    counts = np.bincount(index.labels)
    quotient = (_rank_in_class(index.labels, bits) + 0.5) / counts[index.labels]
    return np.lexsort((bits, quotient)).astype(np.int64)


def classes_without_images(index: ImageIndex) -> list[str]:
    """Return the names of the classes that have no image in this split."""
    counts = np.bincount(index.labels, minlength=len(index.classes))
    return [name for name, count in zip(index.classes, counts, strict=True) if not count]


def _index(split: str, root: Path, classes: tuple[str, ...], images: Classes) -> ImageIndex:
    label_of = {name: label for label, name in enumerate(classes)}
    pairs = sorted((path, label_of[name]) for name in images for path in images[name])
    paths, labels = [path for path, _ in pairs], [label for _, label in pairs]
    return ImageIndex.from_paths(split, root, classes, paths, labels)


def _draw_validation(
    index: ImageIndex, fraction: float, seed: int
) -> tuple[ImageIndex, ImageIndex]:
    """Return training and validation; a class of one image stays in training."""
    bits = keyed_bits(index.keys, seed=seed, epoch=0, stream=Stream.SPLIT)
    counts = np.bincount(index.labels)
    wanted = np.where(counts > 1, np.rint(counts * fraction).clip(1, np.maximum(counts - 1, 1)), 0)
    drawn = _rank_in_class(index.labels, bits) < wanted[index.labels]
    validation = index.take(np.flatnonzero(drawn))
    return index.take(np.flatnonzero(~drawn)), replace(validation, split="validation")


def _rank_in_class(labels: NDArray[np.int64], bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return for each image how many of its class come before it in the order of `bits`."""
    order = np.lexsort((bits, labels))
    counts = np.bincount(labels)
    starts = np.cumsum(counts) - counts
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - starts[labels[order]]
    return ranks


def _pack(paths: Sequence[bytes]) -> tuple[bytes, NDArray[np.int64]]:
    offsets = list(accumulate(map(len, paths), initial=0))
    return b"".join(paths), np.array(offsets, np.int64)
