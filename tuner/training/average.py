"""The running average of a model: what is judged and handed over where it is kept."""

import copy
from itertools import chain

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from tuner.errors import SettingsError

WARM_UP_STEPS = 10


def start_average(model: nn.Module) -> nn.Module:
    """Return a copy of the model in evaluation mode, which takes no gradients.

    Raises:
        SettingsError: The model cannot be copied.
    """
    try:
        average = copy.deepcopy(model)
    except Exception as error:  # any kind may come of a model that holds a file or a lock
        raise SettingsError(
            f"train.ema_decay: the model cannot be copied ({type(error).__name__}: {error}); "
            "use train.ema_decay=null"
        ) from error
    return average.eval().requires_grad_(False)


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, *, decay: float, num_steps: int) -> None:
    """Move the average towards the model after its step number `num_steps`, counted from 1.

    Parameters and buffers of numbers alike, so that BatchNorm's statistics belong to the weights;
    counts are copied. The decay rises to `decay` as ``(1 + n) / (10 + n)``, or a short run would
    be judged by its first weights (the rule of TensorFlow's ExponentialMovingAverage).
    """
    move = get_ema_multi_avg_fn(min(decay, (1 + num_steps) / (WARM_UP_STEPS + num_steps)))
    pairs = list(
        zip(
            chain(average.parameters(), average.buffers()),
            chain(model.parameters(), model.buffers()),
            strict=True,
        )
    )
    numbers = [pair for pair in pairs if pair[0].is_floating_point()]
    if numbers:
        averaged, current = zip(*numbers, strict=True)
        move(averaged, current, 0)
    for kept, value in pairs:
        if not kept.is_floating_point():
            kept.copy_(value)
