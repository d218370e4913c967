"""The `csv` form of labels: a column of file names and one of labels, each cell a text."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.data.label_text import Problems, Row, check_row, numbered_lines, shown
from tuner.data.listing import is_image_name

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
class _Columns:
    """Which cell of a line is what, and whether the first line only says so."""

    name: int
    label: int
    has_header: bool


def csv_rows(text: str, problems: Problems) -> list[Row]:
    """Return the rows of a text; what is wrong with others goes to `problems`.

    A row is one line: nothing that is wrong with one can shift the others. The separator (comma,
    semicolon or tab) is the one that fits most lines. The first line is a header where it names
    both columns, or one of two, and no image.
    """
    lines = numbered_lines(text)
    separator = _find_separator([line for _, line in lines[:NUM_SNIFFED]])
    records = _records(lines, separator, problems)
    if not records:
        return []
    columns = _find_columns(records)
    if columns is None:
        _refuse_columns(*records[0], problems)
        return []
    records = records[columns.has_header :]
    rows = [Row(line, cells[columns.name], cells[columns.label].strip()) for line, cells in records]
    return [row for row in rows if check_row(row, problems)]


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
    lines: Sequence[tuple[int, str]], separator: str, problems: Problems
) -> list[tuple[int, Cells]]:
    """Return the lines cut into cells, as many as the first has."""
    records: list[tuple[int, Cells]] = []
    for number, line in lines:
        cells = _cells(line, separator)
        first_line, first = records[0] if records else (number, cells)
        if cells is None or first is None:
            problems.add(
                number,
                "with a quote that is open or misplaced",
                'a quote is open or misplaced; begin and end the cell with ", double those within',
            )
        elif len(cells) != len(first):
            problems.add(
                number,
                "with more or fewer cells",
                f"the number of cells is {len(cells)}, in line {first_line} it is {len(first)}; "
                f"quote cells that hold a {SEPARATORS[separator]}",
            )
        else:
            records.append((number, cells))
    return records


def _find_columns(records: Sequence[tuple[int, Cells]]) -> _Columns | None:
    """Return where names and labels stand; None where nothing tells."""
    (_, first), *others = records
    without_header = _Columns(0, 1, has_header=False) if len(first) == 2 else None
    words = ["_".join(cell.casefold().split()) for cell in first]
    name, label = (_first_of(known, words) for known in (NAME_WORDS, LABEL_WORDS))
    if len(first) == 2 and name is None and label is not None:
        name = 1 - label
    if len(first) == 2 and label is None and name is not None:
        label = 1 - name
    if name is None or label is None or any(map(is_image_name, first)):
        return without_header
    if any(cells[label] == first[label] for _, cells in others):  # a class of that name
        return without_header
    return _Columns(name, label, has_header=True)


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
