"""What memory does on a GPU: it runs out, comes back, and stays within a fence."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.amp import GradScaler

from tests.gpu.bench import (
    GHOST_BATCH_SIZE,
    MIB,
    NUM_CLASSES,
    Examination,
    Finding,
    Weights,
    allocated_bytes,
    build_recipe,
    copied_weights,
    needs_a_gpu,
    noise_batch,
    noise_file,
    noise_index,
    same_bits,
    start_run,
    take_steps,
)
from tuner.data.augment import stored_size_px
from tuner.data.cached_loader import DeviceLoader
from tuner.training.loop import fit
from tuner.training.memory import MARGIN, fence_gpu_memory, forget_peak, release_memory
from tuner.training.models import build_model
from tuner.training.optim import build_optimizer
from tuner.training.step import train_step


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is trained: gigabytes on a GPU, or little, to try the script."""

    batch_size: int
    image_size_px: int
    stored_images: int


SIZES = {"cuda": Sizes(1024, 64, 2048), "cpu": Sizes(64, 16, 128)}


@dataclass(frozen=True, slots=True)
class Stepped:
    """Two steps on one batch, as `memory_that_runs_out_leaves_no_trace` takes them."""

    weights: Weights
    micro_batch_size: int
    held_bytes: list[int]  # when the first slice of each try was asked for
    peak_bytes: int  # above the first of these


