"""Draws depend on seed, epoch, stream and image, and look random in each of them."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.data.keyed import Stream, epoch_order, keyed_bits, keyed_uniform, stable_keys

KEYS = stable_keys(f"train/cat/{number}.jpg" for number in range(20_000))
COUNTERS = np.arange(20_000, dtype=np.uint64)
KNOWN_KEYS = [9918916968011810814, 9536703423376393374]
KNOWN_BITS = [2451599656376791018, 10732838627540180999]


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    return abs(float(np.corrcoef(first, second)[0, 1]))


def test_keys_and_draws_never_change_between_versions_and_machines() -> None:
    keys = stable_keys(["a.jpg", "Ünï 日本/b.jpg"])
    bits = keyed_bits(keys, seed=1, epoch=2, stream=Stream.FLIP)
    assert keys.tolist() == KNOWN_KEYS
    assert bits.tolist() == KNOWN_BITS


def test_another_process_draws_the_same() -> None:
    code = (
        "from tuner.data.keyed import *\n"
        "print(epoch_order(stable_keys(map(str, range(9))), seed=3, epoch=4).tolist())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = epoch_order(stable_keys(map(str, range(9))), seed=3, epoch=4)
    assert found.stdout.strip() == str(here.tolist())


@pytest.mark.parametrize("keys", [KEYS, COUNTERS], ids=["hashed", "counters"])
def test_draws_are_uniform(keys: np.ndarray) -> None:
    for epoch in range(5):
        draws = keyed_uniform(keys, seed=0, epoch=epoch, stream=Stream.CROP_X)
        assert draws.min() >= 0
        assert draws.max() < 1
        counts = np.bincount((draws * 100).astype(int), minlength=100)
        chi2 = ((counts - 200) ** 2 / 200).sum()  # 99 degrees of freedom
        assert 40 < chi2 < 180


@pytest.mark.parametrize("keys", [KEYS, COUNTERS], ids=["hashed", "counters"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0, 1, Stream.FLIP), (1, 0, Stream.FLIP)),
        ((0, 0, Stream.FLIP), (0, 1, Stream.FLIP)),
        ((0, 0, Stream.FLIP), (1, 0, Stream.FLIP)),
        ((7, 7, Stream.CROP_Y), (7, 7, Stream.CROP_X)),
        ((2, 3, Stream.ORDER), (3, 2, Stream.SPLIT)),
    ],
)
def test_draws_of_other_seed_epoch_or_stream_have_nothing_in_common(
    keys: np.ndarray, first: tuple[int, int, Stream], second: tuple[int, int, Stream]
) -> None:
    one, other = (
        keyed_uniform(keys, seed=seed, epoch=epoch, stream=stream)
        for seed, epoch, stream in (first, second)
    )
    assert not np.any(one == other)
    assert correlation(one, other) < 0.03  # four standard deviations


def test_neighbouring_keys_have_nothing_in_common() -> None:
    draws = keyed_uniform(COUNTERS, seed=0, epoch=0, stream=Stream.FLIP)
    assert correlation(draws[:-1], draws[1:]) < 0.03


@given(st.integers(-(2**64), 2**64), st.integers(0, 10**6), st.integers(0, 300))
def test_every_epoch_order_takes_each_image_once(seed: int, epoch: int, num_images: int) -> None:
    order = epoch_order(KEYS[:num_images], seed=seed, epoch=epoch)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(num_images))


@given(st.sets(st.integers(0, 199), min_size=1), st.integers(0, 99))
def test_the_order_among_some_images_does_not_depend_on_the_others(
    chosen: set[int], epoch: int
) -> None:
    whole = [int(p) for p in epoch_order(KEYS[:200], seed=0, epoch=epoch) if p in chosen]
    positions = np.array(sorted(chosen))
    alone = positions[epoch_order(KEYS[positions], seed=0, epoch=epoch)]
    assert whole == alone.tolist()
