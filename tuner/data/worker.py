"""A process that reads images for a pool.py: paths come in, pixels go out.

It is a program of its own, so nothing is forked from a process with threads and nobody's main
module is imported. It does not import torch, is ready in a fifth of a second, and remembers nothing
between two requests.

    request   where a slot of the exchange file begins, and how many bytes of paths it holds
    slot      header, then the paths, which the pixels of the images overwrite in the same order
    answer    the rows that cannot be read with why, or the error of the first image that ended it:
              images that were checked before have no such rows
"""

import os
import select
import struct
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from tuner.data.decode import Pixels, decode, decode_unchecked, fit_square, use_one_thread
from tuner.errors import DataError, RunError, TunerError

REQUEST = struct.Struct("<qq")  # offset of the slot, bytes of its paths
WORD = struct.Struct("<q")
HEADER_BYTES = 2 * WORD.size  # is it wanted (written by the pool), images begun (by the worker)


def read_image(path: str, *, stored_px: int, decoder: str) -> NDArray[np.uint8]:
    """Return one image as RGB uint8 (stored_px, stored_px, 3).

    Raises:
        DataError: The file cannot be opened or is no whole image.
    """
    try:
        with open(path, "rb") as file:  # a Path costs as much as the opening itself
            data = file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror}); put it back") from error
    return fit_square(decode(data, path, decoder, is_checked=True), stored_px)


def read_unchecked(path: str, *, stored_px: int, decoder: str) -> Pixels | str:
    """Return one image as `read_image` does, or why it cannot be read or used, in words."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (OSError, ValueError) as error:  # a ValueError for a path with a zero in it
        return f"cannot be opened ({getattr(error, 'strerror', None) or error})"
    pixels = decode_unchecked(data, decoder)
    return pixels if isinstance(pixels, str) else fit_square(pixels, stored_px)


def serve(
    connection: Connection, exchange_fd: int, stored_px: int, decoder: str, *, is_checked: bool
) -> None:
    """Answer requests until the other end of the connection is gone."""
    threading.Thread(target=_exit_with_pool, args=(connection,), daemon=True).start()
    use_one_thread()
    while True:
        offset, num_bytes = REQUEST.unpack(connection.recv_bytes())
        blob = os.pread(exchange_fd, num_bytes, offset + HEADER_BYTES)
        paths = os.fsdecode(blob).split("\0")
        connection.send(
            _read_chunk(
                paths,
                exchange_fd,
                offset,
                stored_px=stored_px,
                decoder=decoder,
                is_checked=is_checked,
            )
        )


def _read_chunk(
    paths: Sequence[str],
    exchange_fd: int,
    offset: int,
    *,
    stored_px: int,
    decoder: str,
    is_checked: bool,
) -> dict[int, str] | TunerError:
    read = read_image if is_checked else read_unchecked
    pixels_offset = offset + HEADER_BYTES
    unreadable = {}
    for row, path in enumerate(paths):
        if os.pread(exchange_fd, WORD.size, offset) == WORD.pack(False):
            break
        os.pwrite(exchange_fd, WORD.pack(row + 1), offset + WORD.size)
        try:
            pixels = read(path, stored_px=stored_px, decoder=decoder)
        except TunerError as error:
            return error
        except Exception as error:  # its own kind may not survive the way to the pool
            return RunError(f"{path}: {type(error).__name__}: {error}")
        if isinstance(pixels, str):
            unreadable[row] = pixels
            pixels = np.zeros((stored_px, stored_px, 3), np.uint8)
        pixels_offset += os.pwrite(exchange_fd, pixels.data, pixels_offset)
    return unreadable


def _exit_with_pool(connection: Connection) -> None:
    """End this process when the other end closes, even while it hangs on a dead disk.

    PR_SET_PDEATHSIG would end it with the *thread* that started it, and Ray runs every trial of a
    reused actor in a new thread.
    """
    hang_up = select.poll()
    hang_up.register(connection.fileno(), 0)
    hang_up.poll()
    os._exit(0)


if __name__ == "__main__":
    serve(
        Connection(int(sys.argv[1])),
        int(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4],
        is_checked=sys.argv[5] == "checked",
    )
