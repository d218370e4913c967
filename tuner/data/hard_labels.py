"""Images that a label file calls hard: those that the first mining epoch comes back to."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tuner.data.csv_rows import csv_rows
from tuner.data.index import ImageIndex
from tuner.data.label_text import Problems, shown
from tuner.data.labelled import label_folders, read_labelled
from tuner.data.list_rows import list_rows
from tuner.data.listing import counted
from tuner.errors import DataError

KEY = "data.mining_labels"
CSV_SUFFIXES = (".csv", ".tsv")


def read_hard(root: Path, train: ImageIndex, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return the positions of training images that a label file names, and what there is to say.

    A file whose name ends in .csv or .tsv is read as the source `csv` reads one, any other as
    `list` does. Images that are not among those of training are left out and counted.

    Args:
        root: The folder that no image may lie outside of.
        train: The images of training.
        name: The file, relative to `root` or absolute.

    Raises:
        DataError: All that is wrong with the file, by line; or it names no training image.
    """
    read_rows = csv_rows if Path(name).suffix.lower() in CSV_SUFFIXES else list_rows
    root = Path(os.path.abspath(root))
    labelled = read_labelled(
        root, read_rows, KEY, name, label_folders(root)[0], may_lack_images=True
    )
    if labelled.problems:
        raise DataError(*labelled.problems)
    positions = {path: position for position, path in enumerate(train.paths())}
    problems, found, others = Problems(labelled.told), [], []
    for path, row in labelled.rows.items():
        if path not in positions:
            others.append(path)
            continue
        found.append(positions[path])
        trained = train.classes[train.labels[found[-1]]]
        if row.label != trained:
            problems.add(
                row.line,
                "with another label than in training",
                f"image {shown(row.name)} is {shown(row.label)} here and {shown(trained)} in "
                "training; mend one of them",
            )
    if lines := problems.lines():
        raise DataError(*lines)
    if not found:
        raise DataError(
            f"{KEY}: '{labelled.told}' names no training image; name some or remove the file"
        )
    left_out = f"{KEY}: images left out that are not in training: {counted(others)}"
    return np.sort(found), [left_out] if others else []
