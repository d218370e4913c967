"""Whole runs with accumulation are those without: slices are a matter of memory alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.training.conftest import RECIPE, memory_loader, small_net
from tuner.training.loop import fit
from tuner.training.optim import build_optimizer
from tuner.training.plan import Recipe
from tuner.training.result import EpochResult
from tuner.training.state import TrainState, start_state


def net() -> nn.Module:
    return small_net(nn.GroupNorm(2, 8))  # its groups are of one image: any slice is allowed


def train(
    batch_size: int, accumulate_steps: int, num_images: int
) -> tuple[TrainState, list[EpochResult]]:
    """Return the state after three epochs of plain SGD, and the reports."""
    recipe: Recipe = replace(
        RECIPE, batch_size=batch_size, report_samples=num_images, clip_norm=None
    )
    state = start_state(
        net,
        lambda model: build_optimizer(model, name="sgd", lr=1, momentum=0, weight_decay=0),
        device=torch.device("cpu"),
        precision="fp32",
        batch_size=batch_size,
        accumulate_steps=accumulate_steps,
        seed=0,
    )
    loader = memory_loader(num_images)
    results = fit(
        state,
        train=loader.train,
        validation=loader.validation,
        recipe=recipe,
        loader=loader,
        until_samples=recipe.epochs * num_images,
    )
    return state, list(results)


@contextmanager
def slices_seen(state_net: type[nn.Module]) -> Iterator[list[int]]:
    """Yield a list that fills with the number of images of each slice that is trained on."""
    seen: list[int] = []

    def look(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, state_net) and module.training:
            seen.append(len(inputs[0]))

    hook = nn.modules.module.register_module_forward_pre_hook(look)
    yield seen
    hook.remove()


def weights(state: TrainState) -> Tensor:
    return torch.cat([value.flatten() for value in state.model.state_dict().values()])


def assert_close(one: Tensor, other: Tensor) -> None:
    assert (one - other).norm() <= 1e-6 * other.norm()


def test_slices_of_a_batch_end_where_the_whole_batch_ends() -> None:
    with slices_seen(nn.Linear) as seen:
        sliced, _ = train(32, 4, 64)
    assert seen == [8] * 4 * 2 * 3
    assert_close(weights(sliced), weights(train(32, 1, 64)[0]))


def test_the_last_slices_of_an_epoch_step_as_their_images_joined() -> None:
    with slices_seen(nn.Linear) as seen:
        sliced, _ = train(16, 4, 38)
    assert seen == [*[4] * 8, 4, 2] * 3
    assert sliced.optimizer_steps == 3 * 3
    assert_close(weights(sliced), weights(train(16, 1, 38)[0]))


@pytest.mark.parametrize("accumulate_steps", [2, 4, 8])
def test_the_learning_rate_follows_steps_and_no_slices(accumulate_steps: int) -> None:
    def column(steps: int) -> list[Any]:
        return [result.learning_rate for result in train(8, steps, 24)[1]]

    assert column(accumulate_steps) == column(1)
    assert len(set(column(1))) == 3
