"""`predictions.csv` and the file of features beside it, written row by row while a model runs."""

from collections.abc import Sequence
from typing import IO

import numpy as np
from numpy.typing import NDArray

from tuner.files import csv_line

FEATURES_SUFFIX = ".features.npy"


class PredictionTable:
    """Writes `predictions.csv`, one row for each image.

    Args:
        file: Open for text, with `newline=""`. No cell has a line break.
        classes: Names, in the order of the model's outputs.
        num_top: How many of the best classes are named.
        has_features: Whether a column says which row of the features belongs to an image.
    """

    def __init__(
        self, file: IO[str], classes: Sequence[str], num_top: int, *, has_features: bool
    ) -> None:
        self._classes = classes
        self._num_top = num_top
        self._has_features = has_features
        self._file = file
        best = [
            f"{what}_{place}"
            for place in range(1, num_top + 1)
            for what in ("class", "probability")
        ]
        self._write(["image", "label", "prediction", "probability", *best, "reason"], "feature_row")

    def predicted(
        self,
        image: str,
        label: int | None,
        classes: Sequence[int],
        probabilities: Sequence[float],
        feature_row: int,
    ) -> None:
        """Write an image with the numbers and probabilities of its best classes."""
        best = [
            (self._classes[number], f"{probability:.6g}")
            for number, probability in zip(classes, probabilities, strict=True)
        ]
        cells = [cell for pair in best for cell in pair]
        self._write([image, self._name(label), *best[0], *cells, ""], str(feature_row))

    def refused(self, image: str, label: int | None, reason: str, feature_row: int | None) -> None:
        """Write an image without a prediction, and why."""
        row = "" if feature_row is None else str(feature_row)
        self._write([image, self._name(label), *[""] * (2 + 2 * self._num_top), reason], row)

    def _name(self, label: int | None) -> str:
        return "" if label is None else self._classes[label]

    def _write(self, cells: Sequence[str], feature_row: str) -> None:
        cells = [*cells, feature_row] if self._has_features else cells
        self._file.write(csv_line(cells))


class FeatureFile:
    """Writes float32 rows as an `.npy` whose number of rows is known only at its end.

    Args:
        file: Open for bytes, at its start.
        num_features: Numbers in a row.
    """

    def __init__(self, file: IO[bytes], num_features: int) -> None:
        self._file = file
        self._num_features = num_features
        self.num_rows = 0
        self._write_header()

    def add(self, features: NDArray[np.float32]) -> None:
        """Write the rows (n, num_features)."""
        assert features.dtype == np.float32
        assert features.shape[1:] == (self._num_features,)
        self._file.write(np.ascontiguousarray(features).data)
        self.num_rows += len(features)

    def finish(self) -> None:
        """Write how many rows there are."""
        header_bytes = self._header_bytes
        self._file.seek(0)
        self._write_header()
        # NumPy leaves room for the first number to grow, for just this use.
        assert self._header_bytes == header_bytes
        self._file.flush()

    def _write_header(self) -> None:
        shape = (self.num_rows, self._num_features)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)
        self._header_bytes = self._file.tell()
