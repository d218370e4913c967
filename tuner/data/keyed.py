"""Randomness as a function of (seed, epoch, image id).

There is no generator whose state could be lost at a crash or shifted by a worker more or less.
"""

import hashlib
from collections.abc import Iterable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, the increment of splitmix64
MASK = 2**64 - 1


class Stream(IntEnum):
    """What a draw is for; draws of different streams are independent of each other."""

    ORDER = 0
    SPLIT = 1
    LIMIT = 2
    CROP_Y = 3
    CROP_X = 4
    FLIP = 5
    ROTATE = 6
    CROP_AREA = 7
    CROP_ASPECT = 8
    MINING = 9


def stable_keys(paths: Iterable[str]) -> NDArray[np.uint64]:
    """Return one uint64 per image id, the same on every machine and in every Python process."""
    digests = (hashlib.blake2b(path.encode(), digest_size=8).digest() for path in paths)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def keyed_bits(
    keys: NDArray[np.uint64], *, seed: int, epoch: int, stream: Stream
) -> NDArray[np.uint64]:
    """Return 64 random bits per key, shape (n,), that depend on nothing but the arguments.

    Each word goes through the whole finaliser before the next one joins, so seed 0 epoch 1 and
    seed 1 epoch 0 have nothing in common (Steele et al. 2014, splitmix64).
    """
    state = np.zeros(1, np.uint64)
    for word in (seed, epoch, stream):
        state = _mix(state + np.uint64((word + GOLDEN) & MASK))
    return _mix(keys ^ state)


def keyed_uniform(
    keys: NDArray[np.uint64], *, seed: int, epoch: int, stream: Stream
) -> NDArray[np.float64]:
    """Return one float64 in [0, 1) per key, shape (n,)."""
    bits = keyed_bits(keys, seed=seed, epoch=epoch, stream=stream)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def epoch_order(keys: NDArray[np.uint64], *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the positions 0 to n - 1 in the order of this epoch, int64 (n,)."""
    bits = keyed_bits(keys, seed=seed, epoch=epoch, stream=Stream.ORDER)
    return np.argsort(bits, kind="stable").astype(np.int64)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
