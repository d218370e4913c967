"""What the engine decides before Ray starts and after it ends."""

import os
from pathlib import Path

import pytest
from ray.exceptions import OutOfMemoryError
from ray.tune import TuneError

from tuner.errors import ResourceError
from tuner.planning.machine import Machine
from tuner.raytune.engine import cause_of, killed_for_memory, ray_session
from tuner.raytune.environment import environment

MACHINE = Machine(cpus=2, memory_bytes=2**33, shm_free_bytes=2**30, gpus=())


def test_the_address_of_another_ray_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6399")

    with pytest.raises(ResourceError) as caught, ray_session(MACHINE, tmp_path):
        pass

    assert str(caught.value) == (
        "RAY_ADDRESS: names a Ray cluster (127.0.0.1:6399), but a search starts its own Ray on "
        "this machine; unset RAY_ADDRESS"
    )


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("OMP_NUM_THREADS", "9")
    before = dict(os.environ)

    with environment(tmp_path):
        assert not {"OMP_NUM_THREADS", "RAY_AUTH_MODE"} & os.environ.keys()

    assert dict(os.environ) == before


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    """Return `error` as it looks when it was raised from `cause`."""
    error.__cause__ = cause
    return error


def test_the_processes_killed_for_memory_are_named() -> None:
    text = (
        "Caught unexpected exception: 2 worker(s) were killed\nConsidered workers: [\n"
        "Selected to kill: (Actor(ec): job ID=01, task name=train, pid=13421, used=1.32GB)\n"
        "Selected to kill: (Actor(ed): job ID=01, task name=train, pid=13423, used=1.30GB)\n"
        "(Actor(81): job ID=01, task name=train, pid=13422, used=1.08GB)\n]"
    )

    assert killed_for_memory(raised(RuntimeError(text), OutOfMemoryError(text))) == {13421, 13423}


def test_any_other_error_comes_as_it_was_raised() -> None:
    original = OSError(28, "No space left on device")
    wrapped = TuneError("Traceback ...")
    wrapped.__context__ = original

    assert killed_for_memory(wrapped) is None
    assert cause_of(wrapped) is original
