"""The laws that only a GPU can show to hold; each check yields what it found."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.amp import GradScaler

from tests.gpu.bench import (
    NUM_CLASSES,
    Examination,
    Finding,
    build_recipe,
    noise_batch,
    noise_file,
    same_bits,
    start_run,
    take_steps,
    wait_for,
)
from tuner.data.augment import stored_size_px
from tuner.data.cached_loader import CachedLoader, DeviceLoader
from tuner.training.feed import device_batches
from tuner.training.ghost_norm import GhostBatchNorm2d, use_ghost_batch_norm
from tuner.training.keyed_dropout import use_keyed_dropout
from tuner.training.step import train_step


@dataclass(frozen=True, slots=True)
class Precision:
    """How a gradient is computed, and how far slices may move it, relative.

    Two gradients that rounding keeps within e of the exact one are within 2 e of each other: that
    is the bound where `tolerance` is None, e being measured against fp64. MOST_ROUNDING caps it,
    for slices that split the groups are wrong by 4 % and more.
    """

    dtype: torch.dtype
    autocast_dtype: torch.dtype | None = None
    has_tf32: bool = False
    tolerance: float | None = None


PRECISIONS = {
    "fp64": Precision(torch.float64, tolerance=1e-12),
    "fp32": Precision(torch.float32, tolerance=1e-5),
    "fp32 with TF32": Precision(torch.float32, has_tf32=True),
    "bf16": Precision(torch.float32, torch.bfloat16),
    "fp16": Precision(torch.float32, torch.float16),
}
LEAST_ROUNDING, MOST_ROUNDING = 1e-5, 0.02
GROUP_SIZE = 8
# Whole groups; a remainder that is a group of its own; one that joins the group before it.
BATCH_SIZES = {"cuda": (64, 61, 58), "cpu": (61,)}
MOST_IMAGES = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is trained and copied: enough to show on a GPU, or little, to try the script."""

    batch_size: int
    image_size_px: int
    stored_images: int
    num_copies: int
    copied_px: int
    products: int  # matrix products between two copies, which take longer than reading a batch


SIZES = {
    "cuda": Sizes(256, 64, 2048, num_copies=200, copied_px=256, products=40),
    "cpu": Sizes(16, 32, 128, num_copies=10, copied_px=16, products=1),
}


def slices_give_the_gradient_of_the_whole_batch(
    device: torch.device, folder: Path
) -> Iterator[Finding]:
    """Yield the largest error of any slicing into whole groups, for each precision."""
    batch_sizes = BATCH_SIZES[device.type]
    exact = {n: _gradient(device, PRECISIONS["fp64"], n) for n in batch_sizes}
    for name, precision in PRECISIONS.items():
        own_errors, errors = [], []
        for num_images in batch_sizes:
            whole = _gradient(device, precision, num_images)
            own_errors.append(_relative(whole, exact[num_images]))
            for size in range(GROUP_SIZE, MOST_IMAGES, GROUP_SIZE):
                sliced = _gradient(device, precision, num_images, micro_batch_size=size)
                errors.append(_relative(sliced, whole))
        tolerance = precision.tolerance
        if tolerance is None:
            tolerance = min(max(2 * min(own_errors), LEAST_ROUNDING), MOST_ROUNDING)
        worst = float(np.max(errors))  # NaN where any of them is
        yield Finding(
            f"slices beside the whole batch, {name}, relative error",
            worst,
            f"at most {tolerance:.1e}",
            worst <= tolerance,
        )
        if name != "fp64":
            yield Finding(f"the whole batch beside fp64, {name}", float(np.max(own_errors)))
    # What could not fail would prove nothing.
    split = _gradient(device, PRECISIONS["fp32"], num_images, group_size=GROUP_SIZE // 2)
    error = _relative(split, exact[num_images])
    yield Finding(
        "slices that split the groups, relative error",
        error,
        f"over {2 * MOST_ROUNDING}",
        error > 2 * MOST_ROUNDING,
    )


def _gradient(
    device: torch.device,
    precision: Precision,
    num_images: int,
    *,
    micro_batch_size: int = MOST_IMAGES,
    group_size: int = GROUP_SIZE,
) -> Tensor:
    """Return the gradient of one step from the first weights, flat, in fp64."""
    torch.manual_seed(0)
    model = _smooth_net(group_size).to(device, precision.dtype)
    images = torch.randn(MOST_IMAGES, 3, 32, 32, dtype=torch.float64)[:num_images]
    images = images.to(device, precision.dtype, memory_format=torch.channels_last)
    with _tf32(precision.has_tf32):
        train_step(
            model.to(memory_format=torch.channels_last),
            torch.optim.SGD(model.parameters(), lr=0.0),
            GradScaler(device.type, enabled=precision.autocast_dtype is torch.float16),
            images.__getitem__,
            (torch.arange(num_images) % NUM_CLASSES).to(device),
            micro_batch_size=micro_batch_size,
            seed=0,
            autocast_dtype=precision.autocast_dtype,
            label_smoothing=0.1,
        )
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return torch.cat([gradient.flatten().double() for gradient in gradients])


@contextmanager
def _tf32(is_allowed: bool) -> Iterator[None]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = is_allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def _smooth_net(group_size: int) -> nn.Module:
    """Return a small net without a kink: at one, rounding alone switches a gradient on or off."""
    layers: list[nn.Module] = []
    for channels_in, channels, stride in ((3, 16, 1), (16, 32, 2), (32, 32, 1)):
        layers += [
            nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.SiLU(),
        ]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, NUM_CLASSES))
    model = nn.Sequential(*layers, *head)
    use_ghost_batch_norm(model, group_size)
    use_keyed_dropout(model)
    assert sum(isinstance(layer, GhostBatchNorm2d) for layer in model) == 3
    return model


