"""Images come decoded from the cache where there is room for it, and are the same without."""

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.prepared import prepare_quietly
from tuner.data.cache import DecodedImages
from tuner.data.cached_loader import CachedLoader, DeviceLoader
from tuner.data.decode import DECODERS
from tuner.data.loader import Loader
from tuner.data.prepare import PreparedData
from tuner.errors import DataError, RunError
from tuner.reading import (
    Decoding,
    build_loader,
    decode_images,
    decoded_place,
)
from tuner.settings.config import Config
from tuner.settings.wording import shown_path

GENEROUS = 2**40


@pytest.fixture
def config(image_folder: Path) -> Config:
    return Config().with_overrides(
        {"data.source": "folder", "data.root": str(image_folder), "data.image_size": 16}
    )


@pytest.fixture
def data(config: Config, tmp_path: Path) -> PreparedData:
    return prepare_quietly(config, tmp_path)


def decode(
    config: Config, data: PreparedData, cache_root: Path, **options: int
) -> tuple[str, Path | None]:
    """Return what is said, and where decoded images may be read then."""
    decoding = decode_images(
        config,
        data,
        cache_root,
        num_processes=1,
        progress=lambda done, total: None,
        **({"memory_bytes": GENEROUS} | options),
    )
    root = None if decoding.refusal else cache_root
    return decoding.told(config.data.cache, has_gpu=False), root


def batches(config: Config, data: PreparedData, root: Path | None) -> Iterator[torch.Tensor]:
    with closing(build_loader(config, data, root)) as loader:
        for index in (data.train, data.validation):
            yield from loader.batches(index.split, [np.arange(len(index))[::-1]])


def kind_of_loader(config: Config, data: PreparedData, root: Path | None) -> type:
    with closing(build_loader(config, data, root)) as loader:
        return type(loader)


@pytest.mark.parametrize("crop", ["none", "resized"])
@pytest.mark.parametrize("decoder", sorted(DECODERS))
def test_decoded_images_are_those_of_the_files(
    config: Config, tmp_path: Path, crop: str, decoder: str
) -> None:
    config = config.with_overrides({"augment.crop": crop, "data.decoder": decoder})
    data = prepare_quietly(config, tmp_path)
    from_files = list(batches(config, data, None))

    told, root = decode(config, data, tmp_path)
    assert root == tmp_path
    stored_px = from_files[0].shape[1]
    assert told == f"36 images decoded, {stored_px} px, 0 MB in {shown_path(tmp_path / 'decoded')}"
    assert kind_of_loader(config, data, tmp_path) is CachedLoader
    for cached, plain in zip(batches(config, data, tmp_path), from_files, strict=True):
        assert torch.equal(cached, plain)


def test_images_are_decoded_once(config: Config, data: PreparedData, tmp_path: Path) -> None:
    decode(config, data, tmp_path)
    told, _ = decode(config, data, tmp_path)
    assert told == f"images decoded before, 16 px, 0 MB in {shown_path(tmp_path / 'decoded')}"


def test_a_damaged_file_is_mended(config: Config, data: PreparedData, tmp_path: Path) -> None:
    before = list(batches(config, data, None))
    decode(config, data, tmp_path)
    path = decoded_place(config, data, tmp_path).path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    told, _ = decode(config, data, tmp_path)
    assert told.startswith("1 of 36 images decoded, ")
    for cached, plain in zip(batches(config, data, tmp_path), before, strict=True):
        assert torch.equal(cached, plain)


