"""A model of the user's own: ``package.module:function``, imported and called with the class count.

Modules are found as Python finds them, in the working directory too, however Python was started.
"""

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tuner.errors import SettingsError, did_you_mean

INSTALLED = ("site-packages", "dist-packages")
OURS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class ModelCode:
    """Where the code of a user's model lies.

    Attributes:
        folder: Python has to look there for the module; None where it is installed.
        file: Of the module, with its path below that folder.
        sha256: Of that file's bytes; what it imports is not in it.
    """

    folder: str | None
    file: str
    sha256: str


def is_own(name: str) -> bool:
    """Say whether a model's name means a function of the user's own."""
    return ":" in name


def build_own(name: str, num_classes: int) -> nn.Module:
    """Return what the function of that name returns for so many classes.

    It gets them by name, as `num_classes`, where it takes that name; else as its one argument.

    Raises:
        SettingsError: There is no such function, it raises, or it returns no `nn.Module`.
    """
    function = load_function(name)
    arguments, keywords = _call_with(name, function, num_classes)
    try:
        model = function(*arguments, **keywords)
    except (Exception, SystemExit) as error:
        raise SettingsError(f"model.name: {name}: raised {told(error)}; mend that") from error
    if not isinstance(model, nn.Module):
        raise SettingsError(
            f"model.name: {name}: returned no model ({type(model).__name__}); "
            "return a torch.nn.Module"
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise SettingsError(
            f"model.name: {name}: returned a TorchScript model, whose layers cannot be exchanged; "
            "return the plain torch.nn.Module"
        )
    return model


def load_function(name: str) -> Callable[..., Any]:
    """Return the function of that name, its module imported.

    Raises:
        SettingsError: No such module or function, or the import fails.
    """
    module_name, _, function_name = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), function_name)):
        raise SettingsError(
            f"model.name: not a function's name ({name}); write package.module:function"
        )
    module = _import_module(name, module_name)
    known = {key: value for key, value in vars(module).items() if callable(value)}
    if function_name not in vars(module):
        raise SettingsError(
            f"model.name: {name}: no such function in {_shown(getattr(module, '__file__', None))}"
            f"{did_you_mean(function_name, known) or '; name one that is there'}"
        )
    if function_name not in known:
        kind = type(vars(module)[function_name]).__name__
        raise SettingsError(
            f"model.name: {name}: is no function ({kind}); "
            "name one that takes the class count and returns a torch.nn.Module"
        )
    function: Callable[..., Any] = known[function_name]
    return function


def find_code(name: str) -> ModelCode | None:
    """Return where the code of a user's model lies; None where it is in no file.

    Raises:
        SettingsError: As `load_function` does.
    """
    load_function(name)
    module_name = name.partition(":")[0]
    file = sys.modules[module_name].__file__
    if file is None:
        return None
    path = Path(file)
    num_levels = module_name.count(".") + (path.stem == "__init__")
    folder = path.parents[num_levels]
    is_installed = bool(set(INSTALLED) & set(folder.parts))
    return ModelCode(
        folder=None if is_installed else str(folder),
        file=str(path.relative_to(folder)),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "",
    )


def look_in(folder: str, name: str) -> None:
    """Let Python find a user's model in this folder first, where it was before.

    Raises:
        SettingsError: It is neither there nor anywhere else.
    """
    top = name.partition(":")[0].partition(".")[0]
    importlib.invalidate_caches()
    if PathFinder.find_spec(top, [folder]) is not None:
        if folder not in sys.path:
            sys.path.insert(0, folder)
        return
    _look_here()
    if importlib.util.find_spec(top) is None:
        raise SettingsError(
            f"model.name: {name}: its module is gone from {folder}; "
            "put it back there, or start in the folder that holds it now"
        )


def told(error: BaseException) -> str:
    """Return an error in one line: its kind, what it says, and the innermost line of user's code.

    Lines of Python itself, of torch and of other installed packages are passed over.
    """
    text = (str(error).splitlines() or [""])[0]
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{kind}: {error.msg} ({_shown(error.filename)} line {error.lineno})"
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [frame for frame in frames if _is_users(frame[0])]
    where = f" ({_shown(own[-1][0])} line {own[-1][1]})" if own else ""
    return f"{kind}: {text}{where}" if text else f"{kind}{where}"


def _import_module(name: str, module_name: str) -> Any:
    _look_here()
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a script without a guard may end by sys.exit
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module_name}.".startswith(f"{missing}."):
            near = did_you_mean(module_name, [path.stem for path in Path.cwd().glob("*.py")])
            what_to_do = near or "; start in the folder that holds it, or install it"
            raise SettingsError(
                f"model.name: {name}: no module {missing} in {Path.cwd()} or among the installed "
                f"packages{what_to_do}"
            ) from error
        raise SettingsError(
            f"model.name: {name}: {module_name} cannot be imported, {told(error)}; mend that"
        ) from error


def _look_here() -> None:
    """Let Python find modules in the working directory, last: `python -P` and Ray do not."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
        importlib.invalidate_caches()


def _call_with(
    name: str, function: Callable[..., Any], num_classes: int
) -> tuple[tuple[int, ...], dict[str, int]]:
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a builtin or an extension
        return (num_classes,), {}
    problem = ""
    for arguments, keywords in (((), {"num_classes": num_classes}), ((num_classes,), {})):
        try:
            signature.bind(*arguments, **keywords)
            return arguments, keywords
        except TypeError as error:
            problem = str(error)
    raise SettingsError(
        f"model.name: {name}: cannot be called with the class count alone ({problem}); "
        "let it take num_classes, and give all else a default"
    )


def _is_users(file: str) -> bool:
    path = Path(file)
    if file.startswith("<") or path.is_relative_to(OURS):
        return False
    if set(INSTALLED) & set(path.parts):
        return False
    return not path.is_relative_to(sysconfig.get_path("stdlib"))


def _shown(file: str | None) -> str:
    if file is None:
        return "it"
    here = Path.cwd()
    return str(Path(file).relative_to(here) if Path(file).is_relative_to(here) else file)