def _relative(gradient: Tensor, expected: Tensor) -> float:
    return float((gradient - expected).norm() / expected.norm())


def equal_runs_give_equal_bits(device: torch.device, folder: Path) -> Iterator[Finding]:
    """Yield whether two runs from one seed are the same; later checks rest on it."""
    sizes = SIZES[device.type]
    batch_size, size_px = sizes.batch_size, sizes.image_size_px
    images = noise_batch(batch_size, stored_size_px("resized", size_px), device)
    recipe = build_recipe(batch_size, size_px, num_images=batch_size, epochs=9)
    for model in ("resnet20", "resnet18", "resnet50"):
        start = partial(start_run, model, device, batch_size=batch_size, image_size_px=size_px)
        first, second = (take_steps(start(), images, recipe, 3) for _ in range(2))
        yield same_bits(f"weights of two equal runs, {model}, 3 steps", first, second)


def loaders_give_the_same_batches(device: torch.device, folder: Path) -> Iterator[Finding]:
    """Yield how many batches kept on the device differ from those read from the file."""
    sizes = SIZES[device.type]
    stored_px = stored_size_px("resized", sizes.image_size_px)
    open_file = partial(noise_file, folder, sizes.stored_images, stored_px)
    first_rows = {"train": 0, "validation": sizes.stored_images // 2}
    rng = np.random.default_rng(0)
    positions = [rng.integers(0, sizes.stored_images // 2, n) for n in (1, 7, 128, 300) * 10]
    num_differing = 0
    with (
        closing(CachedLoader(open_file(), first_rows, is_pinned=device.type == "cuda")) as cached,
        closing(DeviceLoader(open_file(), first_rows, device)) as kept,
    ):
        for split in first_rows:
            pairs = zip(cached.batches(split, positions), kept.batches(split, positions),
                        strict=True)  # fmt: skip
            num_differing += sum(not torch.equal(read, given.cpu()) for read, given in pairs)
    yield Finding(
        f"batches of DeviceLoader unlike CachedLoader's, of {2 * len(positions)}",
        num_differing,
        "0",
        num_differing == 0,
    )


Copying: TypeAlias = Callable[
    [CachedLoader, str, Iterable[NDArray[np.int64]], torch.device], Iterator[Tensor]
]


def copies_beside_the_computing_are_whole(device: torch.device, folder: Path) -> Iterator[Finding]:
    """Yield how many batches were not themselves when the computing read them."""
    sizes = SIZES[device.type]
    images = noise_file(folder, sizes.stored_images // 4, sizes.copied_px)
    is_pinned = device.type == "cuda"
    with closing(CachedLoader(images, {"train": 0}, is_pinned=is_pinned)) as loader:
        (batch,) = loader.batches("train", [np.arange(1)])
        found = batch.is_pinned()
        yield Finding("batches lie in pinned memory", int(found), str(int(is_pinned)),
                      found == is_pinned)  # fmt: skip
        wrong = partial(_wrong_copies, loader, device, sizes)
        for name, is_busy in (("idle", False), ("busy", True)):
            num_wrong = wrong(device_batches, is_busy=is_busy)
            name = f"wrong of {sizes.num_copies} copies, computing {name}"
            yield Finding(name, num_wrong, "0", num_wrong == 0)
        if device.type != "cuda":
            return
        # Without one of the two safeguards each: this check, too, can fail.
        for name, is_busy in (("wait", False), ("record_stream", True)):
            num_wrong = wrong(partial(_careless_batches, waits=is_busy), is_busy=is_busy)
            name = f"the same, of copies without {name}"
            yield Finding(name, num_wrong, "over 0", num_wrong > 0)


def _wrong_copies(
    loader: CachedLoader, device: torch.device, sizes: Sizes, copying: Copying, *, is_busy: bool
) -> int:
    """Return how many batches differ from those that are copied plainly.

    An idle device reads a batch at once, so it sees a wait that is missing; a busy one reads it
    long after it was dropped here, so it sees memory that is given away too early.
    """
    rng = np.random.default_rng(0)
    num_images = sizes.stored_images // 4
    positions = [rng.integers(0, num_images, 128) for _ in range(sizes.num_copies)]
    side = 4096 if device.type == "cuda" else 32
    factor = torch.randn(side, side, device=device).to(torch.bfloat16)
    seen = []
    wait_for(device)
    for batch in copying(loader, "train", positions, device):
        for _ in range(sizes.products if is_busy else 0):
            torch.mm(factor, factor)
        seen.append(batch.clone())
        del batch
        if not is_busy:
            wait_for(device)
    plain = (batch.to(device) for batch in loader.batches("train", positions))
    return sum(not torch.equal(*pair) for pair in zip(seen, plain, strict=True))


def _careless_batches(
    loader: CachedLoader,
    split: str,
    positions: Iterable[NDArray[np.int64]],
    device: torch.device,
    *,
    waits: bool,
) -> Generator[Tensor, None, None]:
    """Yield copied batches after a wait for them, or with their memory kept, and not both."""
    copying, computing = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    for batch in loader.batches(split, positions):
        with torch.cuda.stream(copying):
            copied = batch.to(device, non_blocking=True)
        if waits:
            computing.wait_stream(copying)
        else:
            copied.record_stream(computing)
        yield copied
        del copied


CHECKS: dict[str, Examination] = {
    "any slicing gives the gradient of the whole batch": (
        slices_give_the_gradient_of_the_whole_batch
    ),
    "equal runs give equal bits": equal_runs_give_equal_bits,
    "loaders give the same batches": loaders_give_the_same_batches,
    "copies beside the computing are whole": copies_beside_the_computing_are_whole,
}
