"""A list of points is read whole, or every mistake in it is told by file and line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import SettingsError
from tuner.settings.config import Config, flatten
from tuner.settings.points import is_list, load_points
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec, can_take

SPACE: Mapping[str, ParameterSpec] = {
    "optim.momentum": FloatSpec(0.5, 0.95, when=(("optim.name", "sgd"),)),
    "optim.name": ChoiceSpec(("sgd", "adam")),
    "optim.lr": FloatSpec(1e-3, 1.0, log=True),
    "train.batch_size": IntSpec(16, 64, step=16),
    "train.clip_norm": ChoiceSpec((None, 1.0)),
    "augment.flip": ChoiceSpec((True, False)),
}
FIXED = flatten(Config())


def points_in(path: Path, text: str) -> list[dict[str, Any]]:
    path.write_text(text, encoding="utf-8")
    return load_points(path, SPACE, FIXED)


def refusal(path: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        points_in(path, text)
    return caught.value.problems


POINTS = [
    {"optim.lr": 0.001, "optim.name": "adam", "augment.flip": True},
    {"optim.lr": 1.0, "optim.momentum": 0.5, "train.batch_size": 48},
    {"train.clip_norm": 1.0},
]
YAML_TEXT = """
# tried before
- {optim.lr: 1e-3, optim.name: adam, augment.flip: true}

- optim.lr: 1
  optim.momentum: 0.5
  train.batch_size: 48.0
- {train.clip_norm: 1, optim.lr: null}
"""
CSV_TEXT = """
state,optim.lr,optim.name,optim.momentum,train.batch_size,train.clip_norm,augment.flip
stopped,1e-3,adam,,,,True
failed,1, ,0.5,48,,
,,,,,1,
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", YAML_TEXT),
        ("a.yml", YAML_TEXT),
        ("a.json", json.dumps(POINTS)),
        ("a.json", json.dumps(POINTS, indent="\t")),
        ("a.csv", CSV_TEXT.lstrip()),
        ("a.csv", CSV_TEXT.lstrip().replace(",", ";")),
        ("a.CSV", CSV_TEXT.lstrip().replace(",", "\t").replace("\n", "\r\n")),
        ("a.csv", "\ufeff" + CSV_TEXT.lstrip() + "\n\n"),
    ],
)
def test_every_form_holds_the_same_points(hostile_tmp_path: Path, name: str, text: str) -> None:
    points = points_in(hostile_tmp_path / name, text)
    assert points == POINTS
    assert type(points[1]["optim.lr"]) is float
    assert type(points[1]["train.batch_size"]) is int


def test_a_value_of_null_is_one_where_the_range_has_it(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    assert points_in(path, "- {train.clip_norm: null}") == [{"train.clip_norm": None}]
    assert points_in(path, "- {optim.name: null, mining.ratio: null}") == [{}]


def test_a_key_that_is_not_searched_may_stand_there_with_the_value_that_it_has(
    tmp_path: Path,
) -> None:
    assert points_in(tmp_path / "a.yaml", "- {mining.ratio: 0, optim.lr: 0.5}") == [
        {"optim.lr": 0.5}
    ]
    assert points_in(tmp_path / "a.yaml", "- {optim.name: adam, optim.momentum: 0.9}") == [
        {"optim.name": "adam", "optim.momentum": 0.9}
    ]


def test_a_relative_path_means_what_it_means_in_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    specs = {"model.weights": ChoiceSpec((None, f"{tmp_path}/w.pt"))}
    (tmp_path / "a.csv").write_text("model.weights,state\nw.pt,\n,stopped\n")
    assert load_points(tmp_path / "a.csv", specs, FIXED) == [
        {"model.weights": f"{tmp_path}/w.pt"},
        {},
    ]


MOMENTUM = '{"float": [0.5, 0.95], "when": {"optim.name": "sgd"}}'


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ("{optim.lrr: 1}", "optim.lrr: no such setting; did you mean optim.lr?"),
        ("{lr: 1}", "lr: no such setting; did you mean optim.lr?"),
        ("{5: 1}", "5: no such setting; --help lists them all"),
        (
            "{optim.lr: 2}",
            'optim.lr: outside of the space (2); use a value of {"log": [0.001, 1.0]}',
        ),
        (
            "{optim.lr: .nan}",
            'optim.lr: outside of the space (nan); use a value of {"log": [0.001, 1.0]}',
        ),
        (
            "{optim.lr: [0.1, 0.2]}",
            'optim.lr: outside of the space ([0.1, 0.2]); use a value of {"log": [0.001, 1.0]}',
        ),
        (
            "{train.batch_size: 40}",
            "train.batch_size: outside of the space (40); "
            'use a value of {"int": [16, 64], "step": 16}',
        ),
        (
            "{augment.flip: 1}",
            'augment.flip: outside of the space (1); use a value of {"choices": [true, false]}',
        ),
        (
            "{optim.name: adam, optim.momentum: 2}",
            f"optim.momentum: outside of the space (2); use a value of {MOMENTUM}",
        ),
        (
            "{optim.name: adam, optim.momentum: 0.6}",
            "optim.momentum: searched only where optim.name is sgd (0.6); remove it",
        ),
        (
            "{mining.ratio: 2}",
            "mining.ratio: not searched, all trials have 0 (2); remove it, or search it",
        ),
        ("5", "not a point (5); write - {optim.lr: 0.1} for each point"),
        ("[1, 2]", "not a point ([1, 2]); write - {optim.lr: 0.1} for each point"),
    ],
)
def test_a_row_that_is_no_point_is_named_by_its_line(tmp_path: Path, row: str, line: str) -> None:
    path = tmp_path / "a.yaml"
    assert refusal(path, f"# mine\n- {{optim.lr: 0.1}}\n- {row}\n") == (f"{path} line 3: {line}",)


