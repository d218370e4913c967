"""The text of a label file, its lines by number, and all that is wrong with them at once."""

import codecs
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.data.listing import CONTROL
from tuner.errors import DataError

NUM_SHOWN = 5
LONGEST_SHOWN = 80
LINE_LIKE = re.compile(r"[\x80-\x9f\u2028\u2029]")  # would tear the one line of an error
LINE_END = re.compile(r"\r\n|\r|\n")  # and no other: splitlines() knows eight more
# UTF-32's mark for little-endian begins with that of UTF-16, so it is asked for first.
OTHER_MARKS = ((codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF32_BE, "UTF-32"))
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
REMEDY = "save it as UTF-8"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a label file: which image, and how it is labelled, both as written."""

    line: int
    name: str
    label: str


class Problems:
    """What is wrong with the lines of a file: the first of each kind in full, the rest counted.

    Args:
        told: The file, for people.
    """

    def __init__(self, told: str) -> None:
        self.told = told
        self._by_kind: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, line: int, kind: str, text: str) -> None:
        """Take what is wrong with a line; `kind` goes on after "so many lines"."""
        self._by_kind[kind].append(f"{self.told} line {line}: {text}")

    def lines(self) -> list[str]:
        """Return them for people, in the order in which each kind was met first."""
        shown = []
        for kind, lines in self._by_kind.items():
            shown += lines[:NUM_SHOWN]
            if len(lines) > NUM_SHOWN:
                shown.append(
                    f"{self.told}: {len(lines)} lines {kind}; the first {NUM_SHOWN} are above"
                )
        return shown


ReadRows = Callable[[str, Problems], Sequence[Row]]


def numbered_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers from 1."""
    lines = enumerate(LINE_END.split(text), start=1)
    return [(number, line) for number, line in lines if line.strip(" \t")]


def shown(text: str) -> str:
    """Return the text in quotes, cut where it is long."""
    return repr(text) if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]!r}…"


def check_row(row: Row, problems: Problems) -> bool:
    """Return whether a row has a name and a label; what is wrong goes to `problems`."""
    if not row.name:
        problems.add(
            row.line, "without a file name", "the file name is empty; write it or remove the line"
        )
    elif not row.label:
        problems.add(
            row.line,
            "without a label",
            f"image {shown(row.name)} has no label; write one or remove the line",
        )
    elif CONTROL.search(row.name + row.label) or LINE_LIKE.search(row.label):
        problems.add(
            row.line,
            "with control characters",
            f"a control character in {shown(row.name)}, {shown(row.label)}; remove it",
        )
    else:
        return True
    return False


def read_text(path: Path, told: str) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 with its byte order mark.

    Raises:
        DataError: It cannot be read, or is in another encoding, which is named as far as can be.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{told}: cannot be read ({error.strerror}); mend that or name another file"
        ) from error
    for mark, encoding in OTHER_MARKS:
        if data.startswith(mark):
            raise DataError(f"{told} line 1: the file is in {encoding}; {REMEDY}")
    marks = [(mark, encoding) for mark, encoding in MARKS if data.startswith(mark)]
    mark, encoding = marks[0] if marks else (b"", "utf-8")
    text = _decode(data[len(mark) :], encoding, told)
    if (place := text.find("\0")) >= 0:
        raise DataError(
            f"{told} line {_line_at(text[:place])}: a NUL character, as in UTF-16 without a byte "
            f"order mark, or the file is no text; {REMEDY}"
        )
    return text


def _decode(data: bytes, encoding: str, told: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = _line_at(data[: error.start].decode(encoding, "ignore"))
        byte = f"0x{data[error.start]:02X}"
        guess = "Latin-1 or Windows-1252, it seems" if encoding == "utf-8" else "cut short, maybe"
        raise DataError(
            f"{told} line {line}: byte {byte} is not {encoding.upper()} ({guess}); {REMEDY}"
        ) from error


def _line_at(text_before: str) -> int:
    return 1 + len(LINE_END.findall(text_before))
