"""Lists and csv files of images to be predicted, read as those of a search are; labels may lack."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from tuner.data.csv_rows import csv_rows, find_columns, is_csv_name
from tuner.data.inputs import Input, Inputs, folder_inputs, named_input
from tuner.data.label_text import LabelFile, Problems, Row, has_name, is_clean, shown
from tuner.data.list_rows import BLANKS, last_word, list_rows
from tuner.data.listing import is_image_name
from tuner.errors import DataError, did_you_mean

NO_CLASS = "with labels that are no class of the model"


def open_inputs(images: Path, classes: Sequence[str], root: Path | None = None) -> Inputs:
    """Return what is to be predicted: a folder's images, one image, or those of a list or a csv.

    Args:
        images: The folder or file.
        classes: Of the model.
        root: What the paths of a list or a csv are relative to; the folder of that file by default.

    Raises:
        DataError: There is nothing to predict, or lines are wrong; the first of each kind at once.
    """
    if images.is_dir():
        return folder_inputs(images, classes)
    if is_image_name(images.name):
        return Inputs(1, (), lambda: iter([named_input(str(images), "", None)]))
    begin = partial(_inputs, images, classes, str(root or images.absolute().parent))
    num_images = sum(1 for _ in begin())
    if not num_images:
        raise DataError(f"images: '{images}' names no image; write one on each line")
    return Inputs(num_images, (), begin)


def _inputs(file: Path, classes: Sequence[str], root: str) -> Iterator[Input]:
    """Yield the images of a list or csv; what is wrong with it comes as an error at its end."""
    number_of = {name: number for number, name in enumerate(classes)}
    problems = Problems(str(file))
    for row in _rows(LabelFile(file, str(file)), number_of, problems):
        is_good = has_name(row, problems) and is_clean(row, problems)
        if is_good and _is_known(row, number_of, problems):
            yield named_input(row.name, root, number_of.get(row.label))
    if lines := problems.lines():
        raise DataError(*lines)


def _rows(file: LabelFile, classes: Collection[str], problems: Problems) -> Iterator[Row]:
    if is_csv_name(file.told):
        return csv_rows(file, problems, find_columns)
    longest = max(map(len, classes))
    return list_rows(file, problems, partial(_known_end, classes=classes, longest=longest))


def _known_end(line: str, classes: Collection[str], longest: int) -> tuple[str, str]:
    """Return name and label of a line: its longest end that is a class, else its last word.

    A line that ends as an image does is a name alone, whatever blanks are in it.
    """
    if "\t" in line:
        return last_word(line)
    if is_image_name(line):
        return line, ""
    place = line.find(" ", max(0, len(line) - longest - 1))
    while place >= 0 and line[place + 1 :] not in classes:
        place = line.find(" ", place + 1)
    return last_word(line) if place < 0 else (line[:place].rstrip(BLANKS), line[place + 1 :])


def _is_known(row: Row, classes: Collection[str], problems: Problems) -> bool:
    """Return whether the label of a row, if any, is a class; that it is none goes to `problems`."""
    if not row.label or row.label in classes:
        return True
    # To look for the nearest takes long: not for lines that nobody is told of.
    nearest = "" if problems.has_enough(NO_CLASS) else did_you_mean(row.label, classes)
    problems.add(
        row.line,
        NO_CLASS,
        f"no class of the model ({shown(row.label)}); use one of its {len(classes)} "
        f"or leave it out{nearest}",
    )
    return False
