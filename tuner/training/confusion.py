"""What a list of predictions says of each class: counts alone, on the host."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A matrix of so many classes is 12 MB of text, written in a second; it grows with their square.
MOST_MATRIX_CLASSES = 2000

Ints = NDArray[np.integer[Any]]


def confusion_matrix(labels: Ints, predictions: Ints, num_classes: int) -> NDArray[np.int64]:
    """Return how many images of each class (row) were taken for each class (column)."""
    cells = labels.astype(np.int64) * num_classes + predictions
    return np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)


def shares_found(labels: Ints, predictions: Ints, num_classes: int) -> NDArray[np.float64]:
    """Return which share of each class's images was found, (classes,); NaN where it has none."""
    num_images = np.bincount(labels, minlength=num_classes)
    num_found = np.bincount(labels[labels == predictions], minlength=num_classes)
    shares = np.full(num_classes, np.nan)
    return np.divide(num_found, num_images, out=shares, where=num_images > 0)


def balanced_top1(labels: Ints, predictions: Ints) -> float:
    """Return the mean share found over the classes that have images; there must be an image.

    Every class counts alike, however rare it is (Brodersen et al., "The balanced accuracy and its
    posterior distribution", ICPR 2010). With as many images in each class it is top-1.
    """
    shares = shares_found(labels, predictions, int(labels.max()) + 1)
    return float(shares[~np.isnan(shares)].mean())


def describe_classes(classes: Sequence[str], labels: Ints, predictions: Ints) -> dict[str, Any]:
    """Return scores, counts and the confusion matrix of an evaluation, as plain values.

    `num_images`, `share_found` (None for a class without images), rows and columns of `confusion`
    are in the order of `classes`. The matrix is None above MOST_MATRIX_CLASSES.
    """
    num_classes = len(classes)
    shares = shares_found(labels, predictions, num_classes)
    matrix = None
    if num_classes <= MOST_MATRIX_CLASSES:
        matrix = confusion_matrix(labels, predictions, num_classes).tolist()
    return {
        "top1": int((labels == predictions).sum()) / len(labels),
        "balanced_top1": balanced_top1(labels, predictions),
        "classes": list(classes),
        "num_images": np.bincount(labels, minlength=num_classes).tolist(),
        "share_found": [None if np.isnan(share) else share for share in shares.tolist()],
        "confusion": matrix,
    }
