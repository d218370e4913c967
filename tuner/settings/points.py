"""A list of settings to try first: read from a file, every row checked against the space."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import SettingsError
from tuner.settings.checks import unknown_key
from tuner.settings.config import known_fields
from tuner.settings.load import with_absolute_paths
from tuner.settings.space import (
    ParameterSpec,
    as_taken,
    can_take,
    holds,
    parents_first,
    same,
    spec_to_plain,
)
from tuner.settings.text import read_text_file, read_value, read_yaml_list
from tuner.settings.wording import shown

SUFFIXES = (".csv", ".yaml", ".yml", ".json")
DELIMITERS = ",;\t"
HOW_TO_WRITE = "write - {optim.lr: 0.1} for each point"


@dataclass(frozen=True, slots=True)
class Row:
    """The settings of one point, by dotted key, and the file and line where they stand."""

    where: str
    settings: Mapping[str, Any]


def is_list(path: Path) -> bool:
    """Whether that is a list of points by its name, and not the folder of a search."""
    return path.suffix.lower() in SUFFIXES and not path.is_dir()


def load_points(
    path: Path, specs: Mapping[str, ParameterSpec], fixed: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The points in a file, each with those keys that are searched, the rest to be filled in.

    A YAML or JSON file holds a list of mappings by dotted key; a CSV file has such keys in its
    header, columns without a dot (of a leaderboard) are passed over. An empty cell, and a null that
    the range does not have, is no value.

    Args:
        path: The file.
        specs: What is searched.
        fixed: The value that each key has where it is not searched.

    Raises:
        SettingsError: A line for each mistake: the file's, and of every row a key that is unknown,
            is not searched, or has a value outside of the space.
    """
    rows = _read_csv(path) if path.suffix.lower() == ".csv" else _read_yaml(path)
    if not rows:
        raise SettingsError(f"{path}: no points; give one at least, or leave search.points out")
    problems = [line for row in rows for line in _problems(row, specs, fixed)]
    if problems:
        raise SettingsError(*problems)
    return [
        {key: as_taken(specs[key], value) for key, value in _given(row, specs).items()}
        for row in rows
    ]


def _given(row: Row, specs: Mapping[str, ParameterSpec]) -> dict[str, Any]:
    """Those values of a row that are searched."""
    settings = with_absolute_paths(row.settings)
    return {
        key: value
        for key, value in settings.items()
        if key in specs and (value is not None or can_take(specs[key], None))
    }


def _problems(row: Row, specs: Mapping[str, ParameterSpec], fixed: Mapping[str, Any]) -> list[str]:
    fields = known_fields()
    lines = [unknown_key(key, fields) for key in row.settings if key not in fields]
    for key, value in with_absolute_paths(row.settings).items():
        is_fixed = key in fields and key not in specs
        if is_fixed and value is not None and not same(value, fixed[key]):
            lines.append(
                f"{key}: not searched, all trials have {shown(fixed[key])} ({shown(value)}); "
                "remove it, or search it"
            )
    given = _given(row, specs)
    outside = [key for key, value in given.items() if not can_take(specs[key], value)]
    lines += [
        f"{key}: outside of the space ({shown(given[key])}); "
        f"use a value of {json.dumps(spec_to_plain(specs[key]))}"
        for key in outside
    ]
    if not outside:
        lines += _unsearched(given, specs, fixed)
    return [f"{row.where}: {line}" for line in lines]


def _unsearched(
    given: Mapping[str, Any], specs: Mapping[str, ParameterSpec], fixed: Mapping[str, Any]
) -> list[str]:
    """Lines for values of keys that are not searched beside the others, and have another then."""
    point: dict[str, Any] = {}
    lines = []
    for key, spec in parents_first(specs).items():
        if holds(spec.when, point):
            point[key] = given.get(key, fixed[key])
        elif key in given and not same(given[key], fixed[key]):
            when = " and ".join(f"{other} is {shown(value)}" for other, value in spec.when)
            lines.append(f"{key}: searched only where {when} ({shown(given[key])}); remove it")
    return lines


def _read_yaml(path: Path) -> list[Row]:
    rows, problems = [], []
    for line, settings in read_yaml_list(path, HOW_TO_WRITE):
        if isinstance(settings, dict):
            rows.append(Row(f"{path} line {line}", {str(key): settings[key] for key in settings}))
        else:
            problems.append(f"{path} line {line}: not a point ({shown(settings)}); {HOW_TO_WRITE}")
    if problems:
        raise SettingsError(*problems)
    return rows


def _read_csv(path: Path) -> list[Row]:
    text = read_text_file(path)
    first = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header = [cell.strip() for cell in next(reader, [])]
    _check_header(header, path)
    rows, problems = [], []
    for cells in reader:
        where = f"{path} line {reader.line_num}"
        if len(cells) not in (0, len(header)):
            problems.append(f"{where}: {len(cells)} cells where the header has {len(header)}")
        elif any(cells):
            try:
                rows.append(Row(where, _read_cells(header, cells)))
            except SettingsError as error:
                problems += [f"{where}: {line}" for line in error.problems]
    if problems:
        raise SettingsError(*problems)
    return rows


def _check_header(header: Sequence[str], path: Path) -> None:
    keys = [key for key in header if "." in key]
    if not keys:
        raise SettingsError(
            f"{path} line 1: no column is a setting ({shown(', '.join(header))}); "
            "head the columns with dotted keys, such as optim.lr"
        )
    if twice := [key for key in dict.fromkeys(keys) if keys.count(key) > 1]:
        raise SettingsError(*(f"{path} line 1: column {key} is there twice" for key in twice))


def _read_cells(header: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    fields = known_fields()
    return {
        key: read_value(key, cell.strip(), fields.get(key))
        for key, cell in zip(header, cells, strict=True)
        if "." in key and cell.strip()
    }