def memory_that_runs_out_leaves_no_trace(device: torch.device, folder: Path) -> Iterator[Finding]:
    """Yield what a step leaves behind that ran out of memory, beside one that did not."""
    if device.type != "cuda":
        yield needs_a_gpu("a step that runs out of memory")
        return
    whole = SIZES[device.type].batch_size
    # First without ballast: cuDNN remembers the kernels that it took with room to spare.
    untroubled = {size: _two_steps(device, size) for size in (whole, whole // 2, whole // 4)}
    # Seven tenths of what the whole batch takes: enough for one half of it, workspaces included.
    with ballast(device, room_bytes=untroubled[whole].peak_bytes * 7 // 10):
        retried = _two_steps(device, whole)
    used, (first, second, *_) = retried.micro_batch_size, retried.held_bytes
    yield Finding("slice after memory ran out", f"{whole} to {used}", "smaller", used < whole)
    yield Finding(
        "held by the failed slice at the retry, bytes", second - first, "0", second == first
    )
    yield same_bits("weights beside those of the smaller slice from the start",
                    retried.weights, untroubled[used].weights)  # fmt: skip


def _two_steps(device: torch.device, micro_batch_size: int) -> Stepped:
    sizes = SIZES[device.type]
    torch.manual_seed(0)
    size_px = sizes.image_size_px
    model = build_model(
        "resnet20", NUM_CLASSES, image_size_px=size_px, ghost_batch_size=GHOST_BATCH_SIZE
    )
    model = model.to(device).to(memory_format=torch.channels_last)
    optimizer = build_optimizer(model, name="sgd", lr=0.01, momentum=0.9, weight_decay=1e-4)
    images = noise_batch(sizes.batch_size, size_px, device).permute(0, 3, 1, 2) / 255
    labels = (torch.arange(sizes.batch_size) % NUM_CLASSES).to(device)
    held_bytes: list[int] = []

    def prepare(rows: slice) -> Tensor:
        if rows.start == 0:
            held_bytes.append(allocated_bytes(device))
        return images[rows]

    release_memory(device)
    forget_peak(device)
    for seed in range(2):
        outcome = train_step(
            model, optimizer, GradScaler(device.type, enabled=False), prepare, labels,
            micro_batch_size=micro_batch_size, seed=seed,
        )  # fmt: skip
        micro_batch_size = outcome.micro_batch_size
    peak_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return Stepped(copied_weights(model), micro_batch_size, held_bytes, peak_bytes - held_bytes[0])


@contextmanager
def ballast(device: torch.device, room_bytes: int) -> Iterator[None]:
    """Fill the GPU until so much is free."""
    release_memory(device)
    free_bytes, _ = torch.cuda.mem_get_info(device)
    held = torch.empty(free_bytes - room_bytes, dtype=torch.uint8, device=device)
    try:
        yield
    finally:
        del held
        release_memory(device)


def a_trial_leaves_no_memory_behind(device: torch.device, folder: Path) -> Iterator[Finding]:
    """Yield what is still allocated after a trial, above what was there before it."""
    models = ("resnet8", "resnet18")
    for model in models:
        _train_trial(model, device, folder)
    release_memory(device)
    base_bytes = allocated_bytes(device)  # with the libraries' own, which stays
    for model in models:
        _train_trial(model, device, folder)
        release_memory(device)
        left_bytes = allocated_bytes(device) - base_bytes
        name = f"left by a trial of {model}, bytes"
        yield Finding(name, left_bytes, "0", left_bytes == 0)


def _train_trial(model: str, device: torch.device, folder: Path) -> None:
    """Train two epochs, with reports, on images that are kept on the device."""
    sizes = SIZES[device.type]
    size_px, num_train = sizes.image_size_px, sizes.stored_images // 2
    images = noise_file(folder, sizes.stored_images, stored_size_px("resized", size_px))
    first_rows = {"train": 0, "validation": num_train}
    batch_size = sizes.batch_size // 4
    with closing(DeviceLoader(images, first_rows, device)) as loader:
        results = fit(
            start_run(model, device, batch_size=batch_size, image_size_px=size_px),
            loader=loader,
            train=noise_index(num_train),
            validation=noise_index(sizes.stored_images - num_train, "validation"),
            recipe=build_recipe(batch_size, size_px, num_images=num_train, epochs=2),
            until_samples=2 * num_train,
        )
        messages = [result.message for result in results]
    assert messages == ["", ""], messages


def a_fence_bounds_what_a_process_may_take(device: torch.device, folder: Path) -> Iterator[Finding]:
    """Yield what a process got that fenced itself to a quarter of the card."""
    if device.type != "cuda":
        yield needs_a_gpu("a fence around a share of the card")
        return
    release_memory(device)
    # A process of its own, for a fence stays; spawned, for CUDA does not survive a fork.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        below, above = pool.submit(_take_beside_a_fence, 0.25, 600 * MIB).result(timeout=180)
    yield Finding("64 MiB below the fence of a quarter card", below, "given", below == "given")
    yield Finding("64 MiB above it", above, "OutOfMemoryError", above == "OutOfMemoryError")


def _take_beside_a_fence(share: float, context_bytes: int) -> tuple[str, str]:
    """Return what came of asking for a little less than this process may have, and of more."""
    fence_gpu_memory(share, context_bytes)
    room_bytes = int(share * torch.cuda.get_device_properties(0).total_memory) - context_bytes
    return _asked_for(room_bytes - 64 * MIB), _asked_for(room_bytes + 64 * MIB)


def _asked_for(num_bytes: int) -> str:
    try:
        torch.empty(num_bytes, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return "OutOfMemoryError"
    torch.cuda.empty_cache()
    return "given"


def automatic_slices_leave_a_tenth_free(device: torch.device, folder: Path) -> Iterator[Finding]:
    """Yield what the first step makes of a batch that all but fills the fence."""
    if device.type != "cuda":
        yield needs_a_gpu("accumulate_steps=auto")
        return
    whole = SIZES[device.type].batch_size
    # Unfenced first, all slices that may come: cuDNN remembers the kernels that it took.
    by_slice = {whole // steps: _two_sliced_steps(device, steps)[1] for steps in (4, 2, 1)}
    peak_bytes = torch.cuda.max_memory_allocated(device)  # of the whole batch, which came last
    # Fragments need room as well: where they need more, memory runs out on the way.
    room_bytes = max(peak_bytes * 26 // 25, torch.cuda.max_memory_reserved(device))
    room_bytes = min(room_bytes, int(peak_bytes / (1 - MARGIN) * 0.99))
    total_bytes = torch.cuda.get_device_properties(device).total_memory
    try:
        release_memory(device)
        torch.cuda.set_per_process_memory_fraction(room_bytes / total_bytes)
        num_ooms = torch.cuda.memory_stats(device)["num_ooms"]
        used, weights = _two_sliced_steps(device, "auto")
        num_ooms = torch.cuda.memory_stats(device)["num_ooms"] - num_ooms
        share = torch.cuda.max_memory_allocated(device) / room_bytes
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    before = f"{peak_bytes / room_bytes:.0%} of the fence"
    yield Finding(f"slice of a batch of {whole} that takes {before}", used, "smaller", used < whole)
    yield Finding("times that memory ran out on the way", num_ooms)
    yield Finding("peak memory of the slice chosen, of the fence", share, "at most 0.9",
                  share <= 1 - MARGIN)  # fmt: skip
    yield same_bits("weights beside those of that slice from the start", weights, by_slice[used])


def _two_sliced_steps(device: torch.device, accumulate_steps: int | str) -> tuple[int, Weights]:
    """Return the slice that was used in the end, and the weights after two steps."""
    sizes = SIZES[device.type]
    batch_size, size_px = sizes.batch_size, sizes.image_size_px
    release_memory(device)
    state = start_run(
        "resnet20", device, batch_size=batch_size, image_size_px=size_px,
        accumulate_steps=accumulate_steps,
    )  # fmt: skip
    images = noise_batch(batch_size, stored_size_px("resized", size_px), device)
    recipe = build_recipe(batch_size, size_px, num_images=batch_size, epochs=9)
    weights = take_steps(state, images, recipe, 2)
    return state.micro_batch_size, weights


MEMORY_CHECKS: dict[str, Examination] = {
    "memory that runs out leaves no trace": memory_that_runs_out_leaves_no_trace,
    "a trial leaves no memory behind": a_trial_leaves_no_memory_behind,
    "a fence bounds what a process may take": a_fence_bounds_what_a_process_may_take,
    "automatic slices leave a tenth free": automatic_slices_leave_a_tenth_free,
}
