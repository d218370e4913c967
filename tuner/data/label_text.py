"""The lines of a label file by number, its rows, and all that is wrong with them at once."""

import codecs
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tuner.data.listing import CONTROL
from tuner.errors import DataError

NUM_SHOWN = 5
LONGEST_SHOWN = 80
LINE_LIKE = re.compile(r"[\x80-\x9f\u2028\u2029]")  # would tear the one line of an error
LINE_END = re.compile(r"\r\n|\r|\n")  # and no other: splitlines() knows eight more
SURE_LINE_END = re.compile(r"\r\n|\r(?!\Z)|\n")  # at the end of a chunk it may be half of one
CHUNK_BYTES = 2**20
# UTF-32's mark for little-endian begins with that of UTF-16, so it is asked for first.
OTHER_MARKS = ((codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF32_BE, "UTF-32"))
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
REMEDY = "save it as UTF-8"

Line = tuple[int, str]  # its number from 1, its text


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
        self._shown: defaultdict[str, list[str]] = defaultdict(list)
        self._num_lines: Counter[str] = Counter()

    def add(self, line: int, kind: str, text: str) -> None:
        """Take what is wrong with a line; `kind` goes on after "so many lines"."""
        if not self.has_enough(kind):
            self._shown[kind].append(f"{self.told} line {line}: {text}")
        self._num_lines[kind] += 1

    def has_enough(self, kind: str) -> bool:
        """Return whether further lines of a kind are only counted."""
        return self._num_lines[kind] >= NUM_SHOWN

    def lines(self) -> list[str]:
        """Return them for people, in the order in which each kind was met first."""
        told = []
        for kind, lines in self._shown.items():
            told += lines
            if (num_lines := self._num_lines[kind]) > NUM_SHOWN:
                told.append(
                    f"{self.told}: {num_lines} lines {kind}; the first {NUM_SHOWN} are above"
                )
        return told


ReadRows = Callable[[Iterable[Line], Problems], Iterator[Row]]


@dataclass(frozen=True, slots=True)
class LabelFile:
    """The lines of a file in UTF-8, or in UTF-16 with its byte order mark; it is never held whole.

    Args:
        told: The file, for people.
    """

    path: Path
    told: str

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines that are not blank; it is read anew each time.

        Raises:
            DataError: It cannot be read, or is in another encoding, which is named as far as can
                be.
        """
        try:
            with self.path.open("rb") as file:
                yield from self._lines(file)
        except OSError as error:
            raise DataError(
                f"{self.told}: cannot be read ({error.strerror}); mend that or name another file"
            ) from error

    def _lines(self, file: BinaryIO) -> Iterator[Line]:
        encoding = self._encoding(file)
        decoder = codecs.getincrementaldecoder(encoding)()
        number, rest, is_end = 1, "", False
        while not is_end:
            # A file of one line would be gone over again and again by chunks of one size.
            data = file.read(max(CHUNK_BYTES, len(rest)))
            is_end = not data
            try:
                text = rest + decoder.decode(data, is_end)
            except UnicodeDecodeError as error:
                place = number + _num_ends(rest + error.object[: error.start].decode(encoding))
                raise self._wrong_byte(place, encoding, error.object[error.start]) from error
            if (nul := text.find("\0")) >= 0:
                raise self._has_nul(number + _num_ends(text[:nul]))
            *lines, rest = SURE_LINE_END.split(text + "\n" * is_end)
            yield from ((n, line) for n, line in enumerate(lines, number) if line.strip(" \t"))
            number += len(lines)

    def _encoding(self, file: BinaryIO) -> str:
        """Return the encoding by the mark that the file begins with, which is passed over."""
        start = file.read(4)
        for mark, encoding in OTHER_MARKS:
            if start.startswith(mark):
                raise DataError(f"{self.told} line 1: the file is in {encoding}; {REMEDY}")
        marks = [(mark, encoding) for mark, encoding in MARKS if start.startswith(mark)]
        mark, encoding = marks[0] if marks else (b"", "utf-8")
        file.seek(len(mark))
        return encoding

    def _wrong_byte(self, line: int, encoding: str, byte: int) -> DataError:
        guess = "Latin-1 or Windows-1252, it seems" if encoding == "utf-8" else "cut short, maybe"
        return DataError(
            f"{self.told} line {line}: byte 0x{byte:02X} is not {encoding.upper()} ({guess}); "
            f"{REMEDY}"
        )

    def _has_nul(self, line: int) -> DataError:
        return DataError(
            f"{self.told} line {line}: a NUL character, as in UTF-16 without a byte order mark, "
            f"or the file is no text; {REMEDY}"
        )


def shown(text: str) -> str:
    """Return the text in quotes, cut where it is long."""
    return repr(text) if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]!r}…"


def has_name(row: Row, problems: Problems) -> bool:
    """Return whether a row names a file; that it does not goes to `problems`."""
    if not row.name:
        problems.add(
            row.line, "without a file name", "the file name is empty; write it or remove the line"
        )
    return bool(row.name)


def has_label(row: Row, problems: Problems) -> bool:
    """Return whether a row has a label; that it has none goes to `problems`."""
    if not row.label:
        problems.add(
            row.line,
            "without a label",
            f"image {shown(row.name)} has no label; write one or remove the line",
        )
    return bool(row.label)


def is_clean(row: Row, problems: Problems) -> bool:
    """Return whether a row is free of control characters; that it is not goes to `problems`."""
    if not (CONTROL.search(row.name + row.label) or LINE_LIKE.search(row.label)):
        return True
    problems.add(
        row.line,
        "with control characters",
        f"a control character in {shown(row.name)}, {shown(row.label)}; remove it",
    )
    return False


def _num_ends(text: str) -> int:
    return len(LINE_END.findall(text))