def test_other_images_get_a_file_of_their_own(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    decode(config, data, tmp_path)
    data.train.absolute(0).write_bytes(data.train.absolute(1).read_bytes())
    (tmp_path / "other").mkdir()
    changed = prepare_quietly(config, tmp_path / "other")
    assert kind_of_loader(config, changed, tmp_path) is Loader
    assert decode(config, changed, tmp_path)[0].startswith("36 images decoded, ")


def test_nothing_is_kept_where_it_is_not_wanted(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    decode(config, data, tmp_path)
    without = config.with_overrides({"data.cache": "none"})
    assert decode(without, data, tmp_path) == (
        "images are decoded whenever they are needed: data.cache=none",
        None,
    )
    assert kind_of_loader(without, data, None) is Loader


def test_auto_keeps_nothing_that_would_crowd_memory_unless_told(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    assert decode(config, data, tmp_path, memory_bytes=60_000) == (
        "images are decoded whenever they are needed: they take 0.0 GB, above half of the "
        "0.0 GB of memory (data.cache=decoded or device keeps them all the same)",
        None,
    )
    assert not (tmp_path / "decoded").exists()
    told = config.with_overrides({"data.cache": "decoded"})
    assert decode(told, data, tmp_path, memory_bytes=60_000)[0].startswith("36 images decoded")
    again, _ = decode(config, data, tmp_path, memory_bytes=60_000)
    assert again.startswith("images decoded before")


def test_auto_leaves_room_for_what_comes_later(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    told, root = decode(config, data, tmp_path, spared_bytes=GENEROUS)
    assert root is None
    assert "above half of the 0.0 GB that checkpoints leave free on its disk" in told


def test_a_folder_that_cannot_be_written_matters_only_where_it_is_insisted_on(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "decoded").write_text("in the way")
    why = f"cannot be kept in {root / 'decoded'} (File exists)"
    told = f"images are decoded whenever they are needed: they {why}"
    assert decode(config, data, root) == (told, None)
    insisting = config.with_overrides({"data.cache": "decoded"})
    with pytest.raises(DataError) as caught:
        decode(insisting, data, root)
    assert str(caught.value) == (
        f"data.cache: decoded images {why}; use another data.cache_root, or data.cache=auto"
    )


def test_what_a_killed_start_had_begun_is_gone_on_with(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    decode(config, data, tmp_path)
    path = decoded_place(config, data, tmp_path).path
    path.rename(path.with_suffix(".unfinished"))
    told, _ = decode(config, data, tmp_path, memory_bytes=60_000)  # no room to begin it
    assert told.startswith("images decoded before")
    assert path.exists()


def test_a_finished_file_of_others_needs_no_right_to_write(
    config: Config, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode(config, data, tmp_path)

    monkeypatch.setattr("tuner.data.cache.FileLock", refuse)
    assert decode(config, data, tmp_path)[0].startswith("images decoded before")


def test_a_damaged_file_of_others_is_left_alone_and_not_read(
    config: Config, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode(config, data, tmp_path)
    path = decoded_place(config, data, tmp_path).path
    damaged = path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])
    path.write_bytes(damaged)
    monkeypatch.setattr("tuner.data.cache.FileLock", refuse)
    told, root = decode(config, data, tmp_path)
    assert told == (
        "images are decoded whenever they are needed: they cannot be kept in "
        f"{path.parent} (Permission denied)"
    )
    assert kind_of_loader(config, data, root) is Loader
    assert path.read_bytes() == damaged


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_processes_that_cannot_be_started_are_no_fault_of_the_disk(
    config: Config, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.data.pool._start_worker", refuse)
    with pytest.raises(RunError) as caught:
        decode(config, data, tmp_path)
    assert str(caught.value) == (
        "loader: no process can be started to decode images ([Errno 13] Permission denied)"
    )


@pytest.mark.parametrize(
    ("cache", "has_gpu", "end"),
    [
        ("auto", False, "decoded"),
        ("auto", True, "decoded; on the GPU, too, where a quarter of a trial's share holds them"),
        ("device", True, "decoded; on the GPU, too, where a quarter of a trial's share holds them"),
        ("device", False, "decoded; there is no GPU to keep them on"),
        ("decoded", True, "decoded"),
    ],
)
def test_it_is_said_where_decoded_images_are(
    config: Config, data: PreparedData, cache: str, has_gpu: bool, end: str
) -> None:
    place = decoded_place(config, data, Path("root"))
    assert Decoding(place).told(cache, has_gpu=has_gpu).endswith(f" in root/{end}")


class Card:
    """Stands for a GPU: batches are kept where the CPU's are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_full: bool = False) -> None:
        self._is_full = is_full
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        monkeypatch.setattr("tuner.reading.DeviceLoader", self.keep)

    def keep(self, images: DecodedImages, first_rows: dict[str, int], device: Any) -> DeviceLoader:
        if self._is_full:
            raise torch.OutOfMemoryError("full")
        return DeviceLoader(images, first_rows, torch.device("cpu"))


@pytest.mark.parametrize(
    ("cache", "spare_bytes", "is_full", "kind"),
    [
        ("auto", 0, False, DeviceLoader),
        ("device", 0, False, DeviceLoader),
        ("decoded", 0, False, CachedLoader),
        ("auto", -1, False, CachedLoader),
        ("device", 0, True, CachedLoader),
    ],
)
def test_a_card_keeps_what_fits_its_part_of_a_trials_share(
    config: Config,
    data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cache: str,
    spare_bytes: int,
    is_full: bool,
    kind: type,
) -> None:
    config = config.with_overrides({"data.cache": cache})
    decode(config, data, tmp_path)
    plain = list(batches(config, data, None))
    Card(monkeypatch, is_full=is_full)
    num_bytes = decoded_place(config, data, tmp_path).header.num_bytes
    loader = build_loader(config, data, tmp_path, device_bytes=num_bytes + spare_bytes)
    with closing(loader):
        assert type(loader) is kind
        if kind is DeviceLoader:  # a CPU cannot pin what the other reads
            (batch,) = loader.batches("train", [np.arange(len(data.train))[::-1]])
            assert torch.equal(batch, plain[0])
