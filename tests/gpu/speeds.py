"""Images per second and memory of training on a GPU, beside what one would write by hand.

All contenders of a figure run in turns, so that a device that slows down favours none of them.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.gpu.bench import (
    GIB,
    NUM_CLASSES,
    Examination,
    Finding,
    OneBatch,
    allocated_bytes,
    build_recipe,
    noise_batch,
    noise_file,
    noise_index,
    start_run,
    wait_for,
)
from tuner.data.augment import MEAN, STD, stored_size_px
from tuner.data.cache import DecodedImages
from tuner.data.cached_loader import CachedLoader, DeviceLoader
from tuner.training.feed import BatchSource
from tuner.training.ghost_norm import ghost_size
from tuner.training.memory import forget_peak, release_memory
from tuner.training.models import BUILT_IN
from tuner.training.optim import build_optimizer
from tuner.training.speed import time_steps
from tuner.training.state import TrainState, start_state
from tuner.training.step import micro_batch_size

# Given seconds, trains as long and returns images per second.
Contender: TypeAlias = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is trained on: whole batches out of so many images."""

    model: str
    image_size_px: int
    batch_size: int
    num_images: int

    @property
    def stored_px(self) -> int:
        """Side of the images that the crops are cut from."""
        return stored_size_px("resized", self.image_size_px)


@dataclass(frozen=True, slots=True)
class Turns:
    """How long is measured: the median of `num_turns` windows, after one short one to warm up."""

    window_s: float
    num_turns: int = 3
    warm_up_s: float = 0.2


TURNS = {"cuda": Turns(1.5), "cpu": Turns(0.02, num_turns=1, warm_up_s=0.0)}
SHAPES = {
    # About 400 MB of decoded images each: more than a processor's caches hold.
    "cuda": [
        Shape(model, size_px, 256, num_images)
        for size_px, num_images in ((64, 24576), (224, 2048))
        for model in ("resnet8", "resnet18", "resnet50")
    ],
    "cpu": [Shape("resnet8", 16, 64, 128), Shape("resnet18", 32, 8, 16)],
}
SLICED = {"cuda": Shape("resnet18", 224, 512, 512), "cpu": Shape("resnet8", 16, 128, 128)}


def training_speed(shape: Shape, device: torch.device, folder: Path) -> Iterator[Finding]:
    """Yield the speed of whole training steps by the source of their images, and of a plain loop.

    The plain loop has its one batch on the device and only normalises it; ours crops and flips.
    """
    batch = noise_batch(shape.batch_size, shape.stored_px, device)
    held, first_rows = OneBatch(batch), {"train": 0}
    base_bytes = allocated_bytes(device)
    ours = OurLoop(_start(shape, device), shape)
    ours.images_per_s(0.0, source=held)
    our_bytes = _peak_bytes(device) - base_bytes
    release_memory(device)
    forget_peak(device)
    base_bytes = allocated_bytes(device)
    plain = PlainLoop(shape, batch)
    plain.images_per_s(0.0)
    plain_bytes = _peak_bytes(device) - base_bytes
    with (
        closing(
            CachedLoader(_open(shape, folder), first_rows, is_pinned=device.type == "cuda")
        ) as cached,
        closing(DeviceLoader(_open(shape, folder), first_rows, device)) as kept,
    ):
        speeds = in_turns(
            {
                "plain loop": plain.images_per_s,
                "plain loop, cudnn.benchmark": partial(plain.images_per_s, cudnn_benchmark=True),
                "ours, one batch": partial(ours.images_per_s, source=held),
                "ours, CachedLoader": partial(ours.images_per_s, source=cached),
                "ours, DeviceLoader": partial(ours.images_per_s, source=kept),
            },
            TURNS[device.type],
        )
    for name, turns in speeds.items():
        yield Finding(f"{name}, images/s", statistics.median(turns), turns=turns)
    for name in ("plain loop", "plain loop, cudnn.benchmark"):
        yield Finding(f"ours, one batch, beside {name}", _ratio(speeds, "ours, one batch", name))
    for name in ("CachedLoader", "DeviceLoader"):
        ratio = _ratio(speeds, f"ours, {name}", "ours, one batch")
        is_ok = ratio >= 0.95 if device.type == "cuda" else None  # a CPU tries the script alone
        yield Finding(f"{name} beside one batch", ratio, "at least 0.95", is_ok)
    if device.type == "cuda":
        yield Finding("plain loop, peak memory with weights, GiB", plain_bytes / GIB)
        yield Finding("ours, peak memory with weights, GiB", our_bytes / GIB)


def ghost_groups_and_slices(device: torch.device, folder: Path) -> Iterator[Finding]:
    """Yield what ghost groups cost beside BatchNorm over the whole batch, and what slices cost."""
    shape = SLICED[device.type]
    held = OneBatch(noise_batch(shape.batch_size, shape.stored_px, device))
    without_groups = OurLoop(_start_without_groups(shape, device), shape)
    in_groups = OurLoop(_start(shape, device), shape)
    contenders: dict[str, Contender] = {
        "BatchNorm, 1 slice": partial(without_groups.images_per_s, source=held)
    }
    for slices in (1, 2, 4):
        name = f"ghost groups, {slices} slice{'s' * (slices > 1)}"
        contenders[name] = partial(in_groups.images_per_s, source=held, slices=slices)
    speeds = in_turns(contenders, TURNS[device.type])
    for name, turns in speeds.items():
        yield Finding(f"{name}, images/s", statistics.median(turns), turns=turns)
    for name in list(speeds)[1:]:
        yield Finding(f"{name}, beside BatchNorm", _ratio(speeds, name, "BatchNorm, 1 slice"))
    for name, contender in contenders.items() if device.type == "cuda" else ():
        release_memory(device)
        base_bytes = allocated_bytes(device)
        contender(0.0)
        step_bytes = _peak_bytes(device) - base_bytes
        yield Finding(f"{name}, peak memory beside weights, GiB", step_bytes / GIB)


