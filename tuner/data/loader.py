"""Whole optimizer batches of decoded images, read ahead by worker processes."""

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from tuner.data.decode import use_one_thread
from tuner.data.index import ImageIndex
from tuner.data.pool import CHUNK_IMAGES, Chunk, WorkerPool
from tuner.data.worker import read_image


class Loader:
    """Batches of uint8 images of the splits in `indexes`, the same for any number of workers.

    A batch is cut into even chunks over the workers, so all of them work on the batch that is due.
    They start with the loader, serve all splits and any number of iterators at once, and stay until
    `close`; after a worker's death the next `batches` starts new ones. For one thread at a time.

    Args:
        indexes: The images, by the name of the split.
        stored_px: Side of the squares that are yielded.
        decoder: A key of `tuner.data.decode.DECODERS`.
        num_workers: Worker processes; 0 reads in the caller's thread, when a batch is asked for.
        prefetch_factor: Batches in work while the caller is busy with one.
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
        is_pinned: bool = False,
        timeout_s: float = 120.0,
    ) -> None:
        self._indexes = indexes
        self._stored_px = stored_px
        self._decoder = decoder
        self._num_workers = num_workers
        self._prefetch_factor = prefetch_factor
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
        if self._num_workers:
            return self._read_ahead(paths)
        return (self._read_now(batch_paths) for batch_paths in paths)

    def _read_now(self, paths: Sequence[str]) -> torch.Tensor:
        batch = self._empty_batch(len(paths))
        for row, path in zip(batch.numpy(), paths, strict=True):
            row[:] = read_image(path, stored_px=self._stored_px, decoder=self._decoder)
        return batch

    def _read_ahead(self, requests: Iterator[Sequence[str]]) -> Generator[torch.Tensor, None, None]:
        if not (self._pool and self._pool.is_open):
            self._pool = self._start_pool()
        pool = self._pool
        ahead: deque[list[Chunk]] = deque()
        try:
            while True:
                for paths in islice(requests, self._prefetch_factor + 1 - len(ahead)):
                    ahead.append([])
                    for part in _even_parts(paths, self._num_workers):
                        ahead[-1].append(pool.submit(part))
                if not ahead:
                    return
                yield self._receive(pool, ahead[0])
                ahead.popleft()
        finally:
            for chunk in chain.from_iterable(ahead):
                pool.release(chunk)

    def _receive(self, pool: WorkerPool, chunks: Sequence[Chunk]) -> torch.Tensor:
        batch = self._empty_batch(sum(len(chunk.paths) for chunk in chunks))
        rows, start = batch.numpy(), 0
        for chunk in chunks:
            pool.receive(chunk, rows[start : start + len(chunk.paths)])
            start += len(chunk.paths)
        return batch

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
