"""The errors a person can cause or can do something about, and their exit codes.

TunerError                 exit code
├── SettingsError          2   a key, a value or a space file
├── DataError              2   the images and their folders
├── ResourceError          2   the machine cannot give what is asked
├── StudyError             2   a study on disk does not fit, or is in use
├── CheckpointError        1   a checkpoint cannot be written or read
└── RunError               1   the run ended without a usable result
    └── StoppedError       1   it ended before it was done; the same command goes on
"""

import sys
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from typing import ClassVar


class TunerError(Exception):
    """One or more problems, each told in one line that says where, what and what is allowed.

    Args:
        *problems: One line each: ``where: what is wrong (value); what is allowed``.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


class SettingsError(TunerError):
    """A mistake in a key, a value or a space file."""


class DataError(TunerError):
    """A mistake in the images, their names or their folders."""


class ResourceError(TunerError):
    """The machine cannot give what is asked of it."""


class StudyError(TunerError):
    """A study on disk does not fit the settings, or another search holds it."""


class CheckpointError(TunerError):
    """A checkpoint or another result cannot be written or read."""

    exit_code = 1


class RunError(TunerError):
    """The run ended without a usable result."""

    exit_code = 1


class StoppedError(RunError):
    """The run ended before it was done and nothing is lost; the same command goes on."""


def say_error(*lines: str) -> None:
    """Writes lines to stderr, or nowhere: a reader that is gone spoils no exit code."""
    with suppress(OSError):
        sys.stderr.writelines(f"{line}\n" for line in lines)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` for the known name nearest to `name`, or nothing where none is near."""
    nearest = get_close_matches(name, list(known), n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""
