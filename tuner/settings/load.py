"""Reads a search space: a YAML file of settings and specs, and the command line over it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nextafter
from pathlib import Path
from typing import Any

from tuner.errors import SettingsError, did_you_mean
from tuner.settings.checks import Problem, unknown_key, unused_by_source
from tuner.settings.config import Config, find_problems, find_wrong_values, known_fields
from tuner.settings.samplers import find_sampler_problems
from tuner.settings.space import (
    ChoiceSpec,
    FloatSpec,
    ParameterSpec,
    edge_values,
    find_condition_problems,
    parse_spec,
    with_fixed,
)
from tuner.settings.text import read_overrides, read_yaml
from tuner.settings.wording import allowed, listed, shown

PACKAGE = Path(__file__).parents[1]
SEARCHED = ("parameters", "throughput")
SPEED_KEYS = ("loader.num_workers", "loader.prefetch_factor", "train.accumulate_steps")
SAME_FOR_ALL = (
    "data.",
    "search.",
    "resources.",
    "train.epochs",
    "train.report_epochs",
    "train.seed",
)
PATH_KEYS = (
    *("data.root", "data.test_root", "data.cache_root", "data.mining_labels"),
    *("model.weights", "search.points"),
)


@dataclass(frozen=True, slots=True)
class Space:
    """Settings, and what of them is searched: on the metric, and on images per second."""

    name: str
    config: Config
    parameters: dict[str, ParameterSpec]
    throughput: dict[str, ParameterSpec]
    notes: tuple[str, ...]


def load_space(name_or_path: str, overrides: Sequence[str]) -> Space:
    """The space of that name or file with the command line's ``key=value`` texts over it.

    An override of a searched key fixes it. ``parameters.optim.lr={log: [1e-3, 1]}`` searches a
    key and ``parameters.optim.lr=null`` stops searching it; the same goes for ``throughput``.
    Where another `data.source` is asked for, what only the file's has a use for is set aside.

    Raises:
        SettingsError: One line for each mistake in the file and on the command line.
    """
    try:
        path = find_space(name_or_path)
        written = read_yaml(path)
    except SettingsError as error:
        raise SettingsError(*error.problems, *check_overrides(overrides)) from None
    in_file, problems = _flat(written)
    asked, unread = read_overrides(overrides)
    given, notes = _with_asked(in_file, asked)
    settings = _settings_in(given)
    parameters = _read_section("parameters", given, asked)
    throughput = _read_section("throughput", given, asked)
    problems += parameters.problems + throughput.problems
    problems += [
        Problem(
            (f"parameters.{key}", f"throughput.{key}"),
            f"{key}: in both parameters and throughput; remove one, throughput.{key}=null",
        )
        for key in parameters.specs
        if key in throughput.specs
    ]
    specs = parameters.specs | throughput.specs
    problems += find_problems(settings, {key: edge_values(spec) for key, spec in specs.items()})
    sampler = settings.get("search.sampler", Config().search.sampler)
    problems += find_sampler_problems(sampler, parameters.specs)
    _refuse(problems, unread, path, asked)
    config = Config().with_overrides(settings)
    notes += parameters.notes + throughput.notes
    return Space(path.stem, config, parameters.specs, throughput.specs, tuple(notes))


def load_settings(written: Mapping[str, Any], path: Path, overrides: Sequence[str]) -> Config:
    """The settings in a file's sections with the command line's ``key=value`` texts over them.

    Args:
        written: Values by section and name, as the file holds them.
        path: The file, for messages.
        overrides: What the command line asks for.

    Raises:
        SettingsError: One line for each mistake in the file and on the command line.
    """
    in_file, problems = _flat(written)
    asked, unread = read_overrides(overrides)
    settings = with_absolute_paths(_with_asked(in_file, asked)[0])
    problems += find_problems(settings)
    _refuse(problems, unread, path, asked)
    return Config().with_overrides(settings)


def check_overrides(overrides: Sequence[str]) -> list[str]:
    """A line for each mistake that shows in ``key=value`` texts alone."""
    asked, unread = read_overrides(overrides)
    return [*unread, *(problem.line for problem in find_wrong_values(_settings_in(asked)))]


def find_space(name_or_path: str) -> Path:
    """The space file of that name, from ``./search_spaces`` or the package, or at that path.

    Raises:
        SettingsError: With the names there are, where it is neither.
    """
    if name_or_path.endswith((".yaml", ".yml")):
        return Path(name_or_path)
    shipped = PACKAGE / "search_spaces"
    folders = (shipped if shipped.is_dir() else PACKAGE.parent / shipped.name, Path(shipped.name))
    files = {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}
    if name_or_path not in files:
        raise SettingsError(
            f"space: no such search space ({shown(name_or_path)}); use "
            f"{listed((*sorted(files), 'the path of a .yaml file'))}"
            f"{did_you_mean(name_or_path, files)}"
        )
    return files[name_or_path]


@dataclass(frozen=True, slots=True)
class _Section:
    specs: dict[str, ParameterSpec]
    notes: list[str]
    problems: list[Problem]


def _read_section(section: str, given: Mapping[str, Any], asked: Mapping[str, Any]) -> _Section:
    specs: dict[str, ParameterSpec] = {}
    fixed: dict[str, Any] = {}
    notes: list[str] = []
    problems: list[Problem] = []
    for name, raw in given.items():
        key = name.removeprefix(f"{section}.")
        if key == name:
            continue
        if key not in known_fields():
            problems.append(Problem((name,), f"{section}.{unknown_key(key, known_fields())}"))
        elif raw is None:
            fixed[key] = given.get(key, known_fields()[key].default)
        elif key not in asked:
            try:
                specs[key] = _read_spec(section, key, raw)
            except SettingsError as error:
                problems += [Problem((name,), line) for line in error.problems]
        elif name not in asked:
            fixed[key] = asked[key]
            value = shown(asked[key])
            notes.append(f"{key}: fixed at {value} by the command line, not searched")
        else:
            problems.append(Problem((name,), f"{key}: both fixed and searched; give one of them"))
    kept = with_fixed(specs, fixed)
    ruled_out = [key for key in specs if key not in kept]
    notes += [f"{key}: not searched, its condition is ruled out" for key in ruled_out]
    if not problems:
        problems = [
            Problem((f"{section}.{key}",), f"{section}.{key}: {line}")
            for key, line in find_condition_problems(kept).items()
        ]
    return _Section(kept, notes, problems)


def _read_spec(section: str, key: str, raw: Any) -> ParameterSpec:
    if key.startswith(SAME_FOR_ALL):
        raise SettingsError(f"{section}.{key}: cannot be searched; trials must stay comparable")
    if section == "throughput" and key not in SPEED_KEYS:
        raise SettingsError(
            f"throughput.{key}: changes more than the speed; search it under parameters, "
            f"or use {listed(SPEED_KEYS)}"
        )
    spec = parse_spec(f"{section}.{key}", raw)
    wrong = [find_wrong_values({key: value}) for value in edge_values(spec)]
    if any(wrong):
        raise SettingsError(*(f"{section}.{each.line}" for problems in wrong for each in problems))
    # Values of a range are not all valid where its end is allowed for itself alone: 0 is "off".
    if isinstance(spec, FloatSpec) and find_wrong_values({key: nextafter(spec.low, inf)}):
        raise SettingsError(
            f"{section}.{key}: not all values from {shown(spec.low)} to {shown(spec.high)} are "
            f"allowed; use {allowed(known_fields()[key])}, or choices of these"
        )
    if key in PATH_KEYS and isinstance(spec, ChoiceSpec):
        return replace(spec, choices=tuple(map(_absolute, spec.choices)))
    return spec


def _flat(written: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    values: dict[str, Any] = {}
    problems = []
    for section, keys in written.items():
        if section not in Config.model_fields and section not in SEARCHED:
            near = did_you_mean(str(section), (*Config.model_fields, *SEARCHED))
            problems.append(Problem((), f"{shown(section)}: no such section{near}"))
        elif isinstance(keys, Mapping):
            values |= {f"{section}.{key}": value for key, value in keys.items()}
        elif keys is not None:
            line = f"{section}: not a section ({shown(keys)}); write name: value lines under it"
            problems.append(Problem((), line))
    return values, problems


def _with_asked(
    in_file: Mapping[str, Any], asked: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The file's values with those asked for over them, and a note on what is set aside."""
    if "data.source" not in asked:
        return {**in_file, **asked}, []
    source = asked["data.source"]
    unused = unused_by_source(in_file, source)
    kept = {key: value for key, value in in_file.items() if key not in unused}
    words = [f"{key}={shown(value)}" for key, value in unused.items() if key not in asked]
    line = f"{', '.join(words)}: set aside, not used by data.source={shown(source)}"
    return {**kept, **asked}, [line] if words else []


def _settings_in(given: Mapping[str, Any]) -> dict[str, Any]:
    names = (name for name in given if name.split(".")[0] not in SEARCHED)
    return with_absolute_paths({name: given[name] for name in names})


def with_absolute_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings whose paths mean the same in every folder: trials run in folders of Ray's own."""
    return {key: _absolute(value) if key in PATH_KEYS else value for key, value in values.items()}


def _absolute(value: Any) -> Any:
    is_path = isinstance(value, str) and value
    return os.path.abspath(os.path.expanduser(value)) if is_path else value


def _refuse(
    problems: Sequence[Problem], unread: Sequence[str], path: Path, asked: Mapping[str, Any]
) -> None:
    """Raises the mistakes, if any; those that stand in the file begin with its path."""
    keys_asked = asked.keys() | {
        name.split(".", 1)[-1] for name in asked if name.startswith(SEARCHED)
    }
    lines = [
        problem.line if keys_asked & set(problem.keys) else f"{path}: {problem.line}"
        for problem in problems
    ]
    if lines or unread:
        raise SettingsError(*lines, *unread)
