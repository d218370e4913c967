"""What training promises, on the device that it is for."""

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from tests.laws import assert_resumes_exactly, assert_same_gradients
from tests.unit.training.conftest import RECIPE as RECIPE_OF_LOOP
from tests.unit.training.conftest import memory_loader, small_net
from tuner.data.augment import Augment, augment_batch, evaluation_batch, to_device
from tuner.data.keyed import stable_keys
from tuner.data.mining import Mining
from tuner.training.checkpoint import CheckpointFolder
from tuner.training.evaluate import evaluate
from tuner.training.ghost_norm import GhostBatchNorm2d
from tuner.training.loop import fit
from tuner.training.memory import fence_gpu_memory
from tuner.training.mining import start_mining
from tuner.training.optim import build_optimizer
from tuner.training.result import EpochResult
from tuner.training.speed import time_steps
from tuner.training.state import TrainState, start_state
from tuner.training.step import train_step

RECIPE = replace(
    RECIPE_OF_LOOP,
    batch_size=16,
    report_samples=30,
    ema_decay=0.9,
    mining=Mining(ratio=1.5, hard_fraction=0.2, start_fraction=0.3, end_fraction=0.9),
)


def net() -> nn.Module:
    norm = GhostBatchNorm2d(8, ghost_batch_size=4, eps=1e-5, momentum=0.1)
    return small_net(norm, dropout=0.3)


def start(device: torch.device, precision: str = "fp32") -> TrainState:
    state = start_state(
        net,
        lambda model: build_optimizer(model, name="sgd", lr=1, momentum=0.9, weight_decay=1e-3),
        device=device,
        precision=precision,
        batch_size=RECIPE.batch_size,
        accumulate_steps=2,
        seed=0,
        is_averaged=True,
    )
    state.mining = start_mining(60, np.empty(0, np.int64), device)
    return state


def run(state: TrainState, **options: Any) -> Generator[EpochResult, None, None]:
    loader = memory_loader(60)
    return fit(
        state,
        loader=loader,
        train=loader.train,
        validation=loader.validation,
        recipe=RECIPE,
        until_samples=RECIPE.epochs * 60,
        **options,
    )


