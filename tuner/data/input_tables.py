"""Lists and csv files of images to be predicted, read line by line; a small, strict reader."""

import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tuner.data.inputs import Input, Inputs, folder_inputs, named_input
from tuner.data.listing import IMAGE_SUFFIXES
from tuner.errors import DataError, did_you_mean

TABLE_SUFFIXES = (".csv", ".tsv")
DELIMITERS = ",;\t"
IMAGE_COLUMNS = ("image", "path", "file", "filename", "file_name")
LABEL_COLUMNS = ("label", "class")
MOST_PROBLEMS = 10

Row = tuple[int, str, str]  # line, image, label
Problem = str


def open_inputs(images: Path, classes: Sequence[str], root: Path | None = None) -> Inputs:
    """Return what is to be predicted: a folder's images, one image, or those of a list or a csv.

    Args:
        images: The folder or file.
        classes: Of the model.
        root: What the paths of a list or a csv are relative to; the folder of that file by default.

    Raises:
        DataError: There is nothing to predict, or a line is wrong; up to ten of them at once.
    """
    if images.is_dir():
        return folder_inputs(images, classes)
    if images.suffix.lower() in IMAGE_SUFFIXES:
        return Inputs(1, (), lambda: iter([named_input(str(images), "", None)]))
    is_table = images.suffix.lower() in TABLE_SUFFIXES
    rows = partial(_csv_rows, images) if is_table else partial(_list_rows, images, set(classes))
    read = partial(_inputs, images, rows, classes, str(root or images.absolute().parent))
    problems, num_images = [], 0
    for found in read():
        if isinstance(found, Problem):
            problems.append(found)
        else:
            num_images += 1
        if len(problems) == MOST_PROBLEMS:
            break
    if problems:
        raise DataError(*problems)
    if not num_images:
        raise DataError(f"images: '{images}' names no image; write one on each line")
    return Inputs(num_images, (), partial(_checked, read))


def _checked(read: Callable[[], Iterator[Input | Problem]]) -> Iterator[Input]:
    for found in read():
        if isinstance(found, Problem):  # the file is another by now
            raise DataError(found)
        yield found


def _inputs(
    file: Path,
    rows: Callable[[], Iterator[Row | Problem]],
    classes: Sequence[str],
    root: str,
) -> Iterator[Input | Problem]:
    number_of = {name: number for number, name in enumerate(classes)}
    for row in rows():
        if isinstance(row, Problem):
            yield row
            continue
        line, image, label = row
        if not image:
            yield f"{file} line {line}: no image is named; write one or remove the line"
        elif label and label not in number_of:
            yield (
                f"{file} line {line}: no class of the model ('{label}'); use one of its "
                f"{len(classes)} or leave it out{did_you_mean(label, number_of)}"
            )
        else:
            yield named_input(image, root, number_of.get(label))


def _list_rows(file: Path, classes: set[str]) -> Iterator[Row | Problem]:
    """Yield the lines of a list; the label is the longest end of a line that names a class.

    A line that ends as an image does is a path alone, whatever spaces are in it.
    """
    for line, text in enumerate(_lines(file), start=1):
        if isinstance(text, UnicodeError):
            yield _not_utf8(file, line)
            return
        text = text.strip()
        if not text:
            continue
        ends = [place for place, letter in enumerate(text) if letter in " \t"]
        if os.path.splitext(text)[1].lower() in IMAGE_SUFFIXES or not ends:
            yield line, text, ""
            continue
        label_at = next((place for place in ends if text[place + 1 :] in classes), ends[-1])
        yield line, text[:label_at].rstrip(), text[label_at + 1 :]


def _csv_rows(file: Path) -> Iterator[Row | Problem]:
    """Yield the rows of a csv: `image[,label]`, or the columns that its header names so."""
    columns: _Columns | None = None
    for found in _csv_cells(file):
        if isinstance(found, Problem):
            yield found
            continue
        line, cells = found
        if columns is None:
            columns, is_header = _find_columns(cells)
            if is_header:
                continue
            if columns.count > 2:
                yield (
                    f"{file} line {line}: {columns.count} columns and no header; name the columns "
                    "in a first line (image, label)"
                )
                return
        if len(cells) == columns.count:
            label = "" if columns.label is None else cells[columns.label]
            yield line, cells[columns.image], label
        else:
            yield (
                f"{file} line {line}: {len(cells)} cells, not {columns.count}; put cells with a "
                "separator into double quotes"
            )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where a csv has the image and its label, and how many cells a row."""

    count: int
    image: int
    label: int | None


def _find_columns(cells: Sequence[str]) -> tuple[_Columns, bool]:
    """Return the columns by the first row, and whether that is a header."""
    header = [cell.casefold() for cell in cells]
    images, labels = (
        [header.index(name) for name in names if name in header]
        for names in (IMAGE_COLUMNS, LABEL_COLUMNS)
    )
    if images:
        return _Columns(len(cells), images[0], labels[0] if labels else None), True
    return _Columns(len(cells), 0, 1 if len(cells) == 2 else None), False


def _csv_cells(file: Path) -> Iterator[tuple[int, list[str]] | Problem]:
    """Yield line and cells of every row that is not empty; a damaged one is the last."""
    lines = _Lines(file)
    reader = csv.reader(lines, delimiter=lines.delimiter(), strict=True)
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                yield reader.line_num, stripped
    except csv.Error as error:
        yield f"{file} line {reader.line_num}: not a row of a csv ({error}); mend it"
    except UnicodeError:
        yield _not_utf8(file, reader.line_num + 1)


class _Lines:
    """The lines of a csv for its reader, from the first."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lines = _lines(file)

    def delimiter(self) -> str:
        """Return the separator that its first line has most of."""
        first = next(_lines(self.file), "")
        text = "" if isinstance(first, UnicodeError) else first
        return max(DELIMITERS, key=text.count)

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            if isinstance(line, UnicodeError):
                raise line
            yield line


def _lines(file: Path) -> Iterator[str | UnicodeError]:
    """Yield the lines of UTF-8 text with any line ends, a byte order mark left out.

    The first one that is no UTF-8 ends them, and comes as its error.
    """
    try:
        with file.open("rb") as source:
            for number, line in enumerate(source):
                text = line.decode("utf-8-sig" if number == 0 else "utf-8")
                # Not splitlines: it would cut a name at a dozen other characters.
                yield from io.StringIO(text, newline=None)
    except UnicodeError as error:
        yield error
    except OSError as error:
        raise DataError(f"images: '{file}' cannot be read ({error.strerror})") from error


def _not_utf8(file: Path, line: int) -> Problem:
    return f"{file} line {line}: not UTF-8 text; save the file as UTF-8"