def test_all_mistakes_of_a_list_are_told_together(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    header = "optim.lr,optim.lrr,mining.ratio\n"
    in_range = 'use a value of {"log": [0.001, 1.0]}'
    assert refusal(path, header + "2,1,3\n0.1,,0\nhigh,,\n") == (
        f"{path} line 2: optim.lrr: no such setting; did you mean optim.lr?",
        f"{path} line 2: mining.ratio: not searched, all trials have 0 (3); "
        "remove it, or search it",
        f"{path} line 2: optim.lr: outside of the space (2); {in_range}",
        f"{path} line 4: optim.lr: outside of the space (high); {in_range}",
    )


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.yaml", "", ": no points; give one at least, or leave search.points out"),
        ("a.csv", "optim.lr\n", ": no points; give one at least, or leave search.points out"),
        (
            "a.yaml",
            "optim.lr: 0.1\n",
            ": not a list ({'optim.lr': 0.1}); write - {optim.lr: 0.1} for each point",
        ),
        ("a.yaml", "- {optim.lr: [}\n", " line 1: expected the node content, but found '}'"),
        (
            "a.csv",
            "",
            " line 1: no column is a setting (''); "
            "head the columns with dotted keys, such as optim.lr",
        ),
        (
            "a.csv",
            "lr,name\n0.1,sgd\n",
            " line 1: no column is a setting (lr, name); "
            "head the columns with dotted keys, such as optim.lr",
        ),
        ("a.csv", "optim.lr,optim.lr\n1,1\n", " line 1: column optim.lr is there twice"),
        ("a.csv", "optim.lr,x\n0.1\n", " line 2: 1 cells where the header has 2"),
        (
            "a.csv",
            "optim.lr\n[1\n",
            " line 2: optim.lr: cannot be read as a value ([1); "
            "write YAML, with a space behind each colon",
        ),
    ],
)
def test_a_file_that_is_no_list_of_points_is_told(
    tmp_path: Path, name: str, text: str, line: str
) -> None:
    assert refusal(tmp_path / name, text) == (f"{tmp_path / name}{line}",)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    for name, line in (
        ("gone.csv", "cannot be read (No such file or directory)"),
        ("latin.json", "not UTF-8 text (byte 0)"),
    ):
        path = tmp_path / name
        if name == "latin.json":
            path.write_bytes(b"\xff")
        with pytest.raises(SettingsError) as caught:
            load_points(path, SPACE, FIXED)
        assert caught.value.problems == (f"{path}: {line}",)


def test_a_folder_is_a_search_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "search.csv").mkdir()
    assert not is_list(tmp_path / "search.csv")
    assert not is_list(tmp_path / "results")
    assert is_list(tmp_path / "gone.csv")


BITS = (
    *("- ", "optim.lr", ": ", "0.1", "[", "]", "{", "}", "\n", "  ", ",", ";", '"', "#", "*a"),
    *("!!int ", "? ", "2001-99-99", "null", ".nan", "1e999", "<<", "|", "---\n", "\t", "\0", "é"),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(st.sampled_from(BITS), max_size=14).map("".join),
    name=st.sampled_from(["a.csv", "a.yaml"]),
)
def test_whatever_a_file_holds_it_is_points_or_a_line_that_says_why_not(
    tmp_path: Path, text: str, name: str
) -> None:
    problems: tuple[str, ...] = ()
    points: list[dict[str, Any]] = []
    try:
        points = points_in(tmp_path / name, text)
    except SettingsError as error:
        problems = error.problems
    assert bool(points) != bool(problems)
    assert all(line.startswith(str(tmp_path / name)) for line in problems)
    assert not any("\n" in line for line in problems)
    assert all(can_take(SPACE[key], each[key]) for each in points for key in each)
