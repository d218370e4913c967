"""Images that a label file calls hard: those that the first mining epoch comes back to."""

import os
from dataclasses import dataclass
from pathlib import Path

from tuner.data.csv_rows import csv_rows, is_csv_name
from tuner.data.index import ImageIndex
from tuner.data.label_text import Problems, shown
from tuner.data.labelled import label_folders, read_labelled
from tuner.data.list_rows import list_rows
from tuner.data.listing import counted
from tuner.errors import DataError

KEY = "data.mining_labels"


@dataclass(frozen=True, slots=True)
class HardImages:
    """The training images that a label file names, and what there is to say of others."""

    paths: frozenset[str]
    notes: tuple[str, ...]


def read_hard(root: Path, train: ImageIndex, name: str) -> HardImages:
    """Return the training images that a label file names.

    A file whose name ends in .csv or .tsv is read as the source `csv` reads one, any other as
    `list` does. Images that are not among those of training are left out and counted.

    Args:
        root: The folder that no image may lie outside of.
        train: All images of training.
        name: The file, relative to `root` or absolute.

    Raises:
        DataError: All that is wrong with the file, by line; or it names no training image.
    """
    read_rows = csv_rows if is_csv_name(name) else list_rows
    root = Path(os.path.abspath(root))
    labelled = read_labelled(
        root, read_rows, KEY, name, label_folders(root)[0], may_lack_images=True
    )
    if labelled.problems:
        raise DataError(*labelled.problems)
    labels = dict(zip(train.paths(), train.labels.tolist(), strict=True))
    problems = Problems(labelled.told)
    for path, row in labelled.rows.items():
        trained = train.classes[labels[path]] if path in labels else row.label
        if row.label != trained.strip():  # as the labels of a file are
            problems.add(
                row.line,
                "with another label than in training",
                f"image {shown(row.name)} is {shown(row.label)} here and {shown(trained)} in "
                "training; mend one of them",
            )
    if lines := problems.lines():
        raise DataError(*lines)
    hard = labels.keys() & labelled.rows.keys()
    if not hard:
        raise DataError(
            f"{KEY}: '{labelled.told}' names no training image; name some or remove the file"
        )
    others = [path for path in labelled.rows if path not in hard]
    left_out = f"{KEY}: images left out that are not in training: {counted(others)}"
    return HardImages(frozenset(hard), (left_out,) if others else ())
