"""The laws that training keeps, as assertions for any model, plan or run."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.amp import GradScaler

from tuner.training.checkpoint import CheckpointFolder, weights_sha256
from tuner.training.result import EpochResult
from tuner.training.state import TrainState
from tuner.training.step import train_step

MEASURED = ("train_s", "data_wait_s", "evaluate_s", "seconds", "images_per_s", "peak_memory_bytes")


class Killed(BaseException):
    """Ends a run as a signal would: no `except Exception` sees it."""


def gradients_after_step(
    model: nn.Module, images: Tensor, labels: Tensor, micro_batch_size: int, label_smoothing: float
) -> list[Tensor]:
    """Return the gradients of one step that moves no parameter."""
    outcome = train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        GradScaler("cpu", enabled=False),
        images.__getitem__,
        labels,
        micro_batch_size=micro_batch_size,
        seed=0,
        label_smoothing=label_smoothing,
    )
    assert outcome.micro_batch_size == micro_batch_size
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def assert_same_gradients(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    micro_batch_size: int,
    whole_batch_size: int,
    label_smoothing: float,
    relative: float,
) -> None:
    """Slices of `micro_batch_size` give the gradient of the whole batch in one slice."""
    buffers = [buffer.clone() for buffer in model.buffers()]
    whole = gradients_after_step(model, images, labels, whole_batch_size, label_smoothing)
    for buffer, value in zip(model.buffers(), buffers, strict=True):
        buffer.copy_(value)
    sliced = gradients_after_step(model, images, labels, micro_batch_size, label_smoothing)
    norm = torch.stack([gradient.norm() for gradient in whole]).norm()
    error = torch.stack([(a - b).norm() for a, b in zip(whole, sliced, strict=True)]).norm()
    assert norm > 0
    assert error <= relative * norm


def assert_covers_once(batches: Iterable[NDArray[np.int64]], num_images: int) -> None:
    """The batches hold each of the positions 0 to num_images - 1 once."""
    positions = np.concatenate(list(batches))
    np.testing.assert_array_equal(np.sort(positions), np.arange(num_images))


def assert_resumes_exactly(
    start: Callable[[], TrainState],
    go_on: Callable[[TrainState, Callable[[TrainState], None]], Iterator[EpochResult]],
    checkpoints: CheckpointFolder,
) -> None:
    """A run killed right after any of its saves ends with the bits of one that was not killed.

    `go_on` takes a state to the end of its run, calling the function it is given at each save.
    """
    saves = 0

    def count(_: TrainState) -> None:
        nonlocal saves
        saves += 1

    uninterrupted = start()
    assert all(result.reason is None for result in go_on(uninterrupted, count))
    assert saves > 0
    for kill_at in range(1, saves + 1):
        _run_killed(start(), go_on, checkpoints, kill_at)
        torch.manual_seed(kill_at)  # whatever a new process would find
        resumed = start()
        found = checkpoints.newest()
        assert found is not None
        resumed.restore(found[1])
        assert all(result.reason is None for result in go_on(resumed, lambda _: None))
        assert weights_sha256(resumed.model) == weights_sha256(uninterrupted.model)
        assert _unmeasured(resumed) == _unmeasured(uninterrupted)


def _run_killed(
    state: TrainState,
    go_on: Callable[[TrainState, Callable[[TrainState], None]], Iterator[EpochResult]],
    checkpoints: CheckpointFolder,
    kill_at: int,
) -> None:
    saves = 0

    def save(state: TrainState) -> None:
        nonlocal saves
        checkpoints.save(state.to_plain(), state.samples_seen)
        saves += 1
        if saves == kill_at:
            raise Killed

    for samples_seen in checkpoints.saved():
        checkpoints.path(samples_seen).unlink()
    with pytest.raises(Killed):
        list(go_on(state, save))


def _unmeasured(state: TrainState) -> list[dict[str, Any]]:
    return [{k: v for k, v in report.items() if k not in MEASURED} for report in state.history]