def in_turns(contenders: Mapping[str, Contender], turns: Turns) -> dict[str, tuple[float, ...]]:
    """Return images per second of every contender, turn by turn, the order reversed each time."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for name in names:
        contenders[name](turns.warm_up_s)
    for _ in range(turns.num_turns):
        for name in names:
            found[name].append(contenders[name](turns.window_s))
        names.reverse()
    return {name: tuple(values) for name, values in found.items()}


class OurLoop:
    """Real steps of `tuner.training`, at a learning rate of 0."""

    def __init__(self, state: TrainState, shape: Shape) -> None:
        self._state, self._batch_size = state, shape.batch_size
        self._train = noise_index(shape.num_images)
        self._recipe = build_recipe(
            shape.batch_size, shape.image_size_px, num_images=shape.num_images, epochs=1
        )

    def images_per_s(self, seconds: float, *, source: BatchSource, slices: int = 1) -> float:
        """Return the speed of whole steps."""
        group_size = ghost_size(self._state.model)
        self._state.micro_batch_size = micro_batch_size(self._batch_size, slices, group_size)
        return time_steps(
            self._state,
            loader=source,
            train=self._train,
            recipe=self._recipe,
            seconds=seconds,
        ).images_per_s


class PlainLoop:
    """A training loop as one writes it by hand: no groups, no slices, nothing varied.

    Args:
        shape: Its model and sizes.
        batch: Kept on the device, uint8 (n, stored, stored, 3).
    """

    def __init__(self, shape: Shape, batch: Tensor) -> None:
        device, size_px = batch.device, shape.image_size_px
        self._images = batch[:, :size_px, :size_px].contiguous()
        self._labels = torch.arange(len(batch), device=device) % NUM_CLASSES
        self._mean = 255 * torch.tensor(MEAN, device=device).view(1, 3, 1, 1)
        self._std = 255 * torch.tensor(STD, device=device).view(1, 3, 1, 1)
        torch.manual_seed(0)
        model = _plain_model(shape.model)
        self._model = model.to(device).to(memory_format=torch.channels_last)
        # As ours while its speed is measured: at a learning rate of 0 nothing diverges.
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), lr=0.0, momentum=0.9, nesterov=True, weight_decay=1e-4
        )

    def images_per_s(self, seconds: float, *, cudnn_benchmark: bool = False) -> float:
        """Return the speed of whole steps, with any kernels, also those that do not repeat."""
        torch.backends.cudnn.deterministic = False
        torch.backends.cudnn.benchmark = cudnn_benchmark
        device, num_images = self._images.device, 0
        self._step()
        wait_for(device)
        started = time.perf_counter()
        while True:
            self._step()
            num_images += len(self._images)
            if time.perf_counter() - started >= seconds:
                break
        wait_for(device)
        return num_images / (time.perf_counter() - started)

    def _step(self) -> None:
        images = (self._images.permute(0, 3, 1, 2).float() - self._mean) / self._std
        with torch.autocast(images.device.type, torch.bfloat16):
            loss = F.cross_entropy(self._model(images), self._labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()


def _plain_model(name: str) -> nn.Module:
    if name in BUILT_IN:
        return BUILT_IN[name](num_classes=NUM_CLASSES)
    from torchvision import models

    model: nn.Module = models.get_model(name, weights=None, num_classes=NUM_CLASSES)
    return model


def _open(shape: Shape, folder: Path) -> DecodedImages:
    return noise_file(folder, shape.num_images, shape.stored_px)


def _start(shape: Shape, device: torch.device) -> TrainState:
    return start_run(
        shape.model, device, batch_size=shape.batch_size, image_size_px=shape.image_size_px
    )


def _start_without_groups(shape: Shape, device: torch.device) -> TrainState:
    return start_state(
        partial(_plain_model, shape.model),
        partial(build_optimizer, name="sgd", lr=0.0, momentum=0.9, weight_decay=1e-4),
        device=device,
        precision="bf16",
        batch_size=shape.batch_size,
        accumulate_steps=1,
        seed=0,
    )


def _peak_bytes(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def _ratio(speeds: Mapping[str, tuple[float, ...]], one: str, other: str) -> float:
    return statistics.median(speeds[one]) / statistics.median(speeds[other])


def figures(device: torch.device) -> dict[str, Examination]:
    """Return what is measured on the device, by title."""
    titles = {
        f"training speed, {shape.model}, {shape.image_size_px} px, batches of "
        f"{shape.batch_size}, bf16": partial(training_speed, shape)
        for shape in SHAPES[device.type]
    }
    sliced = SLICED[device.type]
    title = f"ghost groups and slices, {sliced.model}, {sliced.image_size_px} px, batches of "
    return {**titles, f"{title}{sliced.batch_size}, bf16": ghost_groups_and_slices}
