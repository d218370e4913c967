"""All images of a data set decoded and cut square, in one file that every process reads.

The file is read by position and not mapped: the kernel's page cache is shared all the same, and a
disk that fails is an error where a mapping would end the process with SIGBUS.

    header   JSON and spaces, HEADER_BYTES: format, content, num_images, stored_px
    sums     one uint64 for each image: CRC-32 of its pixels plus 1, 0 where they are not there yet
    pixels   uint8 (num_images, stored_px, stored_px, 3)
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from tuner.data.verify import Progress
from tuner.files import sync_folder

FORMAT = 1  # another number whenever the same image would give other pixels
HEADER_BYTES = 4096
CHUNK_IMAGES, CHUNK_BYTES = 64, 2**24  # of what is decoded, written or checked in one go

Rows: TypeAlias = NDArray[np.int64]
# Given arrays of rows, their pixels in order: uint8 (n, stored_px, stored_px, 3) for n rows.
Decode: TypeAlias = Callable[[Sequence[Rows]], Generator[NDArray[np.uint8], None, None]]


@dataclass(frozen=True, slots=True)
class CacheHeader:
    """What a file of decoded images holds.

    Attributes:
        content: Tells these images, in this order, decoded in this way, from all others.
    """

    content: str
    num_images: int
    stored_px: int
    format: int = FORMAT

    @property
    def image_bytes(self) -> int:
        """Bytes of one image."""
        return 3 * self.stored_px**2

    @property
    def chunk_images(self) -> int:
        """Images that are decoded, written or checked in one go."""
        return max(1, min(CHUNK_IMAGES, CHUNK_BYTES // self.image_bytes))

    @property
    def pixels_offset(self) -> int:
        """Where the first image begins."""
        return HEADER_BYTES + 8 * self.num_images

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole file."""
        return self.pixels_offset + self.num_images * self.image_bytes

    def to_bytes(self) -> bytes:
        """Return the head of the file."""
        text = json.dumps(asdict(self)).encode()
        assert len(text) <= HEADER_BYTES
        return text.ljust(HEADER_BYTES)


class DecodedImages:
    """The open file; safe for any number of processes and threads.

    Raises:
        OSError: There is no such file, or it cannot be read.
        ValueError: It is cut short, or holds something else than the header says.
    """

    def __init__(self, path: Path, header: CacheHeader, *, writable: bool = False) -> None:
        self.header = header
        self._path = path
        self._fd = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        if os.pread(self._fd, HEADER_BYTES, 0) != header.to_bytes():
            self._refuse(f"{path}: holds other images")
        if os.fstat(self._fd).st_size != header.num_bytes:
            self._refuse(f"{path}: is cut short")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def read(self, rows: Rows, into: NDArray[np.uint8]) -> None:
        """Fill `into`, uint8 (n, stored_px, stored_px, 3), with the images of n rows.

        Raises:
            OSError: The disk fails.
        """
        size, start = self.header.image_bytes, self.header.pixels_offset
        for row, image in zip(rows.tolist(), into, strict=True):
            try:
                num_bytes = os.preadv(self._fd, [image.data], start + row * size)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self._path)) from error
            if num_bytes != size:
                raise OSError(errno.EIO, "was cut short while it was read", str(self._path))

    def write(self, rows: Rows, pixels: NDArray[np.uint8]) -> None:
        """Write consecutive rows, and then their sums."""
        first, header = int(rows[0]), self.header
        _write_all(self._fd, pixels, header.pixels_offset + first * header.image_bytes)
        sums = np.array([_sum_of(image) for image in pixels], np.uint64)
        _write_all(self._fd, sums, HEADER_BYTES + 8 * first)

    def sync(self) -> None:
        """Make what was written survive a power cut."""
        os.fsync(self._fd)

    def damaged_rows(self, rows: Rows) -> Rows:
        """Return those of the consecutive rows whose pixels are not those of their sums."""
        n, header = len(rows), self.header
        blob = os.pread(self._fd, 8 * n, HEADER_BYTES + 8 * int(rows[0]))
        pixels = np.empty((n, header.image_bytes), np.uint8)
        self.read(rows, pixels)
        found = np.array([_sum_of(image) for image in pixels], np.uint64)
        return rows[found != np.frombuffer(blob, np.uint64)]

    def _refuse(self, problem: str) -> None:
        self.close()
        raise ValueError(problem)


