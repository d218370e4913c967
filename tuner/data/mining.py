"""Hard images: which they are by their losses, and what an epoch on them takes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.data.keyed import Stream, epoch_order, keyed_bits


@dataclass(frozen=True, slots=True)
class Mining:
    """How often training comes back to hard images; the settings of the same names."""

    ratio: float
    hard_fraction: float
    start_fraction: float
    end_fraction: float


def hard_positions(
    losses: NDArray[np.float32], labels: NDArray[np.int64], fraction: float
) -> NDArray[np.int64]:
    """Return the positions of the images that count as hard, int64 (h,), the hardest first.

    They are the `fraction` of the highest loss, where at least one of each class is among them: an
    epoch on hard images alone must not empty a class. Equal losses go by position.

    Args:
        losses: float (n,), each image's last; NaN for one that was never trained on, which is hard
            only where its class has no other.
        labels: int64 (n,).
        fraction: Of all n images.
    """
    num_known = int(np.isfinite(losses).sum())
    num_hard = min(round(fraction * len(losses)), num_known)
    order = np.argsort(-losses, kind="stable")  # NaN comes last
    _, first_of_class = np.unique(labels[order], return_index=True)
    is_hard = np.zeros(len(losses), bool)  # by place in the order
    is_hard[first_of_class] = True
    num_more = max(0, num_hard - len(first_of_class))
    is_hard[np.flatnonzero(~is_hard)[:num_more]] = True
    return order[is_hard].astype(np.int64)


def mining_order(
    hard: NDArray[np.int64], keys: NDArray[np.uint64], *, ratio: float, seed: int, epoch: int
) -> NDArray[np.int64]:
    """Return the positions of a mining epoch in their order, int64 (m,).

    All of `hard` are there once, and as many others, drawn anew for each epoch, that there are
    ``round(len(hard) * ratio)`` in all, or every image.
    """
    is_taken = np.zeros(len(keys), bool)
    is_taken[hard] = True
    others = np.flatnonzero(~is_taken)
    num_others = min(round(len(hard) * ratio) - len(hard), len(others))
    bits = keyed_bits(keys[others], seed=seed, epoch=epoch, stream=Stream.MINING)
    is_taken[others[np.argsort(bits, kind="stable")[:num_others]]] = True
    order = epoch_order(keys, seed=seed, epoch=epoch)
    return order[is_taken[order]]
