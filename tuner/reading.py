"""From settings to batches: images decoded once for everybody, and what reads them."""

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tuner.data.augment import stored_size_px
from tuner.data.cache import CacheHeader, DecodedImages, ensure_decoded, holds, unfinished_of
from tuner.data.cached_loader import CachedLoader, DeviceLoader
from tuner.data.decode import decoder_versions
from tuner.data.index import ImageIndex
from tuner.data.loader import Loader
from tuner.data.prepare import PreparedData
from tuner.data.verify import Progress
from tuner.errors import DataError, RunError
from tuner.files import free_bytes
from tuner.planning.decoded import why_not_decoded
from tuner.reporting.terminal import bytes_text
from tuner.settings.config import Config
from tuner.settings.wording import shown_path
from tuner.training.feed import BatchSource

DECODED = "decoded"  # the folder under the cache's root


class ClosableSource(BatchSource, Protocol):
    """A loader, whatever it reads from."""

    def close(self) -> None:
        """End its workers and give its memory back."""
        ...


@dataclass(frozen=True, slots=True)
class DecodedPlace:
    """Where the decoded images of a data set belong."""

    path: Path
    header: CacheHeader

    @property
    def is_there(self) -> bool:
        """Whether they have been decoded."""
        return holds(self.path, self.header)

    @property
    def is_begun(self) -> bool:
        """Whether a killed process has left a part of them."""
        return holds(unfinished_of(self.path), self.header)


@dataclass(frozen=True, slots=True)
class Decoding:
    """What came of decoding the images beforehand.

    Attributes:
        place: Where they belong.
        num_decoded: Images that were not there yet.
        refusal: Why they are not kept; None where they are.
    """

    place: DecodedPlace
    num_decoded: int = 0
    refusal: str | None = None

    def told(self, cache: str, *, has_gpu: bool) -> str:
        """Returns it for people.

        Args:
            cache: The setting `data.cache`.
            has_gpu: Whether training uses one.
        """
        if self.refusal:
            return f"images are decoded whenever they are needed: {self.refusal}"
        header, num_decoded = self.place.header, self.num_decoded
        of = "" if num_decoded == header.num_images else f" of {header.num_images}"
        done = f"{num_decoded}{of} images decoded" if num_decoded else "images decoded before"
        size = f"{header.stored_px} px, {bytes_text(header.num_bytes)}"
        gpu = ""
        if has_gpu and cache != "decoded":
            gpu = "; on the GPU, too, where a quarter of a trial's share holds them"
        elif cache == "device":
            gpu = "; there is no GPU to keep them on"
        return f"{done}, {size} in {shown_path(self.place.path.parent)}{gpu}"


def decode_images(
    config: Config,
    data: PreparedData,
    cache_root: Path,
    *,
    memory_bytes: int,
    num_processes: int,
    progress: Progress,
    spared_bytes: int = 0,
) -> Decoding:
    """Decodes the images for everybody where that is wanted and there is room; returns what came.

    What lies there already, or was begun, is used whatever there is room for.

    Args:
        config: `data.cache` and what decides the pixels.
        data: The images.
        cache_root: Where caches are kept.
        memory_bytes: Of the machine.
        num_processes: Processes that decode, threads that check.
        progress: Told as the work goes on.
        spared_bytes: Of the disk, for what comes later; `data.cache=auto` leaves them.

    Raises:
        DataError: An image has changed since it was checked; or `data.cache` insists on a file that
            cannot be kept there.
    """
    place = decoded_place(config, data, cache_root)
    if config.data.cache == "none":
        return Decoding(place, refusal="data.cache=none")
    if config.data.cache == "auto" and not (place.is_there or place.is_begun):
        room_bytes = max(0, free_bytes(cache_root) - spared_bytes)
        refusal = why_not_decoded(
            place.header.num_bytes, free_bytes=room_bytes, memory_bytes=memory_bytes
        )
        if refusal:
            return Decoding(place, refusal=refusal)

    decode = partial(decode_originals, config, data, num_processes, place.header)
    try:
        num_decoded = ensure_decoded(
            place.path, place.header, decode, num_threads=num_processes, progress=progress
        )
    except OSError as error:
        refusal = f"cannot be kept in {place.path.parent} ({error.strerror or error})"
        if config.data.cache == "auto":
            return Decoding(place, refusal=f"they {refusal}")
        raise DataError(
            f"data.cache: decoded images {refusal}; use another data.cache_root, or data.cache=auto"
        ) from error
    return Decoding(place, num_decoded=num_decoded)


