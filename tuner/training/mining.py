"""What a run that mines has to remember, and what its next epoch takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tuner.data.augment import to_device
from tuner.data.index import ImageIndex
from tuner.data.keyed import epoch_order
from tuner.data.mining import Mining, hard_positions, mining_order
from tuner.training.plan import PlannedStep, Recipe, plan_epoch


@dataclass(slots=True)
class MiningState:
    """The losses so far, and the epoch under way: a whole one, or one on `hard` and some others."""

    losses: Tensor  # (n,) float32 on the device, each image's last; NaN: not trained on yet
    first_hard: NDArray[np.int64]  # positions known beforehand, for the first time
    epoch: int = -1
    epoch_start: int = 0  # images seen before it
    epoch_end: int = 0
    hard: NDArray[np.int64] | None = None
    has_mined: bool = False

    def note(self, positions: NDArray[np.int64], losses: Tensor) -> None:
        """Remember the losses (n,) of the images at `positions`, without waiting for them."""
        at = to_device(positions, self.losses.device)
        self.losses.index_copy_(0, at, losses.to(self.losses.dtype))

    def steps(
        self, samples_seen: int, end: int, train: ImageIndex, recipe: Recipe
    ) -> Iterator[PlannedStep]:
        """Return the steps from `samples_seen` to the first at or past `end`, or the epoch's end.

        At the end of an epoch it begins the next: it looks at the losses, and waits for them. The
        run's last epoch is cut where its budget is used up.
        """
        assert recipe.mining is not None
        if samples_seen == self.epoch_end:
            self.epoch, self.epoch_start = self.epoch + 1, samples_seen
            self.hard = self._next_hard(samples_seen, train, recipe, recipe.mining)
            self.has_mined |= self.hard is not None
        order = self._order(train, recipe, recipe.mining)
        self.epoch_end = self.epoch_start + len(order)
        start = samples_seen - self.epoch_start
        return plan_epoch(self.epoch, order, start, end - samples_seen, recipe.batch_size)

    def to_plain(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it."""
        return {
            "losses": self.losses,
            "epoch": self.epoch,
            "epoch_start": self.epoch_start,
            "epoch_end": self.epoch_end,
            "hard": None if self.hard is None else torch.from_numpy(self.hard),
            "has_mined": self.has_mined,
        }

    def restore(self, plain: Mapping[str, Any]) -> None:
        """Go back to where `to_plain` was called."""
        self.losses = plain["losses"].to(self.losses.device, copy=True)
        self.epoch = plain["epoch"]
        self.epoch_start = plain["epoch_start"]
        self.epoch_end = plain["epoch_end"]
        self.hard = None if plain["hard"] is None else plain["hard"].numpy()
        self.has_mined = plain["has_mined"]

    def _next_hard(
        self, samples_seen: int, train: ImageIndex, recipe: Recipe, mining: Mining
    ) -> NDArray[np.int64] | None:
        progress = samples_seen / (recipe.epochs * len(train))
        if not mining.start_fraction <= progress < mining.end_fraction:
            return None
        if len(self.first_hard) and not self.has_mined:
            return self.first_hard
        losses = self.losses.cpu().numpy()
        num_hard = round(mining.hard_fraction * len(losses))
        if np.isfinite(losses).sum() < max(1, num_hard):
            return None  # those that are hard first would stay so for ever
        return hard_positions(losses, train.labels, mining.hard_fraction)

    def _order(self, train: ImageIndex, recipe: Recipe, mining: Mining) -> NDArray[np.int64]:
        if self.hard is None:
            order = epoch_order(train.keys, seed=recipe.seed, epoch=self.epoch)
        else:
            order = mining_order(
                self.hard, train.keys, ratio=mining.ratio, seed=recipe.seed, epoch=self.epoch
            )
        return order[: recipe.epochs * len(train) - self.epoch_start]


def start_mining(
    num_images: int, first_hard: NDArray[np.int64], device: torch.device
) -> MiningState:
    """Return what is known before the first image: at most which are hard."""
    return MiningState(torch.full((num_images,), torch.nan, device=device), first_hard)
