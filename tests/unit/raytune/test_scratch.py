"""A session's files lie in the run's folder, are its user's alone, and go with it."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner.errors import ResourceError
from tuner.raytune import scratch as module
from tuner.raytune.scratch import LONGEST_SOCKET_BYTES, RAY_SOCKET_BYTES, scratch

WAITS = [sys.executable, "-c", "input()"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_all_of_it_lies_in_the_runs_folder_and_goes(hostile_tmp_path: Path) -> None:
    run = hostile_tmp_path / ("long" * 40) / "run"
    run.mkdir(parents=True)
    with scratch(run) as found:
        folder = next(run.glob(".ray-*"))
        assert found.ray_folder.resolve() == folder / "ray"
        assert len(os.fsencode(found.ray_folder)) <= LONGEST_SOCKET_BYTES - RAY_SOCKET_BYTES
        assert len(found.token_path.read_text()) == 64
        assert {each.parent for each in (found.token_path, found.beats_folder)} == {folder}
        assert mode(found.token_path) == 0o600
        assert mode(folder) == mode(found.ray_folder.parent) == 0o700
    assert not list(run.iterdir())
    assert not found.ray_folder.parent.exists()


def test_where_the_folder_takes_no_socket_ray_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: socket.socket, path: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("socket.socket.bind", refuse)
    with scratch(tmp_path) as found:
        assert found.ray_folder.is_dir()
        assert not found.ray_folder.is_symlink()
    assert not found.ray_folder.parent.exists()


def test_what_a_dead_session_left_goes_and_nothing_else(tmp_path: Path) -> None:
    left = tmp_path / "run" / ".ray-1"
    left.mkdir(parents=True)
    (left / "auth_token").touch()
    others = tmp_path / "another run"
    others.mkdir()
    short_folder = module.make_short_folder()
    (short_folder / "ray").symlink_to(left / "ray")
    (left / "short_name").write_text(str(short_folder))
    started = [
        subprocess.Popen(
            WAITS,
            stdin=subprocess.PIPE,
            env={"RAY_AUTH_TOKEN_PATH": f"{folder}/.ray-1/auth_token"},
        )
        for folder in (left.parent, others)
    ]
    ours, another = started
    with scratch(left.parent):
        assert ours.wait(10) == -9
        assert another.poll() is None
        assert not short_folder.exists()
        assert not left.exists()
    another.kill()
    for each in started:
        each.communicate()


def test_what_a_copied_run_names_of_the_other_s_session_stays(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    run.mkdir()
    with scratch(run) as found:
        shutil.copytree(run, copy, symlinks=True)
        with scratch(copy):
            assert len(list(copy.iterdir())) == 1
            assert found.ray_folder.exists()


def test_a_reaper_that_is_late_leaves_the_next_session_alone(tmp_path: Path) -> None:
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            with scratch(tmp_path):
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
    with scratch(tmp_path) as found:
        deadline = time.monotonic() + 15
        while len(list(tmp_path.iterdir())) > 1:
            assert time.monotonic() < deadline
        assert found.token_path.exists()


@pytest.mark.parametrize("temporary", ["/nowhere", "/tmp/" + "long" * 30])
def test_a_temporary_folder_that_cannot_be_used_is_passed_over(
    temporary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", temporary)
    with scratch(tmp_path) as found:
        assert found.ray_folder.parent.parent == Path("/tmp")


def test_no_place_for_sockets_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(prefix: str, dir: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("TMPDIR", "/scratch")
    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(ResourceError) as caught, scratch(tmp_path):
        pass

    assert str(caught.value) == (
        "TMPDIR: no place for Ray's sockets (/scratch, /tmp, /var/tmp); set it to a folder that "
        "can be written, with a path of at most 16 bytes"
    )
    assert not list(tmp_path.iterdir())