def decode_originals(
    config: Config,
    data: PreparedData,
    num_processes: int,
    header: CacheHeader,
    chunks: Sequence[NDArray[np.int64]],
) -> Generator[NDArray[np.uint8], None, None]:
    """Yields the pixels of each chunk of images, decoded by so many processes.

    Raises:
        DataError: An image has changed since it was checked.
        RunError: The processes cannot be started, or end.
    """
    try:
        loader = read_originals(
            config,
            {"all": joined(data)},
            num_workers=num_processes,
            prefetch_factor=max(2, ceil(2 * num_processes / header.chunk_images)),
        )
    except OSError as error:
        raise RunError(f"loader: no process can be started to decode images ({error})") from error
    with loader:
        yield from (batch.numpy() for batch in loader.batches("all", chunks))


def decoded_place(config: Config, data: PreparedData, cache_root: Path) -> DecodedPlace:
    """Returns where the images belong, decoded at the size that the augmentation cuts from."""
    stored_px = stored_size_px(config.augment.crop, config.data.image_size)
    content = (
        f"{data.images_fingerprint}, {stored_px} px, {config.data.decoder}, {decoder_versions()}"
    )
    header = CacheHeader(content, len(data.train) + len(data.validation), stored_px)
    name = hashlib.sha256(header.to_bytes()).hexdigest()[:16]
    return DecodedPlace(cache_root / DECODED / f"{name}.pixels", header)


def joined(data: PreparedData) -> ImageIndex:
    """Returns the images of both splits as one list, training first, as the cache holds them."""
    paths = [*data.train.paths(), *data.validation.paths()]
    labels = [*data.train.labels.tolist(), *data.validation.labels.tolist()]
    return ImageIndex.from_paths("all", data.train.root, data.train.classes, paths, labels)


def build_loader(
    config: Config, data: PreparedData, decoded_root: Path | None, *, device_bytes: int = 0
) -> ClosableSource:
    """Returns a loader of both splits, at the size that the augmentation cuts from.

    Args:
        config: All settings.
        data: The images.
        decoded_root: Where `decode_images` has kept them; None reads the files themselves, and so
            does a file that has gone since. That changes no pixel.
        device_bytes: What decoded images may take of the GPU.
    """
    has_gpu = torch.cuda.is_available()
    place = decoded_place(config, data, decoded_root) if decoded_root else None
    if place is None or not place.is_there:
        return read_originals(
            config,
            {"train": data.train, "validation": data.validation},
            num_workers=config.loader.num_workers,
            prefetch_factor=config.loader.prefetch_factor,
            is_pinned=has_gpu,
        )
    images = DecodedImages(place.path, place.header)
    first_rows = {"train": 0, "validation": len(data.train)}
    is_wanted = config.data.cache in ("auto", "device")
    if is_wanted and place.header.num_bytes <= device_bytes and has_gpu:
        try:
            return DeviceLoader(images, first_rows, torch.device("cuda"))
        except torch.OutOfMemoryError:
            pass  # the card is shared with somebody who does not keep to a share
    return CachedLoader(images, first_rows, is_pinned=has_gpu)


def read_originals(
    config: Config,
    indexes: dict[str, ImageIndex],
    *,
    num_workers: int,
    prefetch_factor: int,
    is_pinned: bool = False,
) -> Loader:
    """Returns a loader that decodes the files themselves."""
    return Loader(
        indexes,
        stored_px=stored_size_px(config.augment.crop, config.data.image_size),
        decoder=config.data.decoder,
        num_workers=num_workers,
        prefetch_factor=prefetch_factor,
        is_pinned=is_pinned,
    )
