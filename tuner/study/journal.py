"""The file behind the record: an Optuna journal whose events are one append, whole or absent."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalFileOpenLock

from tuner.errors import StoppedError
from tuner.files import not_written, sync_folder

# Every line of an event but its last carries this key, which Optuna passes over.
MORE = "more"


class EventJournal(JournalFileBackend):
    """Optuna's journal file, with several of its lines grouped into one append and one fsync.

    Optuna reads the file as any other journal. Opening repairs what a killed process left: a
    last event that is not whole is cut off, and a lock nobody holds is deleted. The caller must
    be the file's only writer (see ``Record.open``).
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # with a relative path a left lock makes Optuna spin for ever
        self._event: list[dict[str, Any]] | None = None
        _delete_left_locks(self._path)
        _cut_torn_event(self._path)
        super().__init__(str(self._path), JournalFileOpenLock(str(self._path)))
        sync_folder(self._path.parent)

    @contextmanager
    def event(self) -> Iterator[None]:
        """Holds back what is appended inside, then writes it at once; nothing on an exception."""
        event: list[dict[str, Any]] = []
        self._event = event
        try:
            yield
        finally:
            self._event = None
        self.append_logs([*({**line, MORE: True} for line in event[:-1]), *event[-1:]])

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Appends `logs` at once, or leaves the file as it was.

        Raises:
            StoppedError: The file cannot be written (disk full, disk lost).
        """
        if self._event is not None:
            self._event += logs
            return
        size_bytes = self._path.stat().st_size
        try:
            super().append_logs(logs)
        except OSError as error:
            with suppress(OSError):  # a lost disk; opening cuts off what is not whole, too
                os.truncate(self._path, size_bytes)
            folder, name = self._path.parent, self._path.name
            raise StoppedError(not_written(folder, f"{name} cannot be written", error)) from error


class JournalView(BaseJournalBackend):
    """A journal file as it is at one moment, for reading; another process may be writing it.

    Nothing is written, repaired or locked: a last event that is not whole is passed over.
    """

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        self._logs = [json.loads(line) for line in data[: _whole_bytes(data)].splitlines()]

    def event(self) -> AbstractContextManager[None]:
        """Refuses to write."""
        raise UnsupportedOperation("a view of a journal cannot write")

    def read_logs(self, log_number_from: int) -> Sequence[dict[str, Any]]:
        """The lines from that number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuses to write."""
        raise UnsupportedOperation("a view of a journal cannot write")


def _delete_left_locks(path: Path) -> None:
    for left in path.parent.glob(f"{path.name}.lock*"):
        left.unlink()


def _cut_torn_event(path: Path) -> None:
    """A torn last line would be glued to the next append and make the whole file unreadable."""
    if not path.exists():
        return
    data = path.read_bytes()
    end = _whole_bytes(data)
    if end < len(data):
        os.truncate(path, end)


def _whole_bytes(data: bytes) -> int:
    """How many bytes of a journal are whole events."""
    end = data.rfind(b"\n") + 1
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if MORE not in json.loads(data[start:end]):
            break
        end = start
    return end
