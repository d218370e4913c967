"""Runs a command: arguments to settings, help from the models, an error to a line and an exit code.

A command declares the keys of its own as a `Keys` model and hands over its `main`:

    class ReportKeys(Keys):
        '''Rebuilds the report of a run.'''

        run: Text = Field(description="folder of the run")

    def main(keys: ReportKeys, overrides: list[str]) -> None: ...  # imports what is heavy

    if __name__ == "__main__":
        sys.exit(cli.run("report", ReportKeys, main))
"""

import inspect
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from tuner.errors import SettingsError, StoppedError, TunerError, say_error
from tuner.files import stopping_for_disk
from tuner.settings.checks import unknown_key, wrong_value
from tuner.settings.config import Config, known_fields
from tuner.settings.load import Space, check_overrides
from tuner.settings.sections import Text
from tuner.settings.text import read_value
from tuner.settings.wording import allowed, shown

HELP_COLUMNS = 100
LONGEST_NAME_BYTES = 100


class Keys(BaseModel):
    """The keys of one command, such as ``space`` and ``output``; its docstring heads the help."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    takes_settings: ClassVar[bool] = True  # whether ``section.key=value`` means something to it


KeysType = TypeVar("KeysType", bound=Keys)


def _run_name(name: str) -> str:
    too_long = len(name.encode()) > LONGEST_NAME_BYTES
    if too_long or not name.strip() or name.startswith(".") or "/" in name:
        raise ValueError(
            f"not allowed ({shown(name)}); use one folder name, not hidden, "
            f"of at most {LONGEST_NAME_BYTES} bytes"
        )
    return name


RunName = Annotated[Text, AfterValidator(_run_name)]


def run(
    command: str,
    keys: type[KeysType],
    main: Callable[[KeysType, list[str]], int | None],
    argv: Sequence[str] | None = None,
) -> int:
    """The exit code of a command: 0 done, a `TunerError`'s own, 1 disk full, 130 interrupted.

    SIGTERM and SIGHUP unwind `main` as an exit with 143 and 129, unless they were ignored before.

    Args:
        command: Its name, as in ``python -m tuner.<command>``.
        keys: The command's own keys.
        main: Does the work, given its keys and the ``key=value`` texts for the settings.
        argv: The arguments; those of the process by default.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(help_text(command, keys))
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        with stopping_for_disk(Path.cwd()):
            return main(*parse_arguments(arguments, keys)) or 0
    except TunerError as error:
        what_now = "; the same command goes on" if isinstance(error, StoppedError) else ""
        say_error(*(f"error: {problem}{what_now}" for problem in error.problems))
        return error.exit_code
    except KeyboardInterrupt:
        say_error("interrupted")
        return 128 + signal.SIGINT


def parse_arguments(arguments: Sequence[str], keys: type[KeysType]) -> tuple[KeysType, list[str]]:
    """The command's own keys, and the arguments that are settings (their key has a dot).

    Raises:
        SettingsError: One line for each mistake, those in the settings among them.
    """
    own: dict[str, str] = {}
    overrides: list[str] = []
    problems: list[str] = []
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if argument.startswith("-"):
            problems.append(f"{shown(argument)}: no such option; write settings as key=value")
        elif name in keys.model_fields and equals:
            own[name] = text
        elif not keys.takes_settings:
            problems.append(unknown_key(name, keys.model_fields))
        elif "." in name or not equals:
            overrides.append(argument)
        else:
            problems.append(unknown_key(name, (*keys.model_fields, *known_fields())))
    try:
        values = _read_keys(own, keys)
    except SettingsError as error:
        problems += error.problems
    if problems:
        raise SettingsError(*problems, *check_overrides(overrides))
    return values, overrides


def _read_keys(texts: Mapping[str, str], keys: type[KeysType]) -> KeysType:
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, text in texts.items():
        try:
            values[name] = read_value(name, text, keys.model_fields[name])
        except SettingsError as error:
            problems[name] = str(error)
    try:
        read = keys.model_validate(values)
    except ValidationError as error:
        for each in error.errors():
            name = str(each["loc"][0])
            if each["type"] == "missing":
                problems.setdefault(name, f"{name}: missing; add {name}=VALUE")
            elif each["type"] == "value_error":
                problems[name] = f"{name}: {each['ctx']['error']}"
            else:
                problems[name] = wrong_value(name, keys.model_fields[name], values[name])
    if problems:
        raise SettingsError(*problems.values())
    return read


def default_run_name(space: Space, overrides: Iterable[str]) -> str:
    """The space's name, with ``-<folder>`` behind it where the command line chose the images.

    A set of torchvision goes by its own name: several may lie in one folder.
    """
    chosen = {override.partition("=")[0] for override in overrides}
    data = space.config.data
    images = data.dataset or Path(data.root or "").name
    is_chosen = chosen & {"data.source", "data.root", "data.dataset"}
    name = f"{space.name}-{images}" if images and is_chosen else space.name
    return name.encode("utf-8", "ignore")[:LONGEST_NAME_BYTES].decode("utf-8", "ignore")


def help_text(command: str, keys: type[Keys]) -> str:
    """What ``--help`` prints: every key with its default, unit and what it takes."""
    parts = [
        f"usage: python -m tuner.{command} key=value …",
        inspect.cleandoc(keys.__doc__ or ""),
        _table(keys.model_fields),
    ]
    if not keys.takes_settings:
        return "\n\n".join(parts) + "\n"
    parts.append("Settings. A space file sets any of them; the command line goes before it.")
    for section, holder in Config.model_fields.items():
        model = type(holder.default)
        fields = {f"{section}.{name}": field for name, field in model.model_fields.items()}
        parts.append(f"{section}: {model.__doc__}\n{_table(fields)}")
    return "\n\n".join(parts) + "\n"


def _table(fields: Mapping[str, FieldInfo]) -> str:
    defaults = {
        name: "needed" if field.is_required() else shown(field.default)
        for name, field in fields.items()
    }
    key_columns = max(map(len, fields)) + 2
    default_columns = max(map(len, defaults.values())) + 2
    rows = []
    for name, field in fields.items():
        head = f"  {name:<{key_columns}}{defaults[name]:<{default_columns}}"
        text = f"{field.description} ({allowed(field)})"
        indent = " " * len(head)
        rows += textwrap.wrap(text, HELP_COLUMNS, initial_indent=head, subsequent_indent=indent)
    return "\n".join(rows)
