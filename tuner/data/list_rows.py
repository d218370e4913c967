"""The `list` form of labels: lines of `path label`, where a path may hold blanks."""

from collections.abc import Callable, Iterable, Iterator

from tuner.data.label_text import Line, Problems, Row

BLANKS = " \t"


def last_word(line: str) -> tuple[str, str]:
    """Return name and label of a line: the label follows the last tab, or is the last word.

    Of a single word it is empty.
    """
    if "\t" in line:
        name, _, label = line.rpartition("\t")
        return name.strip(BLANKS), label.strip(BLANKS)
    name, _, label = line.rpartition(" ")
    return (name.rstrip(BLANKS), label) if name else (label, "")


def list_rows(
    lines: Iterable[Line],
    _: Problems,  # there is no line that cannot be cut
    split: Callable[[str], tuple[str, str]] = last_word,
) -> Iterator[Row]:
    """Yield the rows of all lines but those that begin with `#`; `split` cuts name and label."""
    for number, line in lines:
        line = line.strip(BLANKS)
        if not line.startswith("#"):
            yield Row(number, *split(line))
