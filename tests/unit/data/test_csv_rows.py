"""Every form of CSV that people write gives the same rows; what cannot be sure is told by line."""

import codecs
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from tests.unit.data.conftest import lines_of
from tuner.data.csv_rows import csv_rows
from tuner.data.label_text import LabelFile, Line, Problems, Row, has_label, has_name, is_clean
from tuner.errors import DataError

WANTED = [("001.jpg", "007"), ("b 2.jpg", "it's é"), ("c,;3.jpg", "1.0")]
HEADERS = {"none": [], "usual": [("path", "label")], "other case": [("File Name", "CLASS")]}
ENCODINGS = {
    "UTF-8": ("utf-8", b""),
    "UTF-8 with a mark": ("utf-8", codecs.BOM_UTF8),
    "UTF-16 little": ("utf-16-le", codecs.BOM_UTF16_LE),
    "UTF-16 big": ("utf-16-be", codecs.BOM_UTF16_BE),
}


def rows_of(lines: Iterable[Line]) -> tuple[list[Row], list[str]]:
    problems = Problems("t.csv")
    rows = [
        row
        for row in csv_rows(lines, problems)
        if all(check(row, problems) for check in (has_name, has_label, is_clean))
    ]
    return rows, problems.lines()


def read(text: str) -> tuple[list[Row], list[str]]:
    return rows_of(lines_of(text))


def pairs(text: str) -> list[tuple[str, str]]:
    rows, problems = read(text)
    assert problems == []
    return [(row.name, row.label) for row in rows]


def problems_of(text: str) -> list[str]:
    rows, problems = read(text)
    assert problems
    return problems


def quoted(cell: str) -> str:
    return f'"{cell}"' if set(cell) & set(",;\t") else cell


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separator_header_line_ends_and_encoding_are_found_out(
    tmp_path: Path, separator: str, header: str, encoding: str
) -> None:
    path = tmp_path / "labels.csv"
    name, mark = ENCODINGS[encoding]
    lines = [separator.join(map(quoted, row)) for row in (*HEADERS[header], *WANTED)]
    for line_end, last in product(("\n", "\r\n", "\r"), (0, 1, 3)):
        text = line_end.join(lines) + line_end * last
        path.write_bytes(mark + text.encode(name))
        rows, problems = rows_of(LabelFile(path, "labels.csv"))
        assert ([(row.name, row.label) for row in rows], problems) == (WANTED, [])


@pytest.mark.parametrize("label", ["1", "9", "-1", "-100", "007", "1.0", "NA", "null", "true", "é"])
def test_every_label_is_the_text_that_is_written(label: str) -> None:
    assert pairs(f"1.jpg,{label}\n2.jpg,x\n") == [("1.jpg", label), ("2.jpg", "x")]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("id,breed", "1.jpg,cat"),
        ("Image,Rasse", "1.jpg,cat"),
        ("label,path", "cat,1.jpg"),
        (",path,label", "0,1.jpg,cat"),
        ("path,label,confidence", "1.jpg,cat,0.5"),
        ("id,label,filename", "17,cat,1.jpg"),
    ],
)
def test_a_header_says_which_column_is_which(header: str, row: str) -> None:
    assert pairs(f"{header}\n{row}\n") == [("1.jpg", "cat")]


@pytest.mark.parametrize("text", ["image,cat\nphoto,cat\n", "path,label\nb,label\n"])
def test_a_first_line_whose_label_comes_again_is_no_header(text: str) -> None:
    assert len(pairs(text)) == 2


def test_a_header_of_more_columns_is_one_though_a_class_has_its_name() -> None:
    assert pairs("path,label,score\n1.jpg,label,1\n") == [("1.jpg", "label")]


def test_a_first_line_that_names_an_image_is_no_header() -> None:
    assert pairs("path.jpg,label\n2.jpg,x\n")[0] == ("path.jpg", "label")


def test_blanks_around_cells_and_quotes_within_are_understood() -> None:
    assert pairs('a.jpg, cat \n"b ""2"".jpg", "dog, small"\n') == [
        ("a.jpg", "cat"),
        ('b "2".jpg', "dog, small"),
    ]


def test_commas_in_labels_do_not_hide_the_separator() -> None:
    assert pairs("a.jpg;cat, small\nb.jpg;dog, big\n") == [
        ("a.jpg", "cat, small"),
        ("b.jpg", "dog, big"),
    ]


def test_lines_keep_their_numbers_past_blank_ones() -> None:
    rows, _ = read("\r\n\r\npath,label\r\n\r\n1.jpg,a\r\n \t\r\n2.jpg,b")
    assert [row.line for row in rows] == [5, 7]


