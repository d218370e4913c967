from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.laws import assert_covers_once
from tests.unit.training.conftest import RECIPE, memory_loader, small_net
from tuner.training.ghost_norm import use_ghost_batch_norm
from tuner.training.optim import build_optimizer
from tuner.training.speed import Speed, time_steps
from tuner.training.state import TrainState, start_state

NUM_TRAIN = 30
STEP_S = 0.5


class Clock:
    """A clock that moves only where it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class TimedNet(nn.Module):
    """Takes `STEP_S` for each forward pass; memory runs out above `most` images at once."""

    def __init__(self, clock: Clock, most: int = 99) -> None:
        super().__init__()
        self.inner, self.clock, self.most = small_net(nn.BatchNorm2d(8)), clock, most
        use_ghost_batch_norm(self.inner, 2)

    def forward(self, images: Tensor) -> Tensor:
        self.clock.now += STEP_S
        if len(images) > self.most:
            raise torch.OutOfMemoryError("no")
        logits: Tensor = self.inner(images)
        return logits


class TimedLoader:
    """Takes `wait_s` for each batch, and `start_s` more for the first."""

    def __init__(self, clock: Clock, wait_s: float = 0.0, start_s: float = 0.0) -> None:
        self.clock, self.wait_s, self.start_s = clock, wait_s, start_s
        self.memory = memory_loader(NUM_TRAIN)
        self.asked: list[NDArray[np.int64]] = []
        self.num_open = 0

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[Tensor, None, None]:
        self.num_open += 1
        self.clock.now += self.start_s
        try:
            for chosen in positions:
                self.clock.now += self.wait_s
                self.asked.append(chosen)
                yield from self.memory.batches(split, [chosen])
        finally:
            self.num_open -= 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("tuner.training.speed.time", SimpleNamespace(perf_counter=clock))
    return clock


def start(build: Callable[[], nn.Module], accumulate_steps: int = 1) -> TrainState:
    return start_state(
        build,
        lambda model: build_optimizer(model, name="sgd", lr=1, momentum=0.9, weight_decay=1e-3),
        device=torch.device("cpu"),
        precision="fp32",
        batch_size=RECIPE.batch_size,
        accumulate_steps=accumulate_steps,
        seed=0,
    )


def measure(state: TrainState, loader: TimedLoader, seconds: float, **options: Any) -> Speed:
    options.setdefault("recipe", RECIPE)
    return time_steps(state, loader=loader, train=loader.memory.train, seconds=seconds, **options)


def test_whole_steps_are_timed_until_the_time_is_over(clock: Clock) -> None:
    speed = measure(start(partial(TimedNet, clock)), TimedLoader(clock, wait_s=0.25), 1.0)

    # Steps of 8, 8 and 6 images: the first is the warm-up, two steps of 0.75 s reach 1 s.
    assert (speed.num_images, speed.seconds, speed.data_wait_s) == (8 + 8, 1.5, 0.5)
    assert speed.images_per_s == 16 / 1.5
    assert speed.peak_memory_bytes > 0


@pytest.mark.parametrize("accumulate_steps", [1, 2, 4])
def test_at_least_one_step_is_timed_and_every_slice_of_it(
    clock: Clock, accumulate_steps: int
) -> None:
    speed = measure(start(partial(TimedNet, clock), accumulate_steps), TimedLoader(clock), 0.0)

    assert (speed.num_images, speed.seconds) == (8, accumulate_steps * STEP_S)


@pytest.mark.parametrize("warm_up_steps", [0, 1, 3])
def test_what_comes_before_the_first_timed_step_is_not_timed(
    clock: Clock, warm_up_steps: int
) -> None:
    state = start(partial(TimedNet, clock))
    loader = TimedLoader(clock, wait_s=0.25, start_s=60.0)

    speed = measure(state, loader, 2.0, warm_up_steps=warm_up_steps)

    assert speed.seconds == 3 * (STEP_S + 0.25)
    assert state.optimizer_steps == warm_up_steps + 3


def test_a_measurement_goes_on_over_epochs_and_past_the_end_of_the_run(clock: Clock) -> None:
    loader = TimedLoader(clock)
    recipe = replace(RECIPE, epochs=1)

    speed = measure(start(partial(TimedNet, clock)), loader, 11 * STEP_S, recipe=recipe)

    assert [len(positions) for positions in loader.asked[:12]] == [8, 8, 8, 6] * 3
    for epoch in range(3):
        assert_covers_once(loader.asked[4 * epoch :][:4], NUM_TRAIN)
    assert speed.num_images == 3 * NUM_TRAIN - 8


def test_the_next_measurement_goes_on_where_the_last_one_ended(clock: Clock) -> None:
    state, loader = start(partial(TimedNet, clock)), TimedLoader(clock)

    measure(state, loader, STEP_S)
    asked = len(loader.asked)
    measure(state, loader, STEP_S)

    assert_covers_once([*loader.asked[:2], *loader.asked[asked:][:2]], NUM_TRAIN)


def test_no_weight_moves_so_none_diverges(clock: Clock) -> None:
    state = start(partial(TimedNet, clock))
    before = {name: value.clone() for name, value in state.model.named_parameters()}

    measure(state, TimedLoader(clock), 20.0, recipe=replace(RECIPE, peak_lr=1e30))

    assert state.optimizer_steps > 20
    for name, value in state.model.named_parameters():
        assert torch.equal(value, before[name])


def test_a_slice_halved_for_memory_is_kept_in_the_state(clock: Clock) -> None:
    state = start(partial(TimedNet, clock, most=2))

    speed = measure(state, TimedLoader(clock), 0.0)

    assert state.micro_batch_size == 2
    assert speed.seconds == 4 * STEP_S


@pytest.mark.parametrize("most", [99, 0])
def test_the_reader_is_closed_whether_it_ends_well_or_not(clock: Clock, most: int) -> None:
    loader = TimedLoader(clock)
    state = start(partial(TimedNet, clock, most=most))

    if most:
        measure(state, loader, 1.0)
    else:
        with pytest.raises(torch.OutOfMemoryError):
            measure(state, loader, 1.0)

    assert loader.num_open == 0
