"""Batches of images for a plain training loop: stock loaders of PyTorch, or this program's own.

Both give a whole new order of the training images each epoch, a short batch at its end, random
shifts of up to four pixels and mirroring, and the validation images in batches of the same size.
Shifts leave black edges in stock batches, as RandomCrop does, and mirrored ones in ours.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from slot_times import SLOTS
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from tuner.assemble import build_recipe
from tuner.data.augment import MEAN, STD, augment_batch, evaluation_batch
from tuner.data.prepare import PreparedData, load_prepared
from tuner.images import prepare_images
from tuner.planning.machine import look
from tuner.reading import ClosableSource, build_loader, decode_images
from tuner.settings.config import Config
from tuner.settings.load import load_space
from tuner.training.plan import Recipe, plan_steps

Batch: TypeAlias = tuple[Tensor, Tensor]  # float (n, 3, size, size) and labels (n,)


@dataclass(frozen=True, slots=True)
class Batches:
    """What a plain training loop needs to know of its images; `train` is given the epoch."""

    num_classes: int
    num_train: int
    num_validation: int
    train: Callable[[int], Iterable[Batch]]
    validation: Callable[[], Iterable[Batch]]


def stock_batches(images: Path, *, batch_size: int, num_workers: int) -> Batches:
    """Returns those of ImageFolder and DataLoader, as their documentation has them."""
    settle = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    vary = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    train_set = datasets.ImageFolder(images / "train", transforms.Compose([*vary, *settle]))
    validation_set = datasets.ImageFolder(images / "val", transforms.Compose(settle))
    options = {"num_workers": num_workers, "persistent_workers": num_workers > 0}
    train = DataLoader(train_set, batch_size=batch_size, shuffle=True, **options)
    validation = DataLoader(validation_set, batch_size=batch_size, **options)
    return Batches(
        # Not `.classes`: cloudpickle would take the word for the module torch.classes, and fail.
        num_classes=len(train_set.class_to_idx),
        num_train=len(train_set),
        num_validation=len(validation_set),
        train=lambda epoch: train,
        validation=lambda: validation,
    )


def prepare_ours(images: Path, folder: Path) -> None:
    """Checks and decodes all images once into `folder`, as this program's search begins."""
    config, folder = config_of(images), folder.absolute()
    folder.mkdir()
    data = prepare_images(
        config,
        folder,
        report_path=folder / "dataset.json",
        num_processes=SLOTS,
        progress=lambda done, total: None,
    )
    decode_images(
        config,
        data,
        folder,
        memory_bytes=look().memory_bytes,
        num_processes=SLOTS,
        progress=lambda done, total: None,
    )


def our_batches(images: Path, folder: Path, *, batch_size: int, seed: int) -> Batches:
    """Returns those of this program's loader and augmentation, from what `prepare_ours` left."""
    config = config_of(images).with_overrides({"train.batch_size": batch_size, "train.seed": seed})
    data = load_prepared(folder / "dataset.json", images)
    loader = build_loader(config, data, folder)
    recipe = build_recipe(config, len(data.train))
    return Batches(
        num_classes=len(data.train.classes),
        num_train=len(data.train),
        num_validation=len(data.validation),
        train=partial(our_epoch, loader, data, recipe),
        validation=partial(our_validation, loader, data, recipe),
    )


def our_epoch(
    loader: ClosableSource, data: PreparedData, recipe: Recipe, epoch: int
) -> Iterator[Batch]:
    first, last = epoch * len(data.train), (epoch + 1) * len(data.train)
    steps = list(plan_steps(first, last, data.train.keys, recipe))
    with closing(loader.batches("train", (step.positions for step in steps))) as batches:
        for step, pixels in zip(steps, batches, strict=True):
            images = augment_batch(
                pixels,
                data.train.keys[step.positions],
                seed=recipe.seed,
                epoch=epoch,
                augment=recipe.augment,
            )
            yield images, torch.from_numpy(data.train.labels[step.positions])


def our_validation(loader: ClosableSource, data: PreparedData, recipe: Recipe) -> Iterator[Batch]:
    every = np.arange(len(data.validation))
    chosen = [every[start:][: recipe.batch_size] for start in every[:: recipe.batch_size]]
    with closing(loader.batches("validation", chosen)) as batches:
        for positions, pixels in zip(chosen, batches, strict=True):
            images = evaluation_batch(pixels, image_size_px=recipe.augment.image_size_px)
            yield images, torch.from_numpy(data.validation.labels[positions])


def config_of(images: Path) -> Config:
    return load_space("cifar10", ["data.source=folder", f"data.root={images}"]).config
