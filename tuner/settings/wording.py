"""How values and what a key allows are told to a person, in errors and in ``--help``."""

import shlex
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

LONGEST_SHOWN = 80


def shown(value: Any) -> str:
    """One printable line for any value, cut where it is long: ``null``, ``true``, ``0.1``."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case str():
            text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in value) or "''"
        case _:
            text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def shown_path(path: Path) -> str:
    """A path as a person would type it here."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def allowed(field: FieldInfo) -> str:
    """What a settings field takes, in words: ``a number above 0 or auto``."""
    return _phrase(field.annotation, field.metadata)


def is_text(field: FieldInfo) -> bool:
    """Whether a field takes free text, so that ``key=123`` on the command line means the text."""
    return str in (field.annotation, *map(_bare, get_args(field.annotation)))


def listed(values: tuple[Any, ...]) -> str:
    """The values as a person lists them: ``a, b or c``."""
    *first, last = map(shown, values)
    return f"{', '.join(first)} or {last}" if first else last


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _phrase(annotation: Any, metadata: list[Any]) -> str:
    if annotation is bool:
        return "true or false"
    if annotation is str:
        return "text"
    if annotation is int:
        return f"a whole number{_bounds(metadata)}"
    if annotation is float:
        return f"a number{_bounds(metadata)}"
    if annotation is type(None):
        return "null"
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return listed(args)
    if origin is Annotated:
        return _phrase(args[0], list(args[1:]))
    assert origin in (Union, UnionType), annotation
    return " or ".join(_phrase(arg, []) for arg in args)


def _bounds(metadata: list[Any]) -> str:
    words = []
    for bound in metadata:
        match bound:
            case Gt(gt=low):
                words.append(f"above {low}")
            case Ge(ge=low):
                words.append(f"from {low}")
            case Lt(lt=high):
                words.append(f"and below {high}" if words else f"below {high}")
            case Le(le=high):
                words.append(f"to {high}")
    if len(words) == 1 and words[0].startswith("from"):
        words.append("up")
    return "".join(f" {word}" for word in words)
