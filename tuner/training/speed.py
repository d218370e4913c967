"""How fast a run trains: real steps against the clock."""

import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import torch

from tuner.data.index import ImageIndex
from tuner.training.feed import BatchSource, device_batches
from tuner.training.loop import set_up_device, take_step
from tuner.training.plan import Recipe, plan_steps
from tuner.training.result import peak_memory_bytes
from tuner.training.state import TrainState


@dataclass(frozen=True, slots=True)
class Speed:
    """What was timed: whole steps, each with the wait for images."""

    num_images: int
    seconds: float
    data_wait_s: float  # of `seconds`; a GPU may have been busy meanwhile
    peak_memory_bytes: int  # of the device; on a CPU of the whole process, since its start

    @property
    def images_per_s(self) -> float:
        """Images trained on in a second."""
        return self.num_images / self.seconds


def time_steps(
    state: TrainState,
    *,
    loader: BatchSource,
    train: ImageIndex,
    recipe: Recipe,
    seconds: float,
    warm_up_steps: int = 1,
) -> Speed:
    """Return the speed of whole steps, at least one, taken until `seconds` have passed.

    The steps are those of `fit`, epoch after epoch, at a learning rate of 0: no weight moves, so
    none can diverge however long it goes on. `warm_up_steps` come before, untimed. What a step
    or the loader raises comes through. The loader is left with nothing in work.
    """
    state.model.train()
    set_up_device(state.device)
    recipe = replace(recipe, peak_lr=0.0)
    plan = partial(plan_steps, state.samples_seen, sys.maxsize, train.keys, recipe)
    requests = (step.positions for step in plan())
    with closing(device_batches(loader, train.split, requests, state.device)) as batches:
        feed = zip(plan(), batches, strict=False)
        for _ in range(warm_up_steps):
            take_step(state, *next(feed), train, recipe)
        # From one batch in hand to another in hand: as many waits as steps, also where the first
        # batch took long to come because nothing had been read ahead.
        due = next(feed)
        num_images, data_wait_s, started = 0, 0.0, _now(state.device)
        while True:
            take_step(state, *due, train, recipe)
            num_images += len(due[1])
            asked = time.perf_counter()
            due = next(feed)
            received = time.perf_counter()
            data_wait_s += received - asked
            if received - started >= seconds:
                break
        return Speed(
            num_images, _now(state.device) - started, data_wait_s, peak_memory_bytes(state.device)
        )


def _now(device: torch.device) -> float:
    """Return the time at which all work given to the device is done.

    Asked for at both ends alone: waiting after each step would keep the reading of images from
    running beside the GPU, as it does in training.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
