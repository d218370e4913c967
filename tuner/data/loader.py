"""Whole optimizer batches of decoded images, read ahead by worker processes."""

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from tuner.data.decode import use_one_thread
from tuner.data.index import ImageIndex
from tuner.data.pool import CHUNK_IMAGES, Chunk, WorkerLostError, WorkerPool
from tuner.data.worker import read_image, read_unchecked

MOST_LOST_IN_A_ROW = 10  # where workers die whatever they read, an end is better than patience


class ReadBatch(NamedTuple):
    """Images as they were read, and why a row is black instead: its image cannot be read."""

    images: torch.Tensor
    unreadable: dict[int, str]


@dataclass(slots=True, eq=False)
class _Request:
    """One batch that is being read."""

    paths: Sequence[str]
    chunks: list[Chunk] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _LostImages:
    """Images that were in the hands of workers that died: twice is no accident."""

    seen: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    in_a_row: int = 0

    def may_go_on(self, error: WorkerLostError) -> bool:
        """Remember the image; say whether new workers may be tried, as batches still come."""
        if error.path in self.seen:
            self.reasons[error.path] = error.how
        self.seen.add(error.path)
        self.in_a_row += 1
        return self.in_a_row < MOST_LOST_IN_A_ROW


class Loader:
    """Batches of uint8 images of the splits in `indexes`, the same for any number of workers.

    A batch is cut into even chunks over the workers, so all of them work on the batch that is due.
    They start with the loader, serve all splits and any number of iterators at once, and stay until
    `close`; after a worker's death the next `batches` starts new ones. For one thread at a time.

    Args:
        indexes: The images, by the name of the split; none where `read` is told their paths.
        stored_px: Side of the squares that are yielded.
        decoder: A key of `tuner.data.decode.DECODERS`.
        num_workers: Worker processes; 0 reads in the caller's thread, when a batch is asked for.
        prefetch_factor: Batches in work while the caller is busy with one.
        is_checked: Whether all images are known to be good. Else each is checked as it is read,
            which takes two to three times as long, and one that cannot be read ends nothing, not
            even where workers die of it.
        is_pinned: Whether batches lie in memory that a GPU can copy from by itself; the first one
            takes some of the GPU for this process.
        timeout_s: Seconds that one image may take before the run is given up.
    """

    def __init__(
        self,
        indexes: Mapping[str, ImageIndex],
        *,
        stored_px: int,
        decoder: str,
        num_workers: int,
        prefetch_factor: int,
        is_checked: bool = True,
        is_pinned: bool = False,
        timeout_s: float = 120.0,
    ) -> None:
        self._indexes = indexes
        self._stored_px = stored_px
        self._decoder = decoder
        self._num_workers = num_workers
        self._prefetch_factor = prefetch_factor
        self._is_checked = is_checked
        self._is_pinned = is_pinned
        self._timeout_s = timeout_s
        self._pool = self._start_pool() if num_workers else None
        use_one_thread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers at once; no process is left."""
        if self._pool:
            self._pool.close()

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[torch.Tensor, None, None]:
        """Yield one uint8 CPU tensor (n, stored_px, stored_px, 3) for each array of n positions.

        `positions` is taken `prefetch_factor` arrays
        ahead, so an iterable over several epochs has no gap between them. The iterator may be left
        or closed at any point.

        Raises:
            DataError: An image cannot be read, told when its batch is due.
            RunError: A worker has died or hangs on an image.
        """
        paths = (self._paths(split, chosen) for chosen in positions)
        with closing(self.read(paths)) as read:
            for batch in read:
                yield batch.images

    def read(self, requests: Iterable[Sequence[str]]) -> Generator[ReadBatch, None, None]:
        """Yield one batch for each list of absolute paths, as `batches` does for positions.

        Raises:
            DataError: An image that was checked cannot be read.
            RunError: A worker has died or hangs on an image.
        """
        if self._num_workers:
            return self._read_ahead(iter(requests))
        return (self._read_now(paths) for paths in requests)

    def _read_now(self, paths: Sequence[str]) -> ReadBatch:
        read = read_image if self._is_checked else read_unchecked
        batch, unreadable = self._empty_batch(len(paths)), {}
        for row, path in enumerate(paths):
            pixels = read(path, stored_px=self._stored_px, decoder=self._decoder)
            if isinstance(pixels, str):
                unreadable[row] = pixels
                batch[row] = 0
            else:
                batch.numpy()[row] = pixels
        return ReadBatch(batch, unreadable)

    def _read_ahead(self, requests: Iterator[Sequence[str]]) -> Generator[ReadBatch, None, None]:
        if not (self._pool and self._pool.is_open):
            self._pool = self._start_pool()
        ahead: deque[_Request] = deque()
        lost, is_lost = _LostImages(), False
        try:
            while True:
                try:
                    if is_lost:  # in here, for new workers may die as soon
                        self._pool, is_lost = self._start_pool(), False
                        for request in ahead:
                            self._submit(self._pool, request, lost)
                    for paths in islice(requests, self._prefetch_factor + 1 - len(ahead)):
                        ahead.append(_Request(paths))
                        self._submit(self._pool, ahead[-1], lost)
                    if not ahead:
                        return
                    batch = self._receive(self._pool, ahead[0], lost)
                except WorkerLostError as error:
                    if self._is_checked or not lost.may_go_on(error):
                        raise
                    is_lost = True
                    continue
                yield batch
                lost.in_a_row = 0
                ahead.popleft()
        finally:
            for request in ahead:
                for chunk in request.chunks:
                    self._pool.release(chunk)

    def _submit(self, pool: WorkerPool, request: "_Request", lost: "_LostImages") -> None:
        request.chunks.clear()
        paths = ["" if path in lost.reasons else path for path in request.paths]
        for part in _even_parts(paths, self._num_workers):
            request.chunks.append(pool.submit(part))

    def _receive(self, pool: WorkerPool, request: "_Request", lost: "_LostImages") -> ReadBatch:
        batch = self._empty_batch(len(request.paths))
        unreadable: dict[int, str] = {}
        rows, start = batch.numpy(), 0
        for chunk in request.chunks:
            pool.receive(chunk, rows[start : start + len(chunk.paths)])
            unreadable |= {start + row: reason for row, reason in chunk.unreadable.items()}
            start += len(chunk.paths)
        for row, path in enumerate(request.paths):
            if path in lost.reasons:
                unreadable[row] = lost.reasons[path]
        return ReadBatch(batch, unreadable)

    def _paths(self, split: str, positions: NDArray[np.int64]) -> list[str]:
        index = self._indexes[split]
        return [os.path.join(index.root, index.path(position)) for position in positions]

    def _empty_batch(self, num_images: int) -> torch.Tensor:
        return empty_batch(num_images, self._stored_px, is_pinned=self._is_pinned)

    def _start_pool(self) -> WorkerPool:
        return WorkerPool(
            self._num_workers,
            stored_px=self._stored_px,
            decoder=self._decoder,
            timeout_s=self._timeout_s,
            is_checked=self._is_checked,
        )


def empty_batch(num_images: int, stored_px: int, *, is_pinned: bool) -> torch.Tensor:
    """Return room for a batch, uint8 (num_images, stored_px, stored_px, 3)."""
    shape = (num_images, stored_px, stored_px, 3)
    return torch.empty(shape, dtype=torch.uint8, pin_memory=is_pinned)


def _even_parts(paths: Sequence[str], num_workers: int) -> Iterator[Sequence[str]]:
    """Yield consecutive parts of nearly one size, the same number for each worker."""
    num_parts = min(len(paths), num_workers * -(-len(paths) // (num_workers * CHUNK_IMAGES)))
    for part in range(num_parts):
        yield paths[part * len(paths) // num_parts : (part + 1) * len(paths) // num_parts]
