"""Any bytes as a label file: an index of pairs that stand there, or lines that say where."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tuner.data.input_tables import open_inputs
from tuner.data.inputs import Input
from tuner.data.labelled import list_csv, list_lines
from tuner.data.listing import Listing, is_image_name
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


def raw_lines(data: bytes) -> list[str]:
    """Return the lines as written; of UTF-16 where it has a mark."""
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = data.decode("utf-16" if is_utf16 else "utf-8-sig")
    return re.split("\r\n|\r|\n", text)


def written_lines(data: bytes) -> list[str]:
    """Return the lines as written, quotes taken off."""
    return [line.replace('""', '"') for line in raw_lines(data)]


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


def asked(path: Path, classes: Sequence[str]) -> list[Input] | tuple[str, ...]:
    """Return the images that the file names for a model to predict, or what is wrong with it."""
    try:
        found = open_inputs(path, classes)
    except DataError as error:
        return error.problems
    images = list(found.begin())
    assert found.num_images == len(images)
    return images


@given(st.data())
@pytest.mark.parametrize("name", READERS)
def test_any_bytes_give_images_to_predict_that_stand_there_or_lines_that_say_where(
    root: Path, name: str, drawn: st.DataObject
) -> None:
    data = drawn.draw(contents(name))
    classes = drawn.draw(st.lists(st.sampled_from(LABELS), min_size=1, unique=True))
    (root / name).write_bytes(data)
    images = asked(root / name, classes)
    assert images
    if isinstance(images, tuple):
        nothing = f"images: '{root / name}' names no image; write one on each line"
        assert all(each == nothing or says_where(f"{root}/{name}", each) for each in images)
        return
    written = [*written_lines(data), *raw_lines(data)]  # quotes may be a part of any name
    for each in images:
        assert each.image
        if each.label is None:
            assert any(each.image in line for line in written)
        else:
            assert any(stands_on(line, each.image, classes[each.label]) for line in written)


@given(st.data())
@pytest.mark.parametrize("name", READERS)
def test_what_a_search_reads_is_predicted_as_the_same_images_with_the_same_labels(
    root: Path, name: str, drawn: st.DataObject
) -> None:
    (root / name).write_bytes(drawn.draw(contents(name)))
    listing = listed(root, name)
    if not isinstance(listing, Listing):
        return
    classes = [*listing.train]
    # Lists alone are read with the classes in mind: they may have blanks, and images no label.
    assume(name == "labels.csv" or not any(" " in each or is_image_name(each) for each in classes))
    images = asked(root / name, classes)
    assert not isinstance(images, tuple), images
    of_search = {(path, label) for label, paths in listing.train.items() for path in paths}
    of_predict = {
        (f"train/{each.image}", None if each.label is None else classes[each.label])
        for each in images
    }
    assert of_predict == of_search
