"""Parameter specs are read from plain values, checked, and written back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SettingsError
from tuner.settings.space import (
    ChoiceSpec,
    FloatSpec,
    IntSpec,
    ParameterSpec,
    can_take,
    edge_values,
    find_condition_problems,
    parse_spec,
    spec_to_plain,
    with_fixed,
)

CONDITIONS = st.dictionaries(st.text(), st.integers() | st.text()).map(lambda d: tuple(d.items()))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def bounds(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Draw two bounds, the smaller first; they may be equal."""
    return st.lists(values, min_size=2, max_size=2).map(sorted)


SPECS: st.SearchStrategy[ParameterSpec] = st.one_of(
    st.builds(lambda b, when: FloatSpec(b[0], b[1], when=when), bounds(FLOATS), CONDITIONS),
    st.builds(
        lambda b, when: FloatSpec(b[0], b[1], log=True, when=when),
        bounds(st.floats(1e-300, 1e300)),
        CONDITIONS,
    ),
    st.builds(
        lambda low, steps, step, when: IntSpec(low, low + steps * step, step, when=when),
        st.integers(),
        st.integers(0, 100),
        st.integers(1, 100),
        CONDITIONS,
    ),
    st.builds(
        lambda b, when: IntSpec(b[0], b[1], log=True, when=when), bounds(st.integers(1)), CONDITIONS
    ),
    st.builds(
        ChoiceSpec,
        st.lists(
            st.text() | st.integers(2) | st.booleans() | st.none(), min_size=1, unique=True
        ).map(tuple),
        CONDITIONS,
    ),
)


@given(SPECS)
def test_a_spec_written_as_plain_values_reads_back_equal(spec: ParameterSpec) -> None:
    assert parse_spec("a.b", spec_to_plain(spec)) == spec


@given(SPECS)
def test_a_parameter_takes_both_bounds_and_every_choice(spec: ParameterSpec) -> None:
    assert all(can_take(spec, value) for value in edge_values(spec))


