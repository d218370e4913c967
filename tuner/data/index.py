"""Which images there are: relative path (the image id), label and split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tuner.data.keyed import stable_keys


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
        encoded = [path.encode() for path in paths]
        return cls(
            split=split,
            root=root,
            classes=classes,
            path_blob=b"".join(encoded),
            path_offsets=np.array(list(accumulate(map(len, encoded), initial=0)), np.int64),
            labels=np.asarray(labels, np.int64),
            keys=stable_keys(paths),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, position: int) -> str:
        """Return the image id: the path relative to root, with `/`."""
        start, end = self.path_offsets[position], self.path_offsets[position + 1]
        return self.path_blob[start:end].decode()

    def absolute(self, position: int) -> Path:
        """Return where the file lies."""
        return self.root / self.path(position)

    def take(self, positions: Sequence[int] | NDArray[np.int64]) -> ImageIndex:
        """Return the index of the images at `positions`, in that order."""
        paths = [self.path(int(position)) for position in positions]
        labels = self.labels[np.asarray(positions, np.int64)]
        return ImageIndex.from_paths(self.split, self.root, self.classes, paths, labels)
