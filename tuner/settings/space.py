"""Parameter specs: what may be searched, as plain values.

A spec is written as one of

    {float: [low, high]}            any number between the bounds
    {log: [low, high]}              the same, evenly over orders of magnitude
    {int: [low, high], step: k}     whole numbers, in steps of k (1 where not given)
    {log_int: [low, high]}          whole numbers, evenly over orders of magnitude
    {choices: [a, b, c]}            one of the values; also written [a, b, c]

Both bounds are inclusive. Each may have ``when: {other.key: value}``: searched only where
another parameter has that value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from math import inf
from sys import float_info
from typing import Any

from tuner.errors import SettingsError, did_you_mean
from tuner.settings.wording import listed, shown

KINDS = ("float", "log", "int", "log_int", "choices")
Conditions = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class FloatSpec:
    """A number from `low` to `high`; evenly over orders of magnitude where `log`."""

    low: float
    high: float
    log: bool = False
    when: Conditions = ()


@dataclass(frozen=True, slots=True)
class IntSpec:
    """A whole number from `low` to `high` in steps of `step`, or over orders of magnitude."""

    low: int
    high: int
    step: int = 1
    log: bool = False
    when: Conditions = ()


@dataclass(frozen=True, slots=True)
class ChoiceSpec:
    """One of a few values."""

    choices: tuple[Any, ...]
    when: Conditions = ()


ParameterSpec = FloatSpec | IntSpec | ChoiceSpec


def parse_spec(key: str, raw: Any) -> ParameterSpec:
    """The spec that a space file or the command line gives for a key.

    Raises:
        SettingsError: One line, beginning with the key, for each mistake in it.
    """
    if isinstance(raw, list):
        raw = {"choices": raw}
    if not isinstance(raw, Mapping):
        raise SettingsError(f"{key}: not a range ({shown(raw)}); write one like {{log: [1e-3, 1]}}")
    kinds = [name for name in raw if name not in ("when", "step")]
    unknown = [name for name in kinds if name not in KINDS]
    if unknown:
        raise SettingsError(*(_unknown_kind(key, name) for name in unknown))
    if len(kinds) != 1:
        raise SettingsError(f"{key}: {len(kinds)} kinds given; use one of {listed(KINDS)}")
    kind = kinds[0]
    problems = _step_problems(kind, raw) + _when_problems(raw)
    problems += _choice_problems(raw[kind]) if kind == "choices" else _bound_problems(kind, raw)
    if problems:
        raise SettingsError(*(f"{key}: {problem}" for problem in problems))
    return _build(kind, raw)


def spec_to_plain(spec: ParameterSpec) -> dict[str, Any]:
    """The spec as JSON values, that `parse_spec` reads back equal."""
    plain: dict[str, Any]
    match spec:
        case ChoiceSpec(choices=choices):
            plain = {"choices": list(choices)}
        case FloatSpec(low=low, high=high, log=log):
            plain = {"log" if log else "float": [low, high]}
        case IntSpec(low=low, high=high, log=True):
            plain = {"log_int": [low, high]}
        case IntSpec(low=low, high=high, step=step):
            plain = {"int": [low, high], "step": step}
    return plain | ({"when": dict(spec.when)} if spec.when else {})


def edge_values(spec: ParameterSpec) -> tuple[Any, ...]:
    """The values that decide whether all are valid: both bounds, or every choice."""
    return spec.choices if isinstance(spec, ChoiceSpec) else (spec.low, spec.high)


def num_values(spec: ParameterSpec) -> float:
    """How many values there are; infinity for a range of numbers."""
    match spec:
        case ChoiceSpec(choices=choices):
            return len(choices)
        case IntSpec(low=low, high=high, step=step):
            return (high - low) // step + 1
        case FloatSpec(low=low, high=high):
            return 1 if low == high else inf


def can_take(spec: ParameterSpec, value: Any) -> bool:
    """Whether a parameter with this spec can have the value."""
    if isinstance(spec, ChoiceSpec):
        return any(same(value, choice) for choice in spec.choices)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(spec, IntSpec) and (value - spec.low) % spec.step:
        return False
    return spec.low <= value <= spec.high


def as_taken(spec: ParameterSpec, value: Any) -> Any:
    """A value that the parameter can take as one of its own: 2 and not 2.0 where it is an int."""
    match spec:
        case ChoiceSpec(choices=choices):
            return next(choice for choice in choices if same(value, choice))
        case IntSpec():
            return int(value)
        case FloatSpec():
            return float(value)


def with_fixed(
    specs: Mapping[str, ParameterSpec], fixed: Mapping[str, Any]
) -> dict[str, ParameterSpec]:
    """The specs still searched once some keys have a fixed value.

    Conditions on fixed keys are settled: those that hold are dropped, and a parameter whose
    condition can no longer hold is left out.
    """
    never = {
        key
        for key, spec in specs.items()
        if any(other in fixed and not same(fixed[other], value) for other, value in spec.when)
    }
    while more := {
        key
        for key, spec in specs.items()
        if key not in never and any(other in never for other, _ in spec.when)
    }:
        never |= more
    return {
        key: replace(spec, when=tuple(each for each in spec.when if each[0] not in fixed))
        for key, spec in specs.items()
        if key not in never
    }


def holds(when: Conditions, settings: Mapping[str, Any]) -> bool:
    """Whether a parameter with these conditions is searched beside the settings of its parents."""
    return all(key in settings and settings[key] == value for key, value in when)


def parents_first(specs: Mapping[str, ParameterSpec]) -> dict[str, ParameterSpec]:
    """The specs in an order in which conditions stand on earlier ones alone."""
    ordered: dict[str, ParameterSpec] = {}

    def place(key: str) -> None:
        for parent, _ in specs[key].when:
            place(parent)
        ordered.setdefault(key, specs[key])

    for key in specs:
        place(key)
    return ordered


def find_condition_problems(specs: Mapping[str, ParameterSpec]) -> dict[str, str]:
    """For each key whose `when` cannot be followed, why."""
    problems = {}
    for key, spec in specs.items():
        for other, value in spec.when:
            if other not in specs:
                near = did_you_mean(other, specs)
                problems[key] = f"when: {shown(other)} is not searched beside it{near}"
            elif not can_take(specs[other], value):
                problems[key] = f"when: {other} never takes this value ({shown(value)})"
    try:
        TopologicalSorter({key: [k for k, _ in spec.when] for key, spec in specs.items()}).prepare()
    except CycleError as error:
        circle = error.args[1]
        problems[circle[0]] = f"when: goes in a circle ({' -> '.join(circle)})"
    return problems


def _build(kind: str, raw: Mapping[str, Any]) -> ParameterSpec:
    when = tuple(raw.get("when", {}).items())
    if kind == "choices":
        return ChoiceSpec(tuple(raw["choices"]), when)
    low, high = raw[kind]
    if kind in ("float", "log"):
        return FloatSpec(float(low), float(high), kind == "log", when)
    return IntSpec(low, high, raw.get("step", 1), kind == "log_int", when)


def _unknown_kind(key: str, name: Any) -> str:
    near = did_you_mean(str(name), KINDS) or f"; use {listed(KINDS)}"
    return f"{key}: no such kind of range ({shown(name)}){near}"


def _bound_problems(kind: str, raw: Mapping[str, Any]) -> list[str]:
    bounds, whole = raw[kind], kind in ("int", "log_int")
    number = "whole number" if whole else "number"
    given = f"({kind}: {shown(bounds)})"
    if not isinstance(bounds, list) or len(bounds) != 2:
        return [f"needs two bounds {given}; write {{{kind}: [low, high]}}"]
    if wrong := [bound for bound in bounds if not _is_number(bound, whole)]:
        return [f"bound {shown(bound)} is no {number} {given}" for bound in wrong]
    low, high = bounds
    if low > high:
        return [f"bounds are swapped {given}; write [{high}, {low}]"]
    if kind in ("log", "log_int") and low <= 0:
        return [f"lower bound is not above 0 {given}; orders of magnitude begin above 0"]
    step = raw.get("step", 1)
    if kind == "int" and _is_step(step) and (rest := (high - low) % step):
        return [
            f"steps of {step} from {low} miss {high}; use {high - rest} or {high - rest + step}"
        ]
    return []


def _choice_problems(choices: Any) -> list[str]:
    if not isinstance(choices, list) or not choices:
        return [f"no choices ({shown(choices)}); list at least one value"]
    if nested := [value for value in choices if isinstance(value, list | Mapping)]:
        return [f"choice {shown(value)} is no single value" for value in nested]
    repeated = {
        shown(value): None
        for place, value in enumerate(choices)
        if any(same(value, earlier) for earlier in choices[:place])
    }
    return [f"choice {value} is listed twice; list each once" for value in repeated]


def _step_problems(kind: str, raw: Mapping[str, Any]) -> list[str]:
    if "step" not in raw:
        return []
    if kind != "int":
        return [f"step goes with int, not with {kind}"]
    if not _is_step(raw["step"]):
        return [f"step: not allowed ({shown(raw['step'])}); use a whole number from 1 up"]
    return []


def _when_problems(raw: Mapping[str, Any]) -> list[str]:
    when = raw.get("when", {})
    if not isinstance(when, Mapping):
        return [f"when: not allowed ({shown(when)}); write {{other.key: value}}"]
    nested = [key for key, value in when.items() if isinstance(value, list | Mapping)]
    return [f"when: {shown(key)} needs a single value ({shown(when[key])})" for key in nested]


def _is_number(value: Any, whole: bool) -> bool:
    if isinstance(value, bool):
        return False
    if whole:
        return isinstance(value, int)
    return isinstance(value, int | float) and abs(value) <= float_info.max


def _is_step(value: Any) -> bool:
    return _is_number(value, whole=True) and value >= 1


def same(one: Any, other: Any) -> bool:
    """Whether two values are one: 1 and 1.0 are, 1 and true are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
