"""Reads settings from text: YAML files and ``key=value`` arguments, both by YAML 1.2's rules."""

import io
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tuner.errors import SettingsError
from tuner.settings.config import known_fields
from tuner.settings.wording import is_text, shown


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping a YAML 1.2 file holds; an empty file holds none.

    Raises:
        SettingsError: With file and line, where it is unreadable, no YAML, or gives a key twice.
    """
    text = read_text_file(path)
    with _telling_where(path):
        content = _parse(text)
    if content is not None and not isinstance(content, dict):
        raise SettingsError(f"{path}: not a mapping ({shown(content)}); write key: value lines")
    return content or {}


def read_yaml_list(path: Path, how_to_write: str) -> list[tuple[int, Any]]:
    """The items that a YAML 1.2 or JSON file lists, with their lines; an empty file has none.

    Raises:
        SettingsError: As for `read_yaml`, and where it holds no list; `how_to_write` is for people.
    """
    text = read_text_file(path)
    with _telling_where(path):
        content = _parse(text)
        node = YAML(typ="safe", pure=True).compose(text)
    if content is None:
        return []
    if not isinstance(content, list):
        raise SettingsError(f"{path}: not a list ({shown(content)}); {how_to_write}")
    lines = [item.start_mark.line + 1 for item in node.value]
    return list(zip(lines, content, strict=True))


def read_text_file(path: Path) -> str:
    """What a UTF-8 file holds, without a mark of its byte order.

    Raises:
        SettingsError: It cannot be read, or is none.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 text (byte {error.start})") from None


@contextmanager
def _telling_where(path: Path) -> Iterator[None]:
    try:
        yield
    except MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SettingsError(f"{path}{line}: {error.problem}") from None
    except YAMLError as error:
        raise SettingsError(f"{path}: not a YAML file ({shown(str(error))})") from None


def read_overrides(arguments: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """The values by key of ``key=value`` arguments, and a line for each that cannot be read."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for argument in arguments:
        key, equals, text = argument.partition("=")
        try:
            if not equals or not key:
                raise SettingsError(f"{shown(argument)}: not a setting; write key=value")
            values[key] = read_value(key, text, known_fields().get(key))
        except SettingsError as error:
            problems += error.problems
    return values, problems


def read_value(key: str, text: str, field: FieldInfo | None) -> Any:
    """The value an argument's text stands for, by YAML's rules or as it is for a text field.

    Raises:
        SettingsError: Where the text is empty or no YAML.
    """
    if not text:
        raise SettingsError(f"{shown(key)}: no value given; write {shown(key)}=VALUE")
    if field and is_text(field):
        return _read_text(text)
    try:
        return _parse(text)
    except YAMLError:
        raise SettingsError(
            f"{shown(key)}: cannot be read as a value ({shown(text)}); "
            "write YAML, with a space behind each colon"
        ) from None


def _parse(text: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        raise
    except Exception as error:  # whatever its constructors meet in 2001-99-99, or behind !!int
        raise YAMLError(str(error)) from error


def _read_text(text: str) -> str | None:
    if text == "null":
        return None
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except json.JSONDecodeError:
            return text
    return text


def yaml_text(value: Any) -> str:
    """Plain values as YAML that `read_yaml` reads back equal, keys in their order."""
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.width = 10**6  # one line for each value
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    stream = io.StringIO()
    writer.dump(value, stream)
    return stream.getvalue()
