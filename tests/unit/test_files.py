"""Files are whole or not there, and a folder belongs to one run at a time."""

import errno
import json
import os
import re
from pathlib import Path

import pytest

from tests.conftest import SmallDisk
from tuner.errors import StoppedError, StudyError
from tuner.files import (
    free_text,
    hold_folder,
    not_written,
    replacing,
    stopping_for_disk,
    write_json,
    write_json_rows,
    write_text,
)


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


def test_a_table_takes_a_line_for_each_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    value = {
        "a": {"b": [1, "ü", None], "none": {}, "c": [[1, 0], [0, 2]], "d": [{"e": [0.5]}, []]},
        "f": [],
    }
    write_json_rows(path, value)
    assert json.loads(path.read_text()) == value
    assert path.read_text().splitlines() == [
        "{",
        '  "a": {',
        '    "b": [1, "ü", null],',
        '    "none": {},',
        '    "c": [',
        "      [1, 0],",
        "      [0, 2]",
        "    ],",
        '    "d": [',
        "      {",
        '        "e": [0.5]',
        "      },",
        "      []",
        "    ]",
        "  },",
        '  "f": []',
        "}",
    ]
    with pytest.raises(ValueError, match="Out of range float"):
        write_json_rows(path, {"rows": [[0.0], [float("inf")]]})
    assert json.loads(path.read_text()) == value


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


def test_what_a_killed_run_left_half_written_goes_once_the_folder_is_held(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    left = ("best.yaml", ".best.yaml.4242.tmp", ".tmp", ".notes.tmp", "x.yaml.4242.tmp")
    places = ("run", "run/best", "run/retrain", "run/trials/0000", "other", "other/best")
    for place in places:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        for name in left:
            (tmp_path / place / name).touch()
    with hold_folder(folder):
        found = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.4242.tmp")]
    of_others = [f"{place}/{left[1]}" for place in places if place not in ("run", "run/best")]
    assert sorted(found) == sorted([*of_others, *(f"{place}/{left[4]}" for place in places)])
    assert {path.name for path in (folder / "best").iterdir()} == {*left} - {left[1]}


def test_what_is_written_in_a_folder_that_another_run_holds_stays(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with hold_folder(folder / "best"), replacing(folder / "best" / "x.json") as temporary:
        temporary.touch()
        with pytest.raises(StudyError), hold_folder(folder / "best"):
            pass
        with hold_folder(folder):
            assert temporary.exists()


def test_a_start_that_wrote_nothing_leaves_no_folder(tmp_path: Path) -> None:
    with hold_folder(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []
    with hold_folder(tmp_path / "run"):
        (tmp_path / "run" / "best.yaml").touch()
    assert (tmp_path / "run" / "best.yaml").exists()


def test_a_full_disk_is_told_and_leaves_the_old_file(small_disk: SmallDisk) -> None:
    path = small_disk.path / "file.txt"
    path.write_text("old")
    small_disk.fill()
    with pytest.raises(StoppedError) as caught:
        write_text(path, "new")
    assert caught.value.problems == (
        f"{small_disk.path}: file.txt cannot be written (No space left on device, 0 MB free); "
        "make room",
    )
    assert path.read_text() == "old"
    assert {each.name for each in small_disk.path.iterdir()} == {"file.txt", "filling"}


def test_a_folder_on_a_full_disk_is_no_mistake_in_the_settings(small_disk: SmallDisk) -> None:
    small_disk.fill()
    folder = small_disk.path / "run"
    with pytest.raises(StoppedError) as caught, hold_folder(folder):
        pass
    assert caught.value.problems == (
        f"{folder}: nothing can be written (No space left on device, 0 MB free); make room",
    )


@pytest.mark.parametrize(
    ("number", "told", "what_to_do"),
    [
        (errno.ENOSPC, "No space left on device", "make room"),
        (errno.EDQUOT, "Disk quota exceeded", "make room"),
        (errno.EROFS, "Read-only file system", "mend that"),
        (errno.EIO, "Input/output error", "mend that"),
    ],
)
def test_what_a_disk_does_anywhere_is_told_with_the_room_there_is(
    tmp_path: Path, number: int, told: str, what_to_do: str
) -> None:
    with pytest.raises(StoppedError) as caught, stopping_for_disk(tmp_path):
        raise OSError(number, "Error writing bytes to file. Detail: [errno 0] as pyarrow says it")
    assert re.sub(r"[\d,]+ MB", "N MB", str(caught.value)) == (
        f"{tmp_path}: a file cannot be read or written ({told}, N MB free); {what_to_do}"
    )


def test_a_file_on_another_disk_is_named(tmp_path: Path) -> None:
    image = tmp_path / "images" / "a.jpg"
    with pytest.raises(StoppedError) as caught, stopping_for_disk(tmp_path / "results"):
        raise OSError(errno.EIO, "Input/output error", str(image))
    assert re.sub(r"[\d,]+ MB", "N MB", str(caught.value)) == (
        f"{image}: cannot be read or written (Input/output error, N MB free); mend that"
    )


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "gone"), OSError("of a library"), ValueError("bug")]
)
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, stopping_for_disk(Path()):
        raise error
    assert caught.value is error


def test_a_reason_that_is_not_the_disk_is_told_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "run"
    problem = not_written(folder, "x.json cannot be written", NotADirectoryError(20, "anything"))
    assert re.sub(r"[\d,]+ MB", "N MB", problem) == (
        f"{folder}: x.json cannot be written (Not a directory, N MB free); mend that"
    )


def test_free_room_is_that_of_the_disk_a_folder_would_lie_on(small_disk: SmallDisk) -> None:
    small_disk.resize(3_000_000)
    assert free_text(small_disk.path / "not" / "yet") == "3 MB free"
    assert free_text(Path("/" + "x" * 300)) == "free space unknown"
