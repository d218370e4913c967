"""Decoded images: built once, whatever kills or damages it, and never handed out damaged."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SmallDisk
from tuner.data.cache import CacheHeader, DecodedImages, Rows, ensure_decoded, holds

HEADER = CacheHeader("cats", num_images=200, stored_px=4)


def pixels_of(rows: Rows) -> np.ndarray:
    return np.stack([np.full((4, 4, 3), row * 7 % 251, np.uint8) for row in rows])


class Counted:
    """Decodes, and keeps which rows it was asked for."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.rows: list[int] = []
        self._fail_after = fail_after

    def __call__(self, chunks: Sequence[Rows]) -> Generator[np.ndarray, None, None]:
        for number, rows in enumerate(chunks):
            if number == self._fail_after:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.rows += rows.tolist()
            yield pixels_of(rows)


def ensure(path: Path, decode: Counted, told: list[tuple[int, int]] | None = None) -> int:
    progress = (lambda done, total: None) if told is None else lambda *each: told.append(each)
    return ensure_decoded(path, HEADER, decode, num_threads=2, progress=progress)


def read_all(path: Path) -> np.ndarray:
    into = np.empty((HEADER.num_images, 4, 4, 3), np.uint8)
    with DecodedImages(path, HEADER) as images:
        images.read(np.arange(HEADER.num_images), into)
    return into


ALL = np.arange(HEADER.num_images)


def test_every_image_is_decoded_once_and_read_as_it_was(tmp_path: Path) -> None:
    path, decode, told = tmp_path / "a" / "b.pixels", Counted(), list[tuple[int, int]]()
    assert ensure(path, decode, told) == 200
    assert decode.rows == ALL.tolist()
    assert told == [(64, 200), (128, 200), (192, 200), (200, 200)]
    np.testing.assert_array_equal(read_all(path), pixels_of(ALL))
    assert sorted(each.name for each in path.parent.iterdir()) == ["b.lock", "b.pixels"]

    assert ensure(path, again := Counted()) == 0
    assert again.rows == []


def test_rows_are_read_in_any_order_and_more_than_once(tmp_path: Path) -> None:
    ensure(tmp_path / "b.pixels", Counted())
    rows = np.random.default_rng(0).integers(0, 200, 300)
    into = np.empty((300, 4, 4, 3), np.uint8)
    with DecodedImages(tmp_path / "b.pixels", HEADER) as images:
        images.read(rows, into)
        images.read(rows[:0], into[:0])
    np.testing.assert_array_equal(into, pixels_of(rows))


def test_what_an_interrupted_build_has_done_is_used(tmp_path: Path) -> None:
    path = tmp_path / "b.pixels"
    with pytest.raises(OSError, match="Input/output error"):
        ensure(path, Counted(fail_after=2))
    assert not path.exists()

    assert ensure(path, again := Counted()) == 72
    assert again.rows == ALL[128:].tolist()
    np.testing.assert_array_equal(read_all(path), pixels_of(ALL))


def test_a_killed_build_leaves_no_file_and_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "b.pixels"
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from tests.unit.data import test_cache as t;"
        "decode = t.Counted();"
        "chunks = lambda c: (os.kill(os.getpid(), signal.SIGKILL) if n == 2 else p"
        " for n, p in enumerate(decode(c)));"
        "t.ensure_decoded(Path(sys.argv[1]), t.HEADER, chunks, num_threads=1,"
        " progress=lambda *_: None)"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=root)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    assert ensure(path, again := Counted()) == 72
    assert again.rows[0] == 128


@pytest.mark.parametrize("offset", [HEADER.pixels_offset + 70 * 48 + 5, 4096 + 8 * 70])
def test_a_damaged_image_is_decoded_again_and_no_other(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "b.pixels"
    ensure(path, Counted())
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)

    assert ensure(path, again := Counted()) == 1
    assert again.rows == [70]
    np.testing.assert_array_equal(read_all(path), pixels_of(ALL))


@pytest.mark.parametrize("num_bytes", [0, 100, HEADER.num_bytes - 1])
def test_a_file_cut_short_is_refused_and_built_anew(tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "b.pixels"
    ensure(path, Counted())
    os.truncate(path, num_bytes)
    assert not holds(path, HEADER)
    assert ensure(path, Counted()) == 200
    np.testing.assert_array_equal(read_all(path), pixels_of(ALL))


@pytest.mark.parametrize(
    "other",
    [
        CacheHeader("dogs", 200, 4),
        CacheHeader("cats", 200, 4, format=0),
        CacheHeader("cats", 50, 8),
    ],
)
def test_a_file_of_other_images_is_refused(tmp_path: Path, other: CacheHeader) -> None:
    path = tmp_path / "b.pixels"
    ensure(path, Counted())
    assert not holds(path, other)
    with pytest.raises(ValueError, match="holds other images"):
        DecodedImages(path, other)


def test_a_file_cut_short_while_it_is_read_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = tmp_path / "b.pixels"
    ensure(path, Counted())
    with DecodedImages(path, HEADER) as images:
        os.truncate(path, HEADER.num_bytes - 1)
        with pytest.raises(OSError, match=f"was cut short while it was read: '{path}'"):
            images.read(ALL, np.empty((200, 4, 4, 3), np.uint8))


def test_processes_that_ask_at_once_build_one_file(tmp_path: Path) -> None:
    path = tmp_path / "b.pixels"
    script = (
        "import sys; from pathlib import Path; from tests.unit.data import test_cache as t;"
        "print(t.ensure(Path(sys.argv[1]), t.Counted()))"
    )
    command = [sys.executable, "-c", script, str(path)]
    root = Path(__file__).parents[3]
    asking = [
        subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert sorted(int(each.communicate()[0]) for each in asking) == [0, 0, 200]
    np.testing.assert_array_equal(read_all(path), pixels_of(ALL))


def test_a_full_disk_shows_before_the_work_and_leaves_nothing(small_disk: SmallDisk) -> None:
    small_disk.resize(8 * 1024)
    path, decode = small_disk.path / "b.pixels", Counted()
    with pytest.raises(OSError, match="No space left on device"):
        ensure(path, decode)
    assert decode.rows == []
    assert not list(small_disk.path.glob("*.unfinished"))
