"""Batches of a loader on the device, copied there while it computes."""

from collections.abc import Generator, Iterable
from contextlib import closing
from functools import cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class BatchSource(Protocol):
    """What training needs of a loader."""

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[Tensor, None, None]:
        """Yield one uint8 tensor (n, size, size, 3) per array of n positions.

        On the CPU, or on the device where it is kept there.
        """
        ...


def device_batches(
    source: BatchSource, split: str, positions: Iterable[NDArray[np.int64]], device: torch.device
) -> Generator[Tensor, None, None]:
    """Yield the batches of `source`, on a GPU copied beside the work that it has yet to do.

    The host is steps ahead of a GPU, so a copy that is asked for now runs during an earlier step.
    Where a whole batch does not fit there it comes as it is: a step takes it slice by slice.
    """
    with closing(source.batches(split, positions)) as batches:
        for batch in batches:
            yield batch if device.type == batch.device.type else _copied(batch, device)


def _copied(batch: Tensor, device: torch.device) -> Tensor:
    copying, computing = _copy_stream(device), torch.cuda.current_stream(device)
    try:
        with torch.cuda.stream(copying):
            copied = batch.to(device, non_blocking=True)
    except torch.OutOfMemoryError:
        return batch
    computing.wait_stream(copying)
    # Its memory is the copying stream's, which would give it away while a step still reads it.
    copied.record_stream(computing)
    return copied


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the one stream for copies: what is freed on it is found again only by itself."""
    return torch.cuda.Stream(device)
