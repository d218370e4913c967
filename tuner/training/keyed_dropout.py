"""Dropout and stochastic depth whose masks belong to the images of a step, not to its slices.

One stream of random numbers, consumed slice by slice, would give another mask for every slicing.
Here a mask is a function of (step, module, call, row): a slice cuts its rows from the step's mask.
What draws by itself, such as a user's own `F.dropout`, repeats from run to run for the same slices
but changes with them.
"""

import math
from collections.abc import Iterable
from itertools import count

import numpy as np
import torch
from torch import Tensor, nn

from tuner.training.replace import replace_modules

# Rows are drawn in blocks of at most about so many: a slice draws little that it does not use.
BLOCK_VALUES, BLOCK_ROWS = 2**18, 1024


class KeyedDropout(nn.Module):
    """Zeroes values with probability `p` and scales the others by 1 / (1 - p), in training.

    Args:
        p: Share of the values that are dropped.
        mode: ``element`` as `nn.Dropout`; ``channel`` as `nn.Dropout2d`; ``row`` and ``batch`` as
            torchvision's `StochasticDepth`, which drops whole images, or all images of the step.
        number: Of the module within its model.
    """

    def __init__(self, p: float, *, mode: str, number: int) -> None:
        super().__init__()
        self.p, self.mode, self.number = p, mode, number
        self.set_place(seed=0, first_row=0)

    def set_place(self, *, seed: int, first_row: int) -> None:
        """Tell the step's seed and which row of the step the next call's first one is."""
        self.seed, self.first_row, self.num_calls = seed, first_row, 0

    def forward(self, features: Tensor) -> Tensor:
        """Return the features (n, ...), those of rows `first_row` to `first_row` + n - 1 masked."""
        if not self.training:
            return features
        is_kept = self._mask(features)
        self.num_calls += 1  # a module called twice in one pass draws twice
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        return (features * is_kept).mul_(scale)

    def extra_repr(self) -> str:
        """Return what `print` shows of the module."""
        return f"p={self.p}, mode={self.mode}"

    def _mask(self, features: Tensor) -> Tensor:
        num_rows, *of_one = features.shape
        if self.mode == "batch":
            return self._block(0, [1] * features.ndim, features.device)
        drawn_axes = {"element": len(of_one), "channel": 1, "row": 0}[self.mode]
        shape = [*of_one[:drawn_axes], *[1] * (len(of_one) - drawn_axes)]
        per_block = min(BLOCK_ROWS, max(1, BLOCK_VALUES // max(1, math.prod(shape))))
        first, end = self.first_row, self.first_row + num_rows
        blocks = [
            self._block(block, [per_block, *shape], features.device)
            for block in range(first // per_block, -(-end // per_block))
        ]
        skipped = first % per_block
        return torch.cat(blocks)[skipped : skipped + num_rows]

    def _block(self, block: int, shape: list[int], device: torch.device) -> Tensor:
        key = (self.seed, self.number, self.num_calls, block)
        seed = int(np.random.SeedSequence(key).generate_state(1)[0])
        draw = torch.Generator(device).manual_seed(seed)
        return torch.rand(shape, generator=draw, device=device) >= self.p


def use_keyed_dropout(model: nn.Module) -> None:
    """Replace every `nn.Dropout` and `StochasticDepth` that drops anything, in place."""
    numbers = count()

    def keyed(child: nn.Module) -> nn.Module | None:
        mode = _mode(child)
        if mode is None:
            return None
        p = float(child.p)  # type: ignore[arg-type]
        return KeyedDropout(p, mode=mode, number=next(numbers)).train(child.training)

    replace_modules(model, keyed)


def drop_keyed_dropout(model: nn.Module) -> None:
    """Replace every KeyedDropout of a model that is not trained any more by nothing, in place."""
    for path, child in list(model.named_modules(remove_duplicate=False)):
        if isinstance(child, KeyedDropout):
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, nn.Identity())


def keyed_dropouts(model: nn.Module) -> list[KeyedDropout]:
    """Return the model's modules that a step has to tell its place."""
    return [module for module in model.modules() if isinstance(module, KeyedDropout)]


def set_places(dropouts: Iterable[KeyedDropout], *, seed: int, first_row: int) -> None:
    """Tell all of them the place of the slice that comes next."""
    for dropout in dropouts:
        dropout.set_place(seed=seed, first_row=first_row)


def _mode(module: nn.Module) -> str | None:
    """Return how the module drops; None: it is no dropout, or drops nothing."""
    kind = type(module)
    if kind is nn.Dropout:
        return "element" if module.p else None
    if kind in (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
        return "channel" if module.p else None
    # By name: importing torchvision takes a second that the built-in models do not need.
    if f"{kind.__module__}.{kind.__name__}" == "torchvision.ops.stochastic_depth.StochasticDepth":
        return str(module.mode) if module.p else None
    return None
