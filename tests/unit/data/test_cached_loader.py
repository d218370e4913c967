"""Batches of decoded images are those of the files, wherever the decoded ones are kept."""

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from tuner.data.cache import CacheHeader, DecodedImages, Rows, ensure_decoded
from tuner.data.cached_loader import CachedLoader, DeviceLoader

HEADER = CacheHeader("cats", num_images=70, stored_px=4)
PIXELS = np.random.default_rng(0).integers(0, 256, (70, 4, 4, 3), np.uint8)
FIRST_ROWS = {"train": 0, "validation": 50}


def decode(chunks: Sequence[Rows]) -> Generator[np.ndarray, None, None]:
    yield from (PIXELS[rows] for rows in chunks)


@pytest.fixture(params=["disk", "device"])
def loader(tmp_path: Path, request: pytest.FixtureRequest) -> CachedLoader | DeviceLoader:
    path = tmp_path / "b.pixels"
    ensure_decoded(path, HEADER, decode, num_threads=1, progress=lambda done, total: None)
    images = DecodedImages(path, HEADER)
    if request.param == "disk":
        return CachedLoader(images, FIRST_ROWS)
    return DeviceLoader(images, FIRST_ROWS, torch.device("cpu"))


def test_batches_are_the_images_asked_for(loader: CachedLoader | DeviceLoader) -> None:
    chosen = [np.array([3, 49, 3]), np.array([], np.int64), np.arange(50)]
    with closing(loader):
        train = list(loader.batches("train", chosen))
        (validation,) = loader.batches("validation", [np.array([0, 19])])
    for batch, positions in zip(train, chosen, strict=True):
        assert batch.dtype == torch.uint8
        np.testing.assert_array_equal(batch.numpy(), PIXELS[positions])
    np.testing.assert_array_equal(validation.numpy(), PIXELS[[50, 69]])


def test_batches_are_taken_one_by_one(loader: CachedLoader | DeviceLoader) -> None:
    taken = []

    def positions() -> Generator[np.ndarray, None, None]:
        for number in range(5):
            taken.append(number)
            yield np.array([number])

    with closing(loader), closing(loader.batches("train", positions())) as batches:
        next(batches)
        assert taken == [0]
