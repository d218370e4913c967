"""What every check and figure of `run.py` is given, and what it gives back."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tuner.data.augment import Augment
from tuner.data.cache import CacheHeader, DecodedImages, Rows, ensure_decoded
from tuner.data.index import ImageIndex
from tuner.training.loop import take_step
from tuner.training.models import build_model
from tuner.training.optim import build_optimizer
from tuner.training.plan import PlannedStep, Recipe
from tuner.training.state import TrainState, start_state

NUM_CLASSES = 10
GHOST_BATCH_SIZE = 32
MIB, GIB = 2**20, 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table.

    Attributes:
        name: What is promised or measured, its unit last.
        value: What was found.
        goal: What it should be; empty where nothing is promised.
        is_ok: Whether it is so; None where nothing is promised, or the device cannot show it.
        turns: The measurements of which `value` is the median.
    """

    name: str
    value: float | str
    goal: str = ""
    is_ok: bool | None = None
    turns: tuple[float, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as values that strict JSON takes: None stands for NaN, infinity."""
        turns = [_rounded(value) for value in self.turns]
        return {**asdict(self), "value": _rounded(self.value), "turns": turns}


def _rounded(value: float | str) -> float | str | None:
    if not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None


# Given the device and a folder for files, what was found, as it is found.
Examination: TypeAlias = Callable[[torch.device, Path], Iterator[Finding]]
Weights: TypeAlias = Mapping[str, Tensor]


def needs_a_gpu(name: str) -> Finding:
    """Return the line of a check that a CPU cannot make."""
    return Finding(name, "needs a GPU")


def allocated_bytes(device: torch.device) -> int:
    """Return what tensors hold of a GPU; 0 on a CPU."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def wait_for(device: torch.device) -> None:
    """Return when all work given to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def noise_index(num_images: int, split: str = "train") -> ImageIndex:
    """Return an index of images that have keys and labels, and no files."""
    paths = [f"{split}/{number}.png" for number in range(num_images)]
    classes = tuple(map(str, range(NUM_CLASSES)))
    labels = np.arange(num_images) % NUM_CLASSES
    return ImageIndex.from_paths(split, Path("/nowhere"), classes, paths, labels)


def noise_file(folder: Path, num_images: int, stored_px: int) -> DecodedImages:
    """Return an open file of decoded images of noise, made where `folder` has none yet."""

    def decode(chunks: Sequence[Rows]) -> Generator[NDArray[np.uint8], None, None]:
        rng = np.random.default_rng(0)
        for rows in chunks:
            yield rng.integers(0, 256, (len(rows), stored_px, stored_px, 3), np.uint8)

    header = CacheHeader("noise", num_images, stored_px)
    path = folder / f"{num_images}-{stored_px}.pixels"
    ensure_decoded(path, header, decode, num_threads=4, progress=lambda done, total: None)
    return DecodedImages(path, header)


def noise_batch(num_images: int, side_px: int, device: torch.device) -> Tensor:
    """Return images of noise, the same each time, uint8 (num_images, side_px, side_px, 3)."""
    draw = torch.Generator(device).manual_seed(0)
    shape = (num_images, side_px, side_px, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=draw)


class OneBatch:
    """A source that costs nothing: one batch, given again and again."""

    def __init__(self, batch: Tensor) -> None:
        self._batch = batch

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[Tensor, None, None]:
        """Yield the batch once for each array of positions."""
        for _ in positions:
            yield self._batch


def build_recipe(batch_size: int, image_size_px: int, *, num_images: int, epochs: int) -> Recipe:
    """Return how all runs here train: random crops and flips, one report an epoch."""
    return Recipe(
        batch_size=batch_size,
        epochs=epochs,
        report_samples=num_images,
        peak_lr=0.01,
        schedule="constant",
        warmup_fraction=0.0,
        label_smoothing=0.0,
        clip_norm=None,
        seed=0,
        augment=Augment(crop="resized", flip=True, rotate90=False, image_size_px=image_size_px),
    )


def start_run(
    model: str,
    device: torch.device,
    *,
    batch_size: int,
    image_size_px: int,
    accumulate_steps: int | str = 1,
) -> TrainState:
    """Return a run at its start: a model with ghost groups, SGD with Nesterov momentum, bf16."""
    return start_state(
        partial(
            build_model,
            model,
            NUM_CLASSES,
            image_size_px=image_size_px,
            ghost_batch_size=GHOST_BATCH_SIZE,
        ),
        partial(build_optimizer, name="sgd", lr=0.0, momentum=0.9, weight_decay=1e-4),
        device=device,
        precision="bf16",
        batch_size=batch_size,
        accumulate_steps=accumulate_steps,
        seed=0,
    )


def take_steps(state: TrainState, images: Tensor, recipe: Recipe, num_steps: int) -> Weights:
    """Return a copy of all weights and buffers after so many steps on the same images."""
    train = noise_index(len(images))
    step = PlannedStep(0, np.arange(len(images)))
    for _ in range(num_steps):
        take_step(state, step, images, train, recipe)
    return copied_weights(state.model)


def copied_weights(model: torch.nn.Module) -> Weights:
    """Return a copy of all weights and buffers, on the CPU."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def same_bits(name: str, first: Weights, second: Weights) -> Finding:
    """Return whether all tensors of two runs are equal and finite."""
    finite = all(value.isfinite().all() for value in first.values())
    differing = [key for key in first if not torch.equal(first[key], second[key])]
    value = "equal" if finite else "not finite"
    if differing:
        value = f"{len(differing)} of {len(first)} tensors differ"
    return Finding(name, value, "equal", finite and not differing)
