"""A data set in memory, and the smallest nets that have what the laws are about."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from tuner.data.augment import Augment
from tuner.data.index import ImageIndex
from tuner.training.keyed_dropout import use_keyed_dropout
from tuner.training.plan import Recipe

CLASSES = ("a", "b", "c")
IMAGE_SIZE_PX = 8
RECIPE = Recipe(
    batch_size=8,
    epochs=3,
    report_samples=15,
    peak_lr=0.1,
    schedule="cosine",
    warmup_fraction=0.1,
    label_smoothing=0.1,
    clip_norm=1.0,
    seed=0,
    augment=Augment(crop="pad", flip=True, rotate90=True, image_size_px=IMAGE_SIZE_PX),
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@dataclass(frozen=True)
class MemoryLoader:
    """The images of both splits as arrays; stands for a loader and its files."""

    train: ImageIndex
    validation: ImageIndex
    pixels: dict[str, NDArray[np.uint8]]

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[Tensor, None, None]:
        for chosen in positions:
            yield torch.from_numpy(self.pixels[split][chosen])


def memory_loader(num_train: int, num_validation: int = 11) -> MemoryLoader:
    """Return images of noise on a brightness that tells their class."""
    rng = np.random.default_rng(0)
    indexes, pixels = {}, {}
    for split, num_images in (("train", num_train), ("validation", num_validation)):
        labels = np.arange(num_images) % len(CLASSES)
        paths = [f"{split}/{number}.png" for number in range(num_images)]
        indexes[split] = ImageIndex.from_paths(split, Path("/nowhere"), CLASSES, paths, labels)
        noise = rng.integers(0, 120, (num_images, IMAGE_SIZE_PX, IMAGE_SIZE_PX, 3))
        pixels[split] = (noise + 60 * labels[:, None, None, None]).astype(np.uint8)
    return MemoryLoader(indexes["train"], indexes["validation"], pixels)


def small_net(norm: nn.Module, *, dropout: float = 0.0, mode: str = "row") -> nn.Sequential:
    """Return conv, norm, ReLU, pooling and a linear layer to 3 classes, with two kinds of dropout.

    `dropout` is the share of stochastic depth, of `mode`, after the ReLU and of values at the end.
    """
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        norm,
        nn.Sequential(nn.ReLU(), StochasticDepth(dropout, mode)),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(32, len(CLASSES)),
    )
    use_keyed_dropout(model)
    return model
