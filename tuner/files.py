"""Files that are either whole or not there, and folders that one process holds at a time."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tuner.errors import StoppedError, StudyError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
NEEDS_QUOTES = re.compile(r'[",]|^ ')
LEFT_OVER = re.compile(r"\..+\.\d+\.tmp", re.DOTALL)  # as `replacing` names it
DISK_ERRORS = FULL | {errno.EROFS, errno.EIO}


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write; on leaving without an error it becomes `path` durably.

    An error or a full disk leaves the old file as it was and removes the temporary one.
    """
    temporary = _temporary(path)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_unheld(path: Path) -> Iterator[Path]:
    """Does as `replacing` in a folder that nobody holds; `remove_dead` knows that this is alive."""
    with _locked(_temporary(path)), replacing(path) as temporary:
        yield temporary


def remove_dead(path: Path) -> None:
    """Removes what processes left beside `path` that were killed in `replacing_unheld` of it."""
    start, end = f".{path.name}.", ".tmp"
    for left_over in path.parent.glob(f"{glob.escape(start)}*{end}"):
        if left_over.name.removeprefix(start).removesuffix(end).isdecimal():
            # An error: somebody writes it, or it is another user's.
            with contextlib.suppress(OSError), left_over.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left_over.unlink()


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Makes a file and holds a lock on it, which ends with the process at the latest."""
    with contextlib.ExitStack() as stack:
        while True:
            file = stack.enter_context(path.open("w+b"))
            with contextlib.suppress(OSError):  # a disk without locks: nothing is removed there
                fcntl.flock(file, fcntl.LOCK_SH)
            if path.exists():  # it was not removed before it was locked
                break
        yield


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
        StoppedError: It cannot be written (disk full, disk lost).
    """
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        problem = not_written(path.parent, f"{path.name} cannot be written", error)
        raise StoppedError(problem) from error


def csv_line(cells: Sequence[str]) -> str:
    """Return a line of a csv, its end with it; no cell has a line break.

    Not by `csv`: that leaves a blank before a cell as it is, and readers pass over it.
    """
    return ",".join(map(_quoted, cells)) + "\n"


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if NEEDS_QUOTES.search(cell) else cell


def write_json(path: Path, value: Any) -> None:
    """Replaces `path` by strict JSON (no NaN, no infinity), indented for reading."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_json_rows(path: Path, value: Any) -> None:
    """Replaces `path` by strict JSON as `write_json` does; a list of plain values is one line.

    So a table takes a line for each row.
    """
    write_text(path, _json_rows(value) + "\n")


def _json_rows(value: Any, margin: str = "") -> str:
    inner = margin + "  "
    if isinstance(value, dict) and value:
        parts = [f"{_json(key)}: {_json_rows(each, inner)}" for key, each in value.items()]
        first, last = "{}"
    elif isinstance(value, list | tuple) and any(
        isinstance(each, dict | list | tuple) for each in value
    ):
        parts = [_json_rows(each, inner) for each in value]
        first, last = "[]"
    else:
        return _json(value)
    lines = f",\n{inner}".join(parts)
    return f"{first}\n{inner}{lines}\n{margin}{last}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def file_sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def not_written(folder: Path, problem: str, error: OSError) -> str:
    """Returns the line that says what cannot be written in `folder`, why, and how much is free."""
    what_to_do = "make room" if error.errno in FULL else "mend that"
    return f"{folder}: {problem} ({_reason(error)}, {free_text(folder)}); {what_to_do}"


@contextlib.contextmanager
def stopping_for_disk(folder: Path) -> Iterator[None]:
    """Turns what a full or failing disk raises inside, wherever it is, into a StoppedError.

    Other errors stay as they are.

    Args:
        folder: Named where the error does not say which other file it was, as it seldom does.
    """
    try:
        yield
    except OSError as error:
        if not is_disk_error(error):
            raise
        where, what = folder, "a file cannot be read or written"
        if error.filename and not Path(os.fsdecode(error.filename)).is_relative_to(folder):
            where, what = Path(os.fsdecode(error.filename)), "cannot be read or written"
        raise StoppedError(not_written(where, what, error)) from error


def is_disk_error(error: Exception) -> bool:
    """Says whether a disk is full, over its quota, read-only or broken."""
    return isinstance(error, OSError) and error.errno in DISK_ERRORS


def free_text(folder: Path) -> str:
    """Returns what is free on the disk of `folder`, which need not exist yet, for people."""
    try:
        return f"{free_bytes(folder) // 10**6:,} MB free"
    except OSError:
        return "free space unknown"


def free_bytes(folder: Path) -> int:
    """Returns what is free on the disk of `folder`, which need not exist yet.

    Where there is no disk, as in /proc, it is no bound.
    """
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    usage = shutil.disk_usage(there)
    return usage.free if usage.total else sys.maxsize


def _reason(error: OSError) -> str:
    # The error's own text may be a library's: pyarrow's names the kernel's reason twice.
    return os.strerror(error.errno) if error.errno else str(error)


def remove_left_overs(folder: Path) -> None:
    """Removes what processes left in `folder` that were killed in `replacing`.

    The caller holds the folder: nobody writes there.
    """
    for left_over in folder.glob(".*.*.tmp"):
        if LEFT_OVER.fullmatch(left_over.name):
            left_over.unlink(missing_ok=True)


@contextlib.contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Makes `folder` and keeps other runs out of it; a killed process leaves no lock behind.

    What one left half written goes, from a model folder `best/` too: it may be as large as a model.

    Raises:
        StudyError: Another run is there, or nothing can be written.
        StoppedError: The disk is full.
    """
    path = folder / "run.lock"
    lock = FileLock(path, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        path.write_text(str(os.getpid()))
        remove_left_overs(folder)
        if not (folder / "best" / path.name).exists():  # held for itself: a retrain's output
            remove_left_overs(folder / "best")
    except Timeout:
        raise StudyError(
            f"{folder}: another run is there (pid {path.read_text()}); "
            "wait for it, or use another name=… or output=…"
        ) from None
    except OSError as error:
        lock.release()
        if error.errno in FULL:
            raise StoppedError(not_written(folder, "nothing can be written", error)) from error
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
