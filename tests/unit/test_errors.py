"""An error keeps its problems apart, knows its exit code and survives a trip between processes."""

import pickle

import pytest

from tuner.errors import (
    CheckpointError,
    DataError,
    ResourceError,
    RunError,
    SettingsError,
    StoppedError,
    StudyError,
    TunerError,
    did_you_mean,
)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (SettingsError, 2),
        (DataError, 2),
        (ResourceError, 2),
        (StudyError, 2),
        (CheckpointError, 1),
        (RunError, 1),
        (StoppedError, 1),
    ],
)
def test_mistakes_exit_with_2_and_failed_runs_with_1(kind: type[TunerError], code: int) -> None:
    assert kind.exit_code == code


def test_problems_are_kept_apart_and_printed_a_line_each() -> None:
    error = DataError("a: wrong", "b: wrong")
    assert (error.problems, str(error)) == (("a: wrong", "b: wrong"), "a: wrong\nb: wrong")


def test_an_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(StudyError("a: wrong", "b: wrong")))
    assert (type(error), error.problems) == (StudyError, ("a: wrong", "b: wrong"))


def test_the_nearest_name_is_suggested_where_one_is_near() -> None:
    assert did_you_mean("resnet9", ["resnet8", "lenet"]) == "; did you mean resnet8?"
    assert did_you_mean("zzz", ["resnet8", "lenet"]) == ""
