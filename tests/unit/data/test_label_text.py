"""A label file is read piece by piece, and gives the lines of the whole text wherever it is cut."""

import re
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.data.conftest import lines_of
from tuner.data import label_text
from tuner.data.label_text import LabelFile, Line
from tuner.errors import DataError

texts = st.text(st.sampled_from("a é\U0001f431\t\v\u2028\r\n"), max_size=30)


def read(data: bytes, chunk_bytes: int) -> list[Line] | str:
    """Return the lines, or what is wrong with one."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_text, "CHUNK_BYTES", chunk_bytes)
        path = Path(folder, "t.csv")
        path.write_bytes(data)
        try:
            return list(LabelFile(path, "t.csv"))
        except DataError as error:
            return str(error)


@given(texts, st.sampled_from(("utf-8", "utf-8-sig", "utf-16")), st.integers(1, 9))
def test_lines_and_numbers_are_those_of_the_whole_text(
    text: str, encoding: str, chunk_bytes: int
) -> None:
    assert read(text.encode(encoding), chunk_bytes) == lines_of(text)


@given(texts, st.sampled_from([b"\xff", b"\0"]), texts, st.integers(1, 9))
def test_a_byte_that_is_no_text_is_told_with_its_line(
    before: str, wrong: bytes, after: str, chunk_bytes: int
) -> None:
    said = read(before.encode() + wrong + after.encode(), chunk_bytes)
    line = len(re.split("\r\n|\r|\n", before))
    what = "byte 0xFF is not UTF-8 (L" if wrong == b"\xff" else "a NUL character, as in UTF-16"
    assert isinstance(said, str)
    assert said.startswith(f"t.csv line {line}: {what}")


@given(texts, st.integers(1, 9))
def test_text_that_ends_within_a_letter_is_told_with_its_line(text: str, chunk_bytes: int) -> None:
    said = read((text + "é").encode("utf-16")[:-1], chunk_bytes)
    line = len(re.split("\r\n|\r|\n", text))
    assert said == (
        f"t.csv line {line}: byte 0xE9 is not UTF-16-LE (cut short, maybe); save it as UTF-8"
    )


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_file_is_never_held_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line_end: str
) -> None:
    monkeypatch.setattr(label_text, "CHUNK_BYTES", 2**14)
    path = tmp_path / "t.csv"
    path.write_text(f"{'n' * 200}.jpg,class{line_end}" * 20_000, newline="")
    tracemalloc.start()
    num_lines = sum(1 for _ in LabelFile(path, "t.csv"))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_lines == 20_000
    assert peak_bytes < path.stat().st_size / 20


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        list(LabelFile(tmp_path, "t.csv"))
    assert caught.value.problems == (
        "t.csv: cannot be read (Is a directory); mend that or name another file",
    )