def ensure_decoded(
    path: Path, header: CacheHeader, decode: Decode, *, num_threads: int, progress: Progress
) -> int:
    """Return how many images had to be decoded until `path` holds all of them.

    One process builds, others that ask at the same time wait. What a killed one has done is used;
    so are the whole images of a damaged file. `progress` is told (images done, images) of the
    check and of the decoding, one after the other.

    Args:
        path: Where the file belongs; its folder is made.
        header: What it is to hold.
        decode: Reads the images that are missing.
        num_threads: Threads that check.
        progress: Told as the work goes on.

    Raises:
        OSError: The disk has no room for it, or fails.
    """
    if holds(path, header):  # where others have built it nothing has to be written
        with DecodedImages(path, header) as images:
            if not len(_damaged(images, num_threads, progress)):
                return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = unfinished_of(path)
    with FileLock(path.with_suffix(".lock")):
        begun = next((each for each in (path, unfinished) if holds(each, header)), None)
        if begun is None:
            _reserve(unfinished, header)
        with DecodedImages(begun or unfinished, header, writable=True) as images:
            missing = np.arange(header.num_images)
            if begun is not None:
                missing = _damaged(images, num_threads, progress)
            if begun == path:
                if not len(missing):
                    return 0
                path.replace(unfinished)
            _fill(images, missing, decode, progress)
            images.sync()
        unfinished.replace(path)
        sync_folder(path.parent)
    return len(missing)


def unfinished_of(path: Path) -> Path:
    """Return what the file is called while it is built."""
    return path.with_suffix(".unfinished")


def holds(path: Path, header: CacheHeader) -> bool:
    """Return whether `path` is a file of full length for what the header says."""
    try:
        DecodedImages(path, header).close()
    except (OSError, ValueError):
        return False
    return True


def _reserve(path: Path, header: CacheHeader) -> None:
    """Make the file at its full size, so that a full disk shows before the work."""
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, header.num_bytes)
            file.write(header.to_bytes())
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise


def _damaged(images: DecodedImages, num_threads: int, progress: Progress) -> Rows:
    header = images.header
    chunks = _chunks(np.arange(header.num_images), header.chunk_images)
    found = []
    with ThreadPoolExecutor(num_threads) as pool:  # zlib and the kernel leave the GIL meanwhile
        for rows, damaged in zip(chunks, pool.map(images.damaged_rows, chunks), strict=True):
            found.append(damaged)
            progress(int(rows[-1]) + 1, header.num_images)
    return np.concatenate(found)


def _fill(images: DecodedImages, missing: Rows, decode: Decode, progress: Progress) -> None:
    chunks, num_done = _chunks(missing, images.header.chunk_images), 0
    with closing(decode(chunks)) as decoded:
        for rows, pixels in zip(chunks, decoded, strict=True):
            images.write(rows, pixels)
            num_done += len(rows)
            progress(num_done, len(missing))


def _chunks(rows: Rows, most: int) -> list[Rows]:
    """Return the ascending rows in parts of consecutive ones, not longer than `most`."""
    stretches = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return [
        stretch[start : start + most]
        for stretch in stretches
        for start in range(0, len(stretch), most)
    ]


def _sum_of(image: NDArray[np.uint8]) -> int:
    return zlib.crc32(image.data) + 1


def _write_all(fd: int, content: NDArray[Any], offset: int) -> None:
    left = content.data.cast("B")
    while left:  # a disk that fills takes a part first, and then refuses
        num_bytes = os.pwrite(fd, left, offset)
        left, offset = left[num_bytes:], offset + num_bytes
