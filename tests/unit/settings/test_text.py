"""Files and arguments are read by YAML 1.2's rules, and what is unreadable is told."""

import os
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import SettingsError
from tuner.settings.text import read_overrides, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1.0e-3", 0.001),
        ("1e+16", 1e16),
        (".5", 0.5),
        ("010", 10),
        ("0x1F", 31),
        ("true", True),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("~", None),
        ("null", None),
        ("{log: [1e-3, 1]}", {"log": [0.001, 1]}),
    ],
)
def test_numbers_and_words_follow_yaml_1_2(text: str, value: Any, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"optim:\n  lr: {text}\n")
    (read,) = read_yaml(file)["optim"].values()
    (argued,) = read_overrides([f"optim.lr={text}"])[0].values()
    assert (read, type(read)) == (argued, type(argued)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("123", "123"),
        ("true", "true"),
        ("null", None),
        ('"null"', "null"),
        ("a: b #c", "a: b #c"),
        ("it's", "it's"),
        (" x ", " x "),
        ("a=b", "a=b"),
        (r'"\"x\""', '"x"'),
        ('"x" y', '"x" y'),
    ],
)
def test_text_settings_take_an_argument_as_it_is(text: str, value: str | None) -> None:
    assert read_overrides([f"data.root={text}"]) == ({"data.root": value}, [])


def test_every_argument_that_cannot_be_read_is_told() -> None:
    values, problems = read_overrides(
        ["optim.lr=0.1", "optim.lr", "=3", "train.epochs=", "train.seed=[1", "data.root="]
    )
    assert values == {"optim.lr": 0.1}
    assert problems == [
        "optim.lr: not a setting; write key=value",
        "=3: not a setting; write key=value",
        "train.epochs: no value given; write train.epochs=VALUE",
        "train.seed: cannot be read as a value ([1); write YAML, with a space behind each colon",
        "data.root: no value given; write data.root=VALUE",
    ]


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("# nothing yet\n")
    assert read_yaml(tmp_path / "x.yaml") == {}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"optim:\n  lr: 1\n  lr: 2\n", 'X line 3: found duplicate key "lr" with value "2"'),
        (b"optim:\n  lr: [1\n", "X line 3: expected ',' or ']', but got '<stream end>'"),
        (
            b"a: !!python/name:os.system\n",
            "X line 1: could not determine a constructor for the tag",
        ),
        (b"a: \xff\n", "X: not UTF-8 text (byte 3)"),
        (b"a: \x01\n", "X: not a YAML file ("),
        (b"a: 2001-99-99\n", "X: not a YAML file (month must be in 1..12)"),
        (b"a: !!int\n", "X: not a YAML file ("),
        (b"- 1\n", "X: not a mapping ([1]); write key: value lines"),
    ],
)
def test_a_file_that_is_no_settings_file_is_told_with_its_line(
    content: bytes, line: str, hostile_tmp_path: Path
) -> None:
    file = hostile_tmp_path / "x.yaml"
    file.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        read_yaml(file)
    (problem,) = caught.value.problems
    assert problem.startswith(line.replace("X", str(file)))
    assert "\n" not in problem


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as missing:
        read_yaml(tmp_path / "x.yaml")
    with pytest.raises(SettingsError) as folder:
        read_yaml(tmp_path)
    assert str(missing.value) == (
        f"{tmp_path}{os.sep}x.yaml: cannot be read (No such file or directory)"
    )
    assert str(folder.value) == f"{tmp_path}: cannot be read (Is a directory)"


def test_an_argument_that_is_a_date_that_is_none_is_told() -> None:
    assert read_overrides(["optim.lr=2001-99-99"]) == (
        {},
        [
            "optim.lr: cannot be read as a value (2001-99-99); "
            "write YAML, with a space behind each colon"
        ],
    )
