"""What a run will do, as pure functions: its steps, and where its reports fall due."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.data.augment import Augment
from tuner.data.keyed import epoch_order
from tuner.data.mining import Mining


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train: all that decides the weights besides model, optimizer and images."""

    batch_size: int
    epochs: int
    report_samples: int
    peak_lr: float
    schedule: str
    warmup_fraction: float
    label_smoothing: float
    clip_norm: float | None
    seed: int
    augment: Augment
    ema_decay: float | None = None
    mining: Mining | None = None


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """The images of one optimizer step, as positions in the training index."""

    epoch: int
    positions: NDArray[np.int64]


def next_report(samples_seen: int, recipe: Recipe, num_images: int) -> int:
    """Return the first point above `samples_seen` at or past which a report falls due."""
    multiple = (samples_seen // recipe.report_samples + 1) * recipe.report_samples
    return min(multiple, recipe.epochs * num_images)


def nominal_samples(samples_seen: int, recipe: Recipe, num_images: int) -> int:
    """Return the multiple of the report length, or the budget, that a report counts for."""
    if samples_seen >= recipe.epochs * num_images:
        return samples_seen
    return samples_seen // recipe.report_samples * recipe.report_samples


def plan_steps(
    samples_seen: int, end: int, keys: NDArray[np.uint64], recipe: Recipe
) -> Iterator[PlannedStep]:
    """Yield the steps from `samples_seen`, a step's boundary, to the first at or past `end`.

    Every epoch is a new order of all images, cut into batches; the last one is short.
    """
    epoch, start = divmod(samples_seen, len(keys))
    while samples_seen < end:
        order = epoch_order(keys, seed=recipe.seed, epoch=epoch)
        for step in plan_epoch(epoch, order, start, end - samples_seen, recipe.batch_size):
            yield step
            samples_seen += len(step.positions)
        epoch, start = epoch + 1, 0


def plan_epoch(
    epoch: int, order: NDArray[np.int64], start: int, num_images: int, batch_size: int
) -> Iterator[PlannedStep]:
    """Yield the steps on `order` from its place `start`, until `num_images` or all are taken."""
    end = min(start + num_images, len(order))
    for first in range(start, end, batch_size):
        yield PlannedStep(epoch, order[first : first + batch_size])