@pytest.mark.parametrize(("dtype", "relative"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("num_images", [30, 64])
@pytest.mark.parametrize("micro_batch_size", [4, 16])
def test_slices_give_the_gradient_of_the_whole_batch(
    device: torch.device,
    dtype: torch.dtype,
    relative: float,
    num_images: int,
    micro_batch_size: int,
) -> None:
    torch.manual_seed(0)
    images = torch.randn(num_images, 3, 8, 8, dtype=dtype).to(device)
    assert_same_gradients(
        net().to(device, dtype),
        images,
        (torch.arange(num_images) % 3).to(device),
        micro_batch_size=micro_batch_size,
        whole_batch_size=64,
        label_smoothing=0.1,
        relative=relative,
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_run_trains_and_reports(device: torch.device, precision: str) -> None:
    state = start(device, precision)
    results = list(run(state))
    assert [result.reason for result in results] == [None] * 6
    assert all(math.isfinite(result.train_loss) for result in results)
    assert all(value.isfinite().all() for value in state.model.state_dict().values())


@pytest.mark.parametrize("crop", ["none", "pad", "resized"])
def test_an_image_looks_the_same_in_any_slice(device: torch.device, crop: str) -> None:
    augment = Augment(crop=crop, flip=True, rotate90=True, image_size_px=28)  # type: ignore[arg-type]
    pixels = torch.randint(0, 256, (37, 32, 32, 3), dtype=torch.uint8)
    keys = stable_keys(map(str, range(37)))
    look = partial(augment_batch, seed=0, epoch=1, augment=augment)
    whole = look(pixels.to(device), keys)
    for size in (1, 5, 16):
        rows = [slice(first, first + size) for first in range(0, 37, size)]
        parts = [look(pixels[part].to(device), keys[part]) for part in rows]
        assert torch.equal(torch.cat(parts), whole)


@contextmanager
def no_waiting(device: torch.device) -> Iterator[None]:
    """Makes every wait for the GPU an error."""
    if device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("crop", ["pad", "resized"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_step_waits_for_nothing(
    device: torch.device, crop: str, precision: str, optimizer: str
) -> None:
    augment = Augment(crop=crop, flip=True, rotate90=True, image_size_px=8)  # type: ignore[arg-type]
    pixels = torch.randint(0, 256, (16, 10, 10, 3), dtype=torch.uint8)
    if device.type == "cuda":
        pixels = pixels.pin_memory()
    keys, classes = stable_keys(map(str, range(16))), np.arange(16) % 3
    model = net().to(device)
    dtype = torch.bfloat16 if precision == "bf16" else None
    scaler = GradScaler(device.type, enabled=False)  # one that scales waits, once a step
    stepper = build_optimizer(model, name=optimizer, lr=0.1, momentum=0.9, weight_decay=1e-3)

    def prepare(rows: slice) -> Tensor:
        images = pixels[rows].to(device, non_blocking=True)
        return augment_batch(
            images, keys[rows], seed=0, epoch=0, augment=augment, dtype=dtype or torch.float32
        )

    def step(seed: int) -> None:
        train_step(
            model, stepper, scaler, prepare, to_device(classes, device), micro_batch_size=8,
            seed=seed, autocast_dtype=dtype, label_smoothing=0.1, clip_norm=1.0,
        )  # fmt: skip

    step(0)  # constants and libraries come with the first
    with no_waiting(device):
        step(1)
        evaluation_batch(pixels.to(device, non_blocking=True), image_size_px=8)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_run_killed_at_any_step_resumes_to_the_same_bits(
    device: torch.device, precision: str, tmp_path: Path
) -> None:
    assert_resumes_exactly(
        partial(start, device, precision),
        lambda state, save: run(state, save=save, checkpoint_every_s=0.0),
        CheckpointFolder(tmp_path, pytest.fail),
    )


def test_the_speed_of_steps_is_measured_with_their_memory(device: torch.device) -> None:
    loader = memory_loader(60)
    state = start(device)
    found = time_steps(state, loader=loader, train=loader.train, recipe=RECIPE, seconds=0.2)
    assert found.seconds >= 0.2
    assert found.images_per_s > 0
    weights = sum(each.nbytes for each in state.model.parameters())
    assert weights < found.peak_memory_bytes


def test_a_share_of_a_card_is_a_fence(cuda: torch.device) -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        fence_gpu_memory(0.25, context_bytes=600 * 2**20)
        inside = torch.empty(total // 8, dtype=torch.uint8, device=cuda)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total // 4, dtype=torch.uint8, device=cuda)
        del inside
    finally:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize(("here", "there"), [("fp16", "fp32"), ("bf16", "fp32")])
def test_a_checkpoint_goes_to_the_cpu_and_back(
    device: torch.device, here: str, there: str, tmp_path: Path
) -> None:
    folder, cpu = CheckpointFolder(tmp_path, pytest.fail), torch.device("cpu")
    state: TrainState = start(device, here)
    for target, precision in ((cpu, there), (device, here)):
        next(run(state))
        folder.save(state.to_plain(), state.samples_seen)
        expected = {name: value.cpu() for name, value in state.model.state_dict().items()}
        state = start(target, precision)
        state.restore(folder.load(folder.saved()[-1]))
        for name, value in state.model.state_dict().items():
            assert value.device.type == target.type
            assert torch.equal(value.cpu(), expected[name])
    assert list(run(state))[-1].reason is None


class Greedy(nn.Module):
    """Needs `bytes_per_image` of memory beside what the net inside takes."""

    def __init__(self, inner: nn.Module, bytes_per_image: int) -> None:
        super().__init__()
        self.inner, self.bytes_per_image = inner, bytes_per_image

    def forward(self, images: Tensor) -> Tensor:
        room = images.new_empty(len(images) * self.bytes_per_image // 4, dtype=torch.float32)
        logits: Tensor = self.inner(images)
        return logits + 0 * room[:1].zero_()


@contextmanager
def little_memory(device: torch.device, free_bytes: int) -> Iterator[None]:
    """Leaves about so much of the GPU's memory to this process."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    held = torch.cuda.memory_reserved(device)
    torch.cuda.set_per_process_memory_fraction((held + free_bytes) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


def step_with(model: nn.Module, device: torch.device, micro_batch_size: int) -> tuple[int, Tensor]:
    images = torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(0)).to(device)
    labels = (torch.arange(32) % 3).to(device)
    optimizer = build_optimizer(model, name="sgd", lr=0.1, momentum=0.9, weight_decay=0.0)
    outcome = train_step(
        model, optimizer, GradScaler(device.type, enabled=False), images.__getitem__, labels,
        micro_batch_size=micro_batch_size, seed=5,
    )  # fmt: skip
    weights = [value.detach().flatten().double() for value in model.parameters()]
    return outcome.micro_batch_size, torch.cat([*weights, outcome.losses.double()])


def test_memory_that_runs_out_halves_the_slice_and_leaves_no_trace(cuda: torch.device) -> None:
    def build(bytes_per_image: int) -> nn.Module:
        torch.manual_seed(0)
        return Greedy(net(), bytes_per_image).to(cuda)

    step_with(build(4), cuda, 32)  # the libraries' own memory is taken
    with little_memory(cuda, 1536 * 2**20):
        used, retried = step_with(build(100 * 2**20), cuda, 32)
    assert used == 8
    _, from_start = step_with(build(4), cuda, used)
    assert torch.equal(retried, from_start)


def test_memory_that_runs_out_halves_the_evaluation(cuda: torch.device) -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(40, 3, 8, 8).to(cuda), (torch.arange(40) % 3).to(cuda)
    model = Greedy(net(), 4).to(cuda)
    look: Callable[[slice], Tensor] = images.__getitem__
    expected = evaluate(model, [(look, labels)], device=cuda)
    model.bytes_per_image = 100 * 2**20
    with little_memory(cuda, 1536 * 2**20):
        found = evaluate(model, [(look, labels)], device=cuda)
    assert found.num_evaluated == 40
    assert found.num_correct_top1 == expected.num_correct_top1
    assert torch.equal(found.predictions, expected.predictions)
    assert found.loss_sum == pytest.approx(expected.loss_sum, rel=1e-5)


def test_of_equal_classes_the_first_is_predicted_as_on_a_cpu(cuda: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(0, 3, (500, 1000), generator=generator).float()
    labels = torch.randint(0, 20, (500,), generator=generator)
    found = []
    for device in (torch.device("cpu"), cuda):
        look: Callable[[slice], Tensor] = logits.to(device).__getitem__
        found.append(evaluate(nn.Identity(), [(look, labels.to(device))], device=device))
        assert found[-1].num_correct_top1 == (found[-1].predictions == labels).sum()
    assert torch.equal(found[0].predictions, found[1].predictions)
    assert found[0].num_correct_top1 == found[1].num_correct_top1
