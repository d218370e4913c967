"""Whole optimizer batches from decoded images: no worker is needed to keep up."""

from collections.abc import Generator, Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tuner.data.augment import to_device
from tuner.data.cache import DecodedImages
from tuner.data.loader import empty_batch


class CachedLoader:
    """Batches of uint8 images out of one file, the same as a `Loader` reads from the originals.

    Args:
        images: The decoded images; closed with the loader.
        first_rows: Where the images of each split begin in the file.
        is_pinned: As for a `Loader`.
    """

    def __init__(
        self, images: DecodedImages, first_rows: Mapping[str, int], *, is_pinned: bool = False
    ) -> None:
        self._images = images
        self._first_rows = first_rows
        self._is_pinned = is_pinned

    def close(self) -> None:
        """Close the file."""
        self._images.close()

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[Tensor, None, None]:
        """Yield one uint8 CPU tensor (n, stored_px, stored_px, 3) for each array of n positions.

        Raises:
            OSError: The disk fails.
        """
        for chosen in positions:
            yield self.read(self._first_rows[split] + chosen)

    def read(self, rows: NDArray[np.int64]) -> Tensor:
        """Return the images of n rows of the file, uint8 (n, stored_px, stored_px, 3)."""
        batch = empty_batch(len(rows), self._images.header.stored_px, is_pinned=self._is_pinned)
        self._images.read(rows, batch.numpy())
        return batch


class DeviceLoader:
    """The same with all images on the GPU: a batch is picked there and nothing crosses the bus.

    Args:
        images: The decoded images; read once and closed.
        first_rows: Where the images of each split begin.
        device: The GPU.

    Raises:
        torch.OutOfMemoryError: They do not fit.
    """

    def __init__(
        self, images: DecodedImages, first_rows: Mapping[str, int], device: torch.device
    ) -> None:
        header = images.header
        self._first_rows = first_rows
        shape = (header.num_images, header.stored_px, header.stored_px, 3)
        self._pixels = torch.empty(shape, dtype=torch.uint8, device=device)
        reader = CachedLoader(images, first_rows, is_pinned=device.type == "cuda")
        for start in range(0, header.num_images, header.chunk_images):
            rows = np.arange(start, min(start + header.chunk_images, header.num_images))
            self._pixels[start : start + len(rows)].copy_(reader.read(rows), non_blocking=True)
        reader.close()

    def close(self) -> None:
        """Give the GPU's memory back, once no batch is left."""
        del self._pixels

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[Tensor, None, None]:
        """Yield one uint8 tensor (n, stored_px, stored_px, 3) on the GPU for each n positions."""
        for chosen in positions:
            rows = to_device(self._first_rows[split] + chosen, self._pixels.device)
            yield self._pixels.index_select(0, rows)
