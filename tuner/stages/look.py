"""A first look at a model's speed, where nobody has measured."""

from collections.abc import Generator, Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tuner.assemble import build_recipe, build_state
from tuner.data.augment import stored_size_px
from tuner.data.index import ImageIndex
from tuner.planning.resources import Plan
from tuner.stages.opening import Search
from tuner.stages.work import largest_step
from tuner.training.memory import is_out_of_memory
from tuner.training.speed import time_steps

LOOK_S = 0.5


class RandomPixels:
    """Batches of random pixels: what a loader gives, at no cost."""

    def __init__(self, size_px: int) -> None:
        self._size_px = size_px

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[torch.Tensor, None, None]:
        """Yields one uint8 tensor (n, size, size, 3) for each array of positions."""
        for each in positions:
            shape = (len(each), self._size_px, self._size_px, 3)
            yield torch.randint(256, shape, dtype=torch.uint8)


def look_at_speed(search: Search, plan: Plan, num_images: int) -> float | None:
    """Returns images a second of one trial alone on random pixels, timed in this process.

    On a CPU a step is one ghost group: as fast an image, and no wait for a large model. None where
    memory runs out.

    Args:
        search: Its largest step is timed.
        plan: What a trial gets of the machine.
        num_images: Images there are: a step has no more.
    """
    # Two classes stand for all of them, and any numbers for the weights of a file.
    config = largest_step(search).with_overrides({"model.weights": None})
    device = torch.device("cuda" if plan.num_gpus else "cpu")
    torch.set_num_threads(plan.threads)
    num_images = min(config.train.batch_size, num_images)
    if device.type == "cpu":
        num_images = min(num_images, config.model.ghost_batch_size)
    names = [str(number) for number in range(num_images)]
    index = ImageIndex.from_paths("train", Path(), ("a", "b"), names, [0] * num_images)
    try:
        speed = time_steps(
            build_state(config, len(index.classes), device),
            loader=RandomPixels(stored_size_px(config.augment.crop, config.data.image_size)),
            train=index,
            recipe=build_recipe(config, num_images),
            seconds=LOOK_S,
        )
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return speed.images_per_s