@pytest.mark.parametrize(
    ("raw", "spec"),
    [
        ({"float": [0, 1]}, FloatSpec(0.0, 1.0)),
        ({"log": [1e-3, 1]}, FloatSpec(1e-3, 1.0, log=True)),
        ({"int": [1, 3]}, IntSpec(1, 3)),
        ({"int": [2, 2]}, IntSpec(2, 2)),
        ({"int": [1, 9], "step": 2}, IntSpec(1, 9, step=2)),
        ({"log_int": [1, 64]}, IntSpec(1, 64, log=True)),
        ({"choices": [1, "a", None, True]}, ChoiceSpec((1, "a", None, True))),
        ([0, 1], ChoiceSpec((0, 1))),
        ({"float": [0, 1], "when": {"a.c": "x"}}, FloatSpec(0.0, 1.0, when=(("a.c", "x"),))),
    ],
)
def test_kinds(raw: Any, spec: ParameterSpec) -> None:
    assert parse_spec("a.b", raw) == spec


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (
            {"log": [0, 0.1]},
            ["lower bound is not above 0 (log: [0, 0.1]); orders of magnitude begin above 0"],
        ),
        ({"log": [0.1, 1e-5]}, ["bounds are swapped (log: [0.1, 1e-05]); write [1e-05, 0.1]"]),
        ({"float": []}, ["needs two bounds (float: []); write {float: [low, high]}"]),
        ({"float": 3}, ["needs two bounds (float: 3); write {float: [low, high]}"]),
        (
            {"log": ["a", float("nan")]},
            [
                "bound a is no number (log: ['a', nan])",
                "bound nan is no number (log: ['a', nan])",
            ],
        ),
        ({"float": [False, 1]}, ["bound false is no number (float: [False, 1])"]),
        ({"int": [1, 2.5]}, ["bound 2.5 is no whole number (int: [1, 2.5])"]),
        ({"int": [1, 10], "step": 2}, ["steps of 2 from 1 miss 10; use 9 or 11"]),
        ({"int": [1, 3], "step": 0}, ["step: not allowed (0); use a whole number from 1 up"]),
        ({"log": [1, 3], "step": 1}, ["step goes with int, not with log"]),
        ([], ["no choices ([]); list at least one value"]),
        ({"choices": "abc"}, ["no choices (abc); list at least one value"]),
        ([1, 2, 1.0, 2, 2], [f"choice {n} is listed twice; list each once" for n in ("1.0", "2")]),
        ([[1], {"a": 2}], ["choice [1] is no single value", "choice {'a': 2} is no single value"]),
        ({"lgo": [1, 2]}, ["no such kind of range (lgo); did you mean log?"]),
        (
            {"normal": [1, 2]},
            ["no such kind of range (normal); use float, log, int, log_int or choices"],
        ),
        ({"when": {}}, ["0 kinds given; use one of float, log, int, log_int or choices"]),
        (
            {"int": [1, 2], "log": [1, 2]},
            ["2 kinds given; use one of float, log, int, log_int or choices"],
        ),
        (0.1, ["not a range (0.1); write one like {log: [1e-3, 1]}"]),
        ({"int": [1, 2], "when": "x"}, ["when: not allowed (x); write {other.key: value}"]),
        ({"int": [1, 2], "when": {"a.c": [1]}}, ["when: a.c needs a single value ([1])"]),
        (
            {"log": [2, 1], "step": 1, "when": 5},
            [
                "step goes with int, not with log",
                "when: not allowed (5); write {other.key: value}",
                "bounds are swapped (log: [2, 1]); write [1, 2]",
            ],
        ),
    ],
)
def test_every_mistake_in_a_spec_is_told(raw: Any, lines: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_spec("a.b", raw)
    assert caught.value.problems == tuple(f"a.b: {line}" for line in lines)


def test_a_bound_beyond_floating_point_is_no_number() -> None:
    with pytest.raises(SettingsError, match="is no number"):
        parse_spec("a.b", {"float": [0, 10**400]})


@pytest.mark.parametrize(
    ("condition", "line"),
    [
        (("a.nme", "sgd"), "when: a.nme is not searched beside it; did you mean a.name?"),
        (("a.name", "sdg"), "when: a.name never takes this value (sdg)"),
        (("a.size", 4), "when: a.size never takes this value (4)"),
        (("a.size", True), "when: a.size never takes this value (true)"),
        (("a.rate", 2), "when: a.rate never takes this value (2)"),
        (("a.x", 0.5), "when: goes in a circle (a.x -> a.x)"),
    ],
)
def test_a_condition_must_name_another_parameter_and_a_value_it_takes(
    condition: tuple[str, Any], line: str
) -> None:
    specs: dict[str, ParameterSpec] = {
        "a.name": ChoiceSpec(("sgd", "adam")),
        "a.size": IntSpec(1, 5, step=2),
        "a.rate": FloatSpec(0, 1),
        "a.x": FloatSpec(0, 1, when=(condition,)),
    }
    assert find_condition_problems(specs) == {"a.x": line}


def test_conditions_may_follow_one_another_but_not_in_a_circle() -> None:
    chain: dict[str, ParameterSpec] = {
        "a.x": IntSpec(1, 3),
        "a.y": IntSpec(1, 3, when=(("a.x", 2),)),
        "a.z": IntSpec(1, 3, when=(("a.y", 3),)),
    }
    assert find_condition_problems(chain) == {}
    circle = chain | {"a.x": IntSpec(1, 3, when=(("a.z", 1),))}
    (line,) = find_condition_problems(circle).values()
    assert line.startswith("when: goes in a circle (")


def test_fixing_a_parameter_settles_the_conditions_on_it() -> None:
    specs: dict[str, ParameterSpec] = {
        "a.momentum": FloatSpec(0, 1, when=(("a.name", "sgd"),)),
        "a.beta": FloatSpec(0, 1, when=(("a.name", "adam"),)),
        "a.below": FloatSpec(0, 1, when=(("a.beta", 0.5),)),
    }
    assert with_fixed(specs, {"a.name": "sgd"}) == {"a.momentum": FloatSpec(0, 1)}
