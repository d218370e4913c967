"""The `csv` form of labels: a column of file names and one of labels, each cell a text."""

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from tuner.data.label_text import Line, Problems, Row, shown
from tuner.data.listing import is_image_name

SUFFIXES = (".csv", ".tsv")
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
NUM_SNIFFED = 1000
# What headers call the two columns; of several in one header the first here counts.
NAME_WORDS = (
    *("path", "filepath", "file_path", "image_path", "filename", "file_name", "file"),
    *("image_name", "image", "img", "picture", "photo", "name", "image_id", "id"),
)
LABEL_WORDS = (
    *("label", "labels", "class", "class_name", "classname", "category", "target"),
    *("species", "breed", "tag", "y"),
)

Cells = Sequence[str]


@dataclass(frozen=True, slots=True)
class Columns:
    """Which cell of a line is what, and whether the first line only says so."""

    name: int
    label: int | None
    has_header: bool


def is_csv_name(name: str) -> bool:
    """Return whether a file of that name is read as a csv where no setting says so; else a list."""
    return os.path.splitext(name)[1].lower() in SUFFIXES


def find_columns(records: Iterator[Cells]) -> Columns | None:
    """Return where names and labels stand; None where nothing tells where the names do.

    The first line is a header where it names both columns, or one of two, and no image. A single
    column has names.
    """
    first = next(records, ("", ""))
    is_pair = len(first) == 2
    without_header = Columns(0, 1 if is_pair else None, has_header=False)
    words = ["_".join(cell.casefold().split()) for cell in first]
    name, label = (_first_of(known, words) for known in (NAME_WORDS, LABEL_WORDS))
    if is_pair and name is None and label is not None:
        name = 1 - label
    if is_pair and label is None and name is not None:
        label = 1 - name
    if name is None or any(map(is_image_name, first)):
        return without_header if len(first) <= 2 else None
    # Of a pair it may be a class of that name; more columns mean nothing without a header.
    if is_pair and label is not None and any(cells[label] == first[label] for cells in records):
        return without_header
    return Columns(name, label, has_header=True)


def find_both_columns(records: Iterator[Cells]) -> Columns | None:
    """Return what `find_columns` does; None, too, where there are no labels."""
    columns = find_columns(records)
    return columns if columns and columns.label is not None else None


def csv_rows(
    lines: Iterable[Line],
    problems: Problems,
    find: Callable[[Iterator[Cells]], Columns | None] = find_both_columns,
) -> Iterator[Row]:
    """Yield the rows of lines, the label empty where there is none.

    A row is one line: nothing that is wrong with one can shift the others. The separator (comma,
    semicolon or tab) is the one that fits most lines.

    Args:
        lines: Gone through three times, and never held.
        problems: Where what is wrong goes.
        find: Says what is in which column; None refuses them all.
    """
    separator = _find_separator([line for _, line in islice(lines, NUM_SNIFFED)])
    records = _records(lines, separator, Problems(""))  # what is wrong is told with the rows
    columns = find(cells for _, cells in records)
    records = _records(lines, separator, problems)
    if columns is None:
        first = next(records)
        for _ in records:
            continue  # whatever else is wrong is told before
        _refuse_columns(*first, problems)
        return
    for line, cells in islice(records, columns.has_header, None):
        label = "" if columns.label is None else cells[columns.label].strip()
        yield Row(line, cells[columns.name], label)


def _find_separator(lines: Sequence[str]) -> str:
    """Return what cuts out an image's name in most lines; then what cuts most lines alike."""

    def fit(separator: str) -> tuple[int, int]:
        records = [cells for line in lines if (cells := _cells(line, separator))]
        cut = [cells for cells in records if len(cells) > 1]
        alike = [cells for cells in cut if len(cells) == len(records[0])]
        return sum(any(map(is_image_name, cells)) for cells in cut), len(alike)

    return max(SEPARATORS, key=fit)


def _cells(line: str, separator: str) -> Cells | None:
    try:
        return next(csv.reader([line], delimiter=separator, strict=True, skipinitialspace=True))
    except csv.Error:
        return None


def _records(
    lines: Iterable[Line], separator: str, problems: Problems
) -> Iterator[tuple[int, Cells]]:
    """Yield the lines cut into cells, as many as the first has."""
    first_line, num_cells = 0, 0
    for number, line in lines:
        cells = _cells(line, separator)
        if cells is None:
            problems.add(
                number,
                "with a quote that is open or misplaced",
                'a quote is open or misplaced; begin and end the cell with ", double those within',
            )
            continue
        if not first_line:
            first_line, num_cells = number, len(cells)
        if len(cells) == num_cells:
            yield number, cells
        else:
            problems.add(
                number,
                "with more or fewer cells",
                f"the number of cells is {len(cells)}, in line {first_line} it is {num_cells}; "
                f"quote cells that hold a {SEPARATORS[separator]}",
            )


def _first_of(known: Sequence[str], words: Sequence[str]) -> int | None:
    return next((words.index(word) for word in known if word in words), None)


def _refuse_columns(line: int, first: Cells, problems: Problems) -> None:
    cells = ", ".join(map(shown, first[:5])) + (" …" if len(first) > 5 else "")
    if len(first) == 1:
        tried = ", ".join(SEPARATORS.values())
        what = f"one column ({cells}), separators tried: {tried}; write file name and label"
    else:
        what = (
            f"{len(first)} columns ({cells}) and nothing says which is which; "
            "begin the file with a header that has the columns path and label"
        )
    problems.add(line, "without columns", what)
