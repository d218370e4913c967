"""The `list` form of labels: lines of `path label`, where a path may hold blanks."""

from tuner.data.label_text import Problems, Row, check_row, numbered_lines

BLANKS = " \t"


def list_rows(text: str, problems: Problems) -> list[Row]:
    """Return the rows of a text; what is wrong with others goes to `problems`.

    The label is what follows the last tab, or where there is none the last word. Blank lines and
    those that begin with `#` are passed over.
    """
    rows = []
    for number, line in numbered_lines(text):
        line = line.strip(BLANKS)
        if not line.startswith("#"):
            row = _row(number, line)
            if check_row(row, problems):
                rows.append(row)
    return rows


def _row(number: int, line: str) -> Row:
    if "\t" in line:
        name, _, label = line.rpartition("\t")
        return Row(number, name.strip(BLANKS), label.strip(BLANKS))
    name, _, label = line.rpartition(" ")
    return Row(number, name.rstrip(BLANKS), label) if name else Row(number, label, "")
