"""Files that are either whole or not there, and folders that one process holds at a time."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tuner.errors import RunError, StudyError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write; on leaving without an error it becomes `path` durably.

    An error or a full disk leaves the old file as it was and removes the temporary one.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Makes renames and new names in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replaces `path` by `text` in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces `path` by `content`, whole or not at all.

    Raises:
        RunError: It cannot be written (disk full, disk lost).
    """
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written ({error.strerror}); make room or use another output=…"
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Replaces `path` by strict JSON (no NaN, no infinity), indented for reading."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextlib.contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Makes `folder` and keeps other runs out of it; a killed process leaves no lock behind.

    Raises:
        StudyError: Another run is there, or nothing can be written.
    """
    path = folder / "run.lock"
    lock = FileLock(path, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        path.write_text(str(os.getpid()))
    except Timeout:
        raise StudyError(
            f"{folder}: another run is there (pid {path.read_text()}); "
            "wait for it, or use another name=… or output=…"
        ) from None
    except OSError as error:
        lock.release()
        raise StudyError(
            f"{folder}: cannot be written ({error.strerror}); use another output=…"
        ) from error
    try:
        yield
    finally:
        remove_unused(folder, path)
        lock.release()


def remove_unused(folder: Path, lock: Path) -> None:
    """Removes a folder that holds its lock alone: a refused start leaves nothing behind."""
    with contextlib.suppress(OSError):  # somebody else removed it, or writes there
        if os.listdir(folder) == [lock.name]:
            lock.unlink()
            folder.rmdir()
