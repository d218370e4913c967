"""One optimizer step on a whole batch, in slices of whole ghost groups."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from tuner.training.ghost_norm import ghost_size, group_sizes
from tuner.training.keyed_dropout import keyed_dropouts, set_places
from tuner.training.memory import forget_peak, is_out_of_memory, release_memory

# Given rows of a batch, their images, ready for the model: (n, 3, size, size) on its device.
Prepare: TypeAlias = Callable[[slice], Tensor]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step leaves on the device; only `is_skipped` has been waited for, with a scaler."""

    losses: Tensor  # (n,) float, per image, with label smoothing
    cross_entropy: Tensor  # (n,) float, per image, without
    num_correct: Tensor  # () int64
    micro_batch_size: int  # smaller than asked where memory ran out
    is_skipped: bool  # no weight moved: a scaled gradient was no finite number


def micro_batch_size(batch_size: int, accumulate_steps: int | str, group_size: int) -> int:
    """Return the images of one slice: batch / accumulate_steps, rounded up to whole groups.

    ``auto`` begins with one slice.
    """
    per_slice = batch_size
    if not isinstance(accumulate_steps, str):
        per_slice = -(-batch_size // accumulate_steps)
    return -(-per_slice // group_size) * group_size


def slice_sizes(num_images: int, micro_batch_size: int, group_size: int) -> list[int]:
    """Return the sizes of the slices of a step on `num_images` images, each of whole groups."""
    groups = group_sizes(num_images, group_size)
    per_slice = micro_batch_size // group_size
    return [sum(groups[first : first + per_slice]) for first in range(0, len(groups), per_slice)]


def train_step(
    model: nn.Module,
    optimizer: Optimizer,
    scaler: GradScaler,
    prepare: Prepare,
    labels: Tensor,
    *,
    micro_batch_size: int,
    seed: int,
    autocast_dtype: torch.dtype | None = None,
    label_smoothing: float = 0.0,
    clip_norm: float | None = None,
    has_room: Callable[[], bool] | None = None,
) -> StepOutcome:
    """Take one optimizer step on the mean loss of the images that belong to `labels` (n,).

    `prepare` makes the images of one slice, rows of the batch, at a time: as numbers to compute
    with, only a slice is there. Losses are summed over the slices and divided once by n. Where
    memory runs out, BatchNorm's buffers and the random numbers go back to the step's start and the
    slice is halved in whole groups, so the step equals one that began with the smaller slice.
    `seed` keys the step's random numbers (dropout): no generator's state has to survive a crash.
    Where `has_room` says no, asked once the gradients are there, several groups are halved all the
    same. The device is waited for where gradients are scaled alone, to know of a step skipped.

    Raises:
        torch.OutOfMemoryError: One group alone does not fit.
    """
    buffers = list(model.buffers())
    before = [buffer.clone() for buffer in buffers]
    group_size = ghost_size(model)
    num_groups = len(group_sizes(len(labels), group_size))
    scale = scaler.get_scale()
    while True:
        torch.manual_seed(seed)
        sizes = slice_sizes(len(labels), micro_batch_size, group_size)
        optimizer.zero_grad()
        found = _gradients(
            model, scaler, prepare, labels, sizes, seed, autocast_dtype, label_smoothing
        )
        if found is not None and (has_room is None or has_room() or len(sizes) == num_groups):
            break
        found = None
        micro_batch_size = _smaller(micro_batch_size, len(labels), group_size)
        optimizer.zero_grad()
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
        release_memory(labels.device)
        forget_peak(labels.device)
    if clip_norm is not None:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    scaler.step(optimizer)
    scaler.update()
    return StepOutcome(*found, micro_batch_size, is_skipped=scaler.get_scale() < scale)


def step_seed(seed: int, samples_seen: int) -> int:
    """Return the key of a step's random numbers; 32 bits are all that torch's CPU RNG takes."""
    return int(np.random.SeedSequence((seed, samples_seen)).generate_state(1)[0])


def _gradients(
    model: nn.Module,
    scaler: GradScaler,
    prepare: Prepare,
    labels: Tensor,
    sizes: list[int],
    seed: int,
    autocast_dtype: torch.dtype | None,
    label_smoothing: float,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return both losses and number correct, the gradients in place; None: memory ran out.

    The caller retries after this frame is gone: an exception being handled keeps every tensor
    of the failed slice alive (pytorch#27600).
    """
    losses, plain, correct = [], [], []
    dropouts, first = keyed_dropouts(model), 0
    try:
        for targets in labels.split(sizes):
            set_places(dropouts, seed=seed, first_row=first)
            images = prepare(slice(first, first + len(targets)))
            first += len(targets)
            with torch.autocast(
                labels.device.type, autocast_dtype, enabled=autocast_dtype is not None
            ):
                logits = model(images)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            loss = F.cross_entropy(
                logits, targets, reduction="none", label_smoothing=label_smoothing
            )
            scaler.scale(loss.sum() / len(labels)).backward()
            losses.append(loss.detach())
            if label_smoothing:  # under which a sure and right answer costs, too
                loss = F.cross_entropy(logits.detach(), targets, reduction="none")
            plain.append(loss.detach())
            correct.append((logits.detach().argmax(1) == targets).sum())
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return torch.cat(losses), torch.cat(plain), torch.stack(correct).sum()


def _smaller(micro_batch_size: int, num_images: int, group_size: int) -> int:
    """Return half the slice in whole groups, of what a step on `num_images` really used."""
    num_groups = min(micro_batch_size // group_size, len(group_sizes(num_images, group_size)))
    if num_groups == 1:
        raise torch.OutOfMemoryError(
            f"one slice of {min(num_images, group_size)} images does not fit in memory"
        )
    return num_groups // 2 * group_size
