"""Lines of `path label`: the label is the last word, so paths may hold blanks."""

import pytest

from tests.unit.data.conftest import lines_of
from tuner.data.label_text import Problems, has_label, is_clean
from tuner.data.list_rows import list_rows


def read(text: str) -> tuple[list[tuple[int, str, str]], list[str]]:
    problems = Problems("t.txt")
    rows = [
        (row.line, row.name, row.label)
        for row in list_rows(lines_of(text), problems)
        if has_label(row, problems) and is_clean(row, problems)
    ]
    return rows, problems.lines()


@pytest.mark.parametrize(
    ("line", "name", "label"),
    [
        ("a/1.jpg cat", "a/1.jpg", "cat"),
        ("my  cat 1.jpg   007 ", "my  cat 1.jpg", "007"),
        ("a.jpg\tcat", "a.jpg", "cat"),
        ("my cat.jpg\tgolden retriever", "my cat.jpg", "golden retriever"),
        ("a.jpg \t -1", "a.jpg", "-1"),
        ("Ünï 日本.jpg é", "Ünï 日本.jpg", "é"),
        ("a#1.jpg #2", "a#1.jpg", "#2"),
        ("no-break\u00a0space.jpg x", "no-break\u00a0space.jpg", "x"),
    ],
)
def test_the_last_word_is_the_label(line: str, name: str, label: str) -> None:
    assert read(line) == ([(1, name, label)], [])


def test_comments_and_blank_lines_are_passed_over_and_counted_as_lines() -> None:
    text = "# path label\r\n\r\n  # more\r\n1.jpg a\r\n \t \r\n2.jpg b"
    assert read(text) == ([(4, "1.jpg", "a"), (6, "2.jpg", "b")], [])


def test_a_line_that_is_no_pair_is_told_and_the_others_stay() -> None:
    assert read("1.jpg a\n2.jpg\n3.jpg\t\n\x0b c\n4.jpg d") == (
        [(1, "1.jpg", "a"), (5, "4.jpg", "d")],
        [
            "t.txt line 2: image '2.jpg' has no label; write one or remove the line",
            "t.txt line 3: image '3.jpg' has no label; write one or remove the line",
            "t.txt line 4: a control character in '\\x0b', 'c'; remove it",
        ],
    )
