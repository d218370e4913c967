"""Any bytes as a label file: an index of pairs that stand there, or lines that say where."""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.data.labelled import list_csv, list_lines
from tuner.data.listing import Listing
from tuner.errors import DataError

NAMES = ("1.jpg", "2.jpg", "a b.jpg", "a,b.jpg", "a;b.jpg", 'q"uote.jpg', "é.jpg", "plain")
LABELS = ("cat", "007", "7", "-1", "é", "dog", "a b", "a,b", "a;b", "label", "path")
PIECES = (*NAMES, *LABELS, ",", ";", "\t", " ", "\n", "\r\n", "\r", '"', '""', "#", "path", "../")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252")
READERS = {"labels.csv": list_csv, "labels.txt": list_lines}
SEPARATORS = {"labels.csv": ",;\t", "labels.txt": " \t"}

pieces = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=40).map("".join)


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


@st.composite
def tables(draw: st.DrawFn, separators: str) -> str:
    """Draw a file as people write it, now and then with lines of anything."""
    separator, end = draw(st.sampled_from(separators)), draw(st.sampled_from(("\n", "\r\n", "\r")))
    always_quoted = separator != " " and draw(st.booleans())
    rows = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(LABELS), min_size=2))
    lines = [f"path{separator}label"] if separator != " " and draw(st.booleans()) else []
    for row in rows.items():
        cells = [
            quoted(cell) if always_quoted or separator in cell.replace(" ", "") else cell
            for cell in row
        ]
        lines += [separator.join(cells)] * draw(st.sampled_from((1, 1, 1, 2)))
    if draw(st.integers(0, 3)) == 0:
        lines.insert(draw(st.integers(0, len(lines))), draw(pieces))
    return end.join(lines)


def contents(name: str) -> st.SearchStrategy[bytes]:
    """Return a strategy for what a label file of this name may hold."""
    texts = pieces | tables(SEPARATORS[name]) | tables(SEPARATORS[name])
    encodings = st.sampled_from(("utf-8",) * len(ENCODINGS) + ENCODINGS)
    encoded = st.tuples(texts, encodings).map(lambda both: both[0].encode(both[1], "replace"))
    return encoded | encoded | st.binary(max_size=200)


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        for name in NAMES:
            path = Path(folder, "train", name)
            path.parent.mkdir(exist_ok=True)
            path.touch()
        yield Path(folder)


def listed(root: Path, name: str) -> Listing | tuple[str, ...]:
    """Return what the file gives: images, or what is wrong with it."""
    try:
        return READERS[name](root, train_labels=name)
    except DataError as error:
        return error.problems


def says_where(name: str, problem: str) -> bool:
    """Whether a problem is one line that names the file, and the line where it is about one."""
    of_line, of_all = rf"{name} line [1-9][0-9]*: ", rf"{name}: [0-9]+ lines "
    of_classes = rf"data.train_labels: '{name}' has (no|one) "
    found = re.match(f"({of_line}|{of_all}|{of_classes})", problem)
    return len(problem.splitlines()) == 1 and found is not None


def written_lines(data: bytes) -> list[str]:
    """Return the lines as written, quotes taken off; of UTF-16 where it has a mark."""
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = data.decode("utf-16" if is_utf16 else "utf-8-sig")
    return [line.replace('""', '"') for line in re.split("\r\n|\r|\n", text)]


def stands_on(line: str, name: str, label: str) -> bool:
    """Whether the line holds the name and apart from it the label."""
    return any(
        label in line[: found.start()] or label in line[found.end() :]
        for found in re.finditer(re.escape(name), line)
    )


@given(st.data())
@pytest.mark.parametrize("name", READERS)
def test_any_bytes_give_the_pairs_that_stand_there_or_lines_that_say_where(
    root: Path, name: str, drawn: st.DataObject
) -> None:
    data = drawn.draw(contents(name))
    (root / name).write_bytes(data)
    listing = listed(root, name)
    if not isinstance(listing, Listing):
        assert listing
        assert all(says_where(name, problem) for problem in listing)
        return
    written = written_lines(data)
    assert listing.validation is None
    for label, paths in listing.train.items():
        for path in paths:
            image = path.removeprefix("train/")
            assert image in NAMES
            assert any(stands_on(line, image, label) for line in written)


@given(st.data())
@pytest.mark.parametrize("name", READERS)
def test_no_line_is_lost_without_a_word(root: Path, name: str, drawn: st.DataObject) -> None:
    text = drawn.draw(tables(SEPARATORS[name]))
    (root / name).write_text(text, encoding="utf-8", newline="")
    listing = listed(root, name)
    if not isinstance(listing, Listing):
        return
    rows = [line for line in re.split("\r\n|\r|\n", text) if line.strip(" \t")]
    if name == "labels.txt":
        rows = [row for row in rows if not row.strip(" \t").startswith("#")]
    num_used = sum(map(len, listing.train.values()))
    (num_repeats,) = [int(note.split(": ")[2].split()[0]) for note in listing.notes] or [0]
    num_header = len(rows) - num_used - num_repeats
    assert num_header in (0, 1)
    if num_header:
        assert re.search("path|label", rows[0])