def test_one_column_is_told_with_the_separators_that_were_tried() -> None:
    assert problems_of("path|label\na.jpg|cat\n") == [
        "t.csv line 1: one column ('path|label'), separators tried: comma, semicolon, tab; "
        "write file name and label"
    ]


def test_columns_that_nothing_tells_apart_are_told() -> None:
    assert problems_of("a.jpg,cat,1\nb.jpg,dog,2\n") == [
        "t.csv line 1: 3 columns ('a.jpg', 'cat', '1') and nothing says which is which; "
        "begin the file with a header that has the columns path and label"
    ]


def test_a_missing_label_or_name_is_told_by_its_line() -> None:
    text = "path,label\n" + "".join(f"{n}.jpg,a\n" for n in range(5)) + "7.jpg,\n,b\n"
    assert problems_of(text) == [
        "t.csv line 7: image '7.jpg' has no label; write one or remove the line",
        "t.csv line 8: the file name is empty; write it or remove the line",
    ]


def test_cells_too_many_and_open_quotes_touch_no_other_line() -> None:
    rows, problems = read('a.jpg,cat\nb,1.jpg,dog\n"c.jpg,cat\nd.jpg,dog\ne.jpg\n')
    assert [(row.line, row.name, row.label) for row in rows] == [
        (1, "a.jpg", "cat"),
        (4, "d.jpg", "dog"),
    ]
    assert problems == [
        "t.csv line 2: the number of cells is 3, in line 1 it is 2; quote cells that hold a comma",
        "t.csv line 5: the number of cells is 1, in line 1 it is 2; quote cells that hold a comma",
        "t.csv line 3: a quote is open or misplaced; "
        'begin and end the cell with ", double those within',
    ]


@pytest.mark.parametrize("label", ["a\x85b", "a\u2028b", "a\x9bb"])
def test_a_label_cannot_tear_a_line_that_tells_it(label: str) -> None:
    assert problems_of(f"a.jpg,{label}\n") == [
        f"t.csv line 1: a control character in 'a.jpg', {label!r}; remove it"
    ]


def test_a_long_cell_is_cut_where_it_is_told() -> None:
    assert problems_of(f"a.jpg,cat\n{'x' * 500},\n") == [
        f"t.csv line 2: image '{'x' * 80}'… has no label; write one or remove the line"
    ]


def test_control_characters_are_told() -> None:
    assert problems_of("a.jpg,ca\tt\nb.jpg,dog\n") == [
        "t.csv line 1: a control character in 'a.jpg', 'ca\\tt'; remove it"
    ]


def test_a_name_that_goes_over_two_lines_is_told() -> None:
    assert problems_of('path,label\n"a\nb.jpg",cat\nc.jpg,dog\n') == [
        "t.csv line 2: a quote is open or misplaced; "
        'begin and end the cell with ", double those within'
    ]


def test_the_first_of_many_mistakes_are_shown_and_all_are_counted() -> None:
    problems = problems_of("".join(f"{n}.jpg,\n" for n in range(9)))
    assert problems[:5] == [
        f"t.csv line {n + 1}: image '{n}.jpg' has no label; write one or remove the line"
        for n in range(5)
    ]
    assert problems[5:] == ["t.csv: 9 lines without a label; the first 5 are above"]


@pytest.mark.parametrize("text", ["", "\n\n \n", "path,label\n"])
def test_an_empty_file_has_no_rows_and_no_mistake(text: str) -> None:
    assert read(text) == ([], [])


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            "a.jpg,b\né.jpg,c".encode("latin-1"),
            "t.csv line 2: byte 0xE9 is not UTF-8 (Latin-1 or Windows-1252, it seems); "
            "save it as UTF-8",
        ),
        (
            "a,b\r\nc,d".encode("utf-16-le"),
            "t.csv line 1: a NUL character, as in UTF-16 without a byte order mark, "
            "or the file is no text; save it as UTF-8",
        ),
        (
            "a,b\n".encode("utf-32"),
            "t.csv line 1: the file is in UTF-32; save it as UTF-8",
        ),
        (
            codecs.BOM_UTF16_LE + "a,b\nc".encode("utf-16-le")[:-1],
            "t.csv line 2: byte 0x63 is not UTF-16-LE (cut short, maybe); save it as UTF-8",
        ),
    ],
)
def test_another_encoding_is_refused_by_name(tmp_path: Path, data: bytes, line: str) -> None:
    (tmp_path / "t.csv").write_bytes(data)
    with pytest.raises(DataError) as caught:
        list(LabelFile(tmp_path / "t.csv", "t.csv"))
    assert caught.value.problems == (line,)
