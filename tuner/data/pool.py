"""Worker processes and the file through which their pixels come.

The exchange file is a memfd: unlike `/dev/shm` in a container it has no size limit of its own, and
read and write report an error where a mapping would end the process with SIGBUS.
"""

import os
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

import numpy as np
from numpy.typing import NDArray

from tuner.data.worker import HEADER_BYTES, REQUEST, WORD
from tuner.errors import RunError, TunerError

CHUNK_IMAGES = 64  # the most images of one request
LONGEST_PATH_BYTES = 4096
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class WorkerLostError(RunError):
    """A worker has died or hangs; `path` is the image that it had in hand, `how` says what it did.

    Args:
        path: The image.
        how: What happened, as ``its worker process ended (signal 9)``.
        remedy: What to do.
    """

    def __init__(self, path: str, how: str, remedy: str) -> None:
        super().__init__(f"{path}: {how}; {remedy}")
        self.path = path
        self.how = how


@dataclass(slots=True, eq=False)
class Worker:
    """One worker process, our end of its connection, and its unanswered chunks in order."""

    process: subprocess.Popen[bytes]
    connection: Connection
    chunks: "deque[Chunk]" = field(default_factory=deque)

    def images_waiting(self) -> int:
        """Return how many images it has yet to read."""
        return sum(len(chunk.paths) for chunk in self.chunks)


@dataclass(slots=True, eq=False)
class Chunk:
    """Images that one worker reads in one go into one slot of the exchange file."""

    paths: Sequence[str]
    offset: int
    worker: Worker
    is_wanted: bool = True
    is_answered: bool = False
    error: TunerError | None = None
    unreadable: Mapping[int, str] = field(default_factory=dict)  # why, by the row in the chunk


class WorkerPool:
    """Worker processes that read chunks of images, for one thread at a time.

    They end when the pool closes, when this process ends in whatever way, and at the first failure
    of one of them; `is_open` is False from then on. Images that nobody has checked are no failure:
    those that cannot be read are told by the chunk, and are black.
    """

    def __init__(
        self,
        num_workers: int,
        *,
        stored_px: int,
        decoder: str,
        timeout_s: float,
        is_checked: bool = True,
    ) -> None:
        slot_bytes = HEADER_BYTES + CHUNK_IMAGES * max(3 * stored_px**2, LONGEST_PATH_BYTES)
        self.is_open = True
        self._timeout_s = timeout_s
        self._remedy = "try loader.num_workers=0" if is_checked else "take that image away"
        self._free_offsets: list[int] = []
        self._next_offset = 0
        self._slot_bytes = slot_bytes
        self._exchange_fd = os.memfd_create("tuner-images")
        self._workers = [
            _start_worker(self._exchange_fd, stored_px, decoder, is_checked)
            for _ in range(num_workers)
        ]

    def submit(self, paths: Sequence[str]) -> Chunk:
        """Return the chunk of 1 to CHUNK_IMAGES paths, handed to the worker with least to do.

        Raises:
            WorkerLostError: A worker has died now; RunError: before.
        """
        self._check_open()
        while self._take_answers(timeout_s=0):
            pass
        worker = min(self._workers, key=Worker.images_waiting)
        chunk = Chunk(paths, self._take_slot(), worker)
        blob = os.fsencode("\0".join(paths))
        os.pwrite(self._exchange_fd, WORD.pack(True) + WORD.pack(0) + blob, chunk.offset)
        worker.chunks.append(chunk)
        try:
            worker.connection.send_bytes(REQUEST.pack(chunk.offset, len(blob)))
        except OSError:
            raise self._ended(worker) from None
        return chunk

    def receive(self, chunk: Chunk, into: NDArray[np.uint8]) -> None:
        """Wait for the chunk and fill `into`, uint8 (images, stored_px, stored_px, 3), with it.

        Raises:
            DataError: An image that was checked cannot be read.
            WorkerLostError: A worker has died, or hangs on one image longer than the time allowed.
        """
        self._check_open()
        while not chunk.is_answered:
            place = self._place(chunk.worker)
            if not self._take_answers(self._timeout_s) and self._place(chunk.worker) == place:
                self.close()
                how = f"not read within {self._timeout_s:g} s"
                raise WorkerLostError(place, how, "check its disk")
        if chunk.error is not None:
            raise chunk.error
        num_bytes = os.preadv(self._exchange_fd, [into.data], chunk.offset + HEADER_BYTES)
        assert num_bytes == into.nbytes
        self.release(chunk)

    def release(self, chunk: Chunk) -> None:
        """Give the slot of a chunk back that is received, or of no interest any more."""
        if not (self.is_open and chunk.is_wanted):
            return
        chunk.is_wanted = False
        if chunk.is_answered:
            self._free_offsets.append(chunk.offset)
        else:  # the worker stops at the next image, its answer frees the slot
            os.pwrite(self._exchange_fd, WORD.pack(False), chunk.offset)

    def close(self) -> None:
        """End all workers, whatever they are doing; no process is left."""
        if not self.is_open:
            return
        self.is_open = False
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.wait()
            worker.connection.close()
        os.close(self._exchange_fd)

    def _check_open(self) -> None:
        if not self.is_open:
            raise RunError("loader: its workers have ended; start the batches anew")

    def _take_slot(self) -> int:
        if self._free_offsets:
            return self._free_offsets.pop()
        self._next_offset += self._slot_bytes
        return self._next_offset - self._slot_bytes

    def _take_answers(self, timeout_s: float) -> bool:
        """Take one answer from every worker that has one; False if none came in time."""
        ready = wait([worker.connection for worker in self._workers if worker.chunks], timeout_s)
        for worker in self._workers:
            if worker.connection not in ready:
                continue
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):
                raise self._ended(worker) from None
            chunk = worker.chunks.popleft()
            chunk.is_answered = True
            if isinstance(answer, TunerError):
                chunk.error = answer
            else:
                chunk.unreadable = answer
            if not chunk.is_wanted:
                self._free_offsets.append(chunk.offset)
        return bool(ready)

    def _place(self, worker: Worker) -> str:
        """Return the path of the image that the worker has in hand."""
        chunk = worker.chunks[0]
        word = os.pread(self._exchange_fd, WORD.size, chunk.offset + WORD.size)
        images_begun: int = WORD.unpack(word)[0]
        return chunk.paths[max(images_begun - 1, 0)]

    def _ended(self, worker: Worker) -> WorkerLostError:
        place, status = self._place(worker), worker.process.wait()
        self.close()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return WorkerLostError(place, f"its worker process ended ({how})", self._remedy)


def _start_worker(exchange_fd: int, stored_px: int, decoder: str, is_checked: bool) -> Worker:
    ours, theirs = Pipe()
    with theirs:
        fds = (theirs.fileno(), exchange_fd)
        state = "checked" if is_checked else "unchecked"
        arguments = [*map(str, fds), str(stored_px), decoder, state]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tuner.data.worker", *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            process_group=0,  # Ctrl-C is for the program that owns the workers
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    return Worker(process, ours)
