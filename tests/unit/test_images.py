"""Images come decoded from the cache where there is room for it, and are the same without."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from tuner.data.cached_loader import CachedLoader
from tuner.data.decode import DECODERS
from tuner.data.loader import Loader
from tuner.data.prepare import PreparedData
from tuner.errors import DataError
from tuner.images import build_loader, decode_images, decoded_place, prepare_images
from tuner.settings.config import Config

GENEROUS = 2**40


@pytest.fixture
def config(image_folder: Path) -> Config:
    return Config().with_overrides(
        {"data.source": "folder", "data.root": str(image_folder), "data.image_size": 16}
    )


@pytest.fixture
def data(config: Config, tmp_path: Path) -> PreparedData:
    return prepare(config, tmp_path)


def prepare(config: Config, folder: Path) -> PreparedData:
    return prepare_images(
        config,
        folder,
        report_path=folder / "dataset.json",
        num_processes=1,
        progress=lambda done, total: None,
    )


def decode(
    config: Config, data: PreparedData, cache_root: Path, memory_bytes: int = GENEROUS
) -> str:
    return decode_images(
        config,
        data,
        cache_root,
        memory_bytes=memory_bytes,
        num_processes=1,
        progress=lambda done, total: None,
    )


def batches(config: Config, data: PreparedData, cache_root: Path) -> Iterator[torch.Tensor]:
    with closing(build_loader(config, data, cache_root)) as loader:
        for index in (data.train, data.validation):
            yield from loader.batches(index.split, [np.arange(len(index))[::-1]])


@pytest.mark.parametrize("crop", ["none", "resized"])
@pytest.mark.parametrize("decoder", sorted(DECODERS))
def test_decoded_images_are_those_of_the_files(
    config: Config, tmp_path: Path, crop: str, decoder: str
) -> None:
    config = config.with_overrides({"augment.crop": crop, "data.decoder": decoder})
    data = prepare(config, tmp_path)
    from_files = list(batches(config, data, tmp_path))

    told = decode(config, data, tmp_path)
    stored_px = from_files[0].shape[1]
    assert told == f"36 images decoded, {stored_px} px, 0 MB in {tmp_path / 'decoded'}"
    assert isinstance(build_loader(config, data, tmp_path), CachedLoader)
    for cached, plain in zip(batches(config, data, tmp_path), from_files, strict=True):
        assert torch.equal(cached, plain)


def test_images_are_decoded_once(config: Config, data: PreparedData, tmp_path: Path) -> None:
    decode(config, data, tmp_path)
    told = decode(config, data, tmp_path)
    assert told == f"images decoded before, 16 px, 0 MB in {tmp_path / 'decoded'}"


def test_a_damaged_file_is_mended(config: Config, data: PreparedData, tmp_path: Path) -> None:
    before = list(batches(config, data, tmp_path))
    decode(config, data, tmp_path)
    path = decoded_place(config, data, tmp_path).path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    told = decode(config, data, tmp_path)
    assert told.startswith("1 of 36 images decoded, ")
    for cached, plain in zip(batches(config, data, tmp_path), before, strict=True):
        assert torch.equal(cached, plain)


def test_other_images_get_a_file_of_their_own(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    decode(config, data, tmp_path)
    data.train.absolute(0).write_bytes(data.train.absolute(1).read_bytes())
    (tmp_path / "other").mkdir()
    changed = prepare(config, tmp_path / "other")
    assert isinstance(build_loader(config, changed, tmp_path), Loader)
    assert decode(config, changed, tmp_path).startswith("36 images decoded, ")


def test_nothing_is_kept_where_it_is_not_wanted(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    decode(config, data, tmp_path)
    without = config.with_overrides({"data.cache": "none"})
    assert decode(without, data, tmp_path) == (
        "images are decoded whenever they are needed (data.cache=none)"
    )
    assert isinstance(build_loader(without, data, tmp_path), Loader)


def test_auto_keeps_nothing_that_would_crowd_memory_unless_told(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    assert decode(config, data, tmp_path, memory_bytes=60_000) == (
        "images are decoded whenever they are needed: decoded they take 0.0 GB, above half of the "
        "0.0 GB of memory (data.cache=decoded keeps them all the same)"
    )
    assert not (tmp_path / "decoded").exists()
    told = config.with_overrides({"data.cache": "decoded"})
    assert decode(told, data, tmp_path, memory_bytes=60_000).startswith("36 images decoded")
    assert decode(config, data, tmp_path, memory_bytes=60_000).startswith("images decoded before")


def test_a_folder_that_cannot_be_written_matters_only_where_it_is_insisted_on(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "decoded").write_text("in the way")
    where = f"{root / 'decoded'} cannot be written (File exists)"
    assert decode(config, data, root) == f"images are decoded whenever they are needed: {where}"
    insisting = config.with_overrides({"data.cache": "decoded"})
    with pytest.raises(DataError) as caught:
        decode(insisting, data, root)
    assert str(caught.value) == (
        f"data.cache_root: {where}; use another folder, or data.cache=auto"
    )
