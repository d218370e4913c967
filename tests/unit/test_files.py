"""Files are whole or not there, and a folder belongs to one run at a time."""

import os
from pathlib import Path

import pytest

from tuner.errors import RunError, StudyError
from tuner.files import hold_folder, replacing, write_json, write_text


def test_an_error_before_the_end_leaves_the_old_file(hostile_tmp_path: Path) -> None:
    path = hostile_tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), replacing(path) as temporary:
        write_half(temporary)
    assert path.read_text() == "old"
    assert list(hostile_tmp_path.iterdir()) == [path]


def write_half(path: Path) -> None:
    path.write_text("half")
    raise OSError("full")


def test_json_without_a_token_that_json_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "x.json", {"score": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with hold_folder(folder), pytest.raises(StudyError) as caught, hold_folder(folder):
        pass
    assert caught.value.problems == (
        f"{folder}: another run is there (pid {os.getpid()}); "
        "wait for it, or use another name=… or output=…",
    )
    with hold_folder(folder):
        assert folder.is_dir()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "run"
    with pytest.raises(StudyError) as caught, hold_folder(folder):
        pass
    assert caught.value.problems == (
        f"{folder}: cannot be written (Not a directory); use another output=…",
    )


def test_a_start_that_wrote_nothing_leaves_no_folder(tmp_path: Path) -> None:
    with hold_folder(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []
    with hold_folder(tmp_path / "run"):
        (tmp_path / "run" / "best.yaml").touch()
    assert (tmp_path / "run" / "best.yaml").exists()


def test_a_full_disk_is_told_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    (tmp_path / f".file.txt.{os.getpid()}.tmp").symlink_to("/dev/full")
    with pytest.raises(RunError) as caught:
        write_text(path, "new")
    assert caught.value.problems == (
        f"{path}: cannot be written (No space left on device); make room or use another output=…",
    )
    assert path.read_text() == "old"
