import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.utils._python_dispatch import TorchDispatchMode

from tests.laws import assert_same_gradients
from tests.unit.training.conftest import small_net
from tuner.training.checkpoint import weights_sha256
from tuner.training.ghost_norm import GhostBatchNorm2d, group_sizes, use_ghost_batch_norm
from tuner.training.keyed_dropout import use_keyed_dropout
from tuner.training.models import build_model
from tuner.training.optim import build_optimizer
from tuner.training.step import (
    Prepare,
    StepOutcome,
    micro_batch_size,
    slice_sizes,
    step_seed,
    train_step,
)

NO_SCALER = GradScaler("cpu", enabled=False)


def batch_norm_net(group_size: int = 4, **options: Any) -> nn.Sequential:
    norm = GhostBatchNorm2d(8, ghost_batch_size=group_size, eps=1e-5, momentum=0.1)
    return small_net(norm, **options)


def draw_batch(num_images: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(num_images)
    labels = torch.randint(3, (num_images,), generator=draw)
    return torch.randn(num_images, 3, 6, 6, generator=draw), labels


def prepared(images: Tensor, labels: Tensor) -> tuple[Prepare, Tensor]:
    return images.__getitem__, labels


def take_steps(
    model: nn.Module,
    micro_batch_size: int,
    *,
    num_steps: int = 3,
    num_images: int = 30,
    has_room: Callable[[], bool] | None = None,
) -> list[StepOutcome]:
    """Train `model`, handing the slice size on from step to step as the loop does."""
    optimizer = build_optimizer(model, name="sgd", lr=0.1, momentum=0.9, weight_decay=1e-3)
    outcomes = []
    for step in range(num_steps):
        outcome = train_step(
            model,
            optimizer,
            NO_SCALER,
            *prepared(*draw_batch(num_images + step)),
            micro_batch_size=micro_batch_size,
            seed=step_seed(0, step),
            clip_norm=1.0,
            has_room=has_room,
        )
        micro_batch_size = outcome.micro_batch_size
        outcomes.append(outcome)
    return outcomes


@given(
    num_images=st.integers(1, 70),
    group_size=st.integers(2, 16),
    groups_per_slice=st.integers(1, 6),
    has_batch_norm=st.booleans(),
    precision=st.sampled_from([(torch.float64, 1e-12), (torch.float32, 1e-5)]),
    label_smoothing=st.sampled_from([0.0, 0.1]),
    dropout=st.sampled_from([0.0, 0.3]),
    mode=st.sampled_from(["row", "batch"]),
)
def test_slices_of_whole_groups_give_the_gradient_of_the_whole_batch(
    num_images: int,
    group_size: int,
    groups_per_slice: int,
    has_batch_norm: bool,
    precision: tuple[torch.dtype, float],
    label_smoothing: float,
    dropout: float,
    mode: str,
) -> None:
    dtype, relative = precision
    torch.manual_seed(0)
    model = (
        batch_norm_net(group_size, dropout=dropout, mode=mode)
        if has_batch_norm
        else small_net(nn.GroupNorm(2, 8), dropout=dropout, mode=mode)
    )
    images, labels = draw_batch(num_images)
    assert_same_gradients(
        model.to(dtype),
        images.to(dtype),
        labels,
        micro_batch_size=groups_per_slice * (group_size if has_batch_norm else 1),
        whole_batch_size=16 * 70,
        label_smoothing=label_smoothing,
        relative=relative,
    )


def test_slices_give_the_gradient_of_the_whole_batch_for_a_model_with_much_dropout() -> None:
    torch.manual_seed(0)
    model = build_model("efficientnet_b0", 3, image_size_px=32, ghost_batch_size=4).double()
    labels = torch.arange(12) % 3
    images = torch.randn(12, 3, 32, 32, dtype=torch.float64)
    assert_same_gradients(
        model, images, labels, micro_batch_size=4, whole_batch_size=12, label_smoothing=0.1,
        relative=1e-12,
    )  # fmt: skip


def test_slices_give_the_gradient_of_the_whole_batch_for_norms_and_dropout_of_all_kinds() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.Dropout2d(0.3), nn.Flatten(), nn.LazyLinear(8),
        nn.BatchNorm1d(8), nn.Unflatten(1, (4, 2)), nn.Dropout1d(0.3), nn.BatchNorm1d(4),
        nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip
    images, labels = draw_batch(23)
    model(images)
    use_ghost_batch_norm(model, 4)
    use_keyed_dropout(model)
    for size in (4, 8, 12):
        assert_same_gradients(
            model.double(), images.double(), labels, micro_batch_size=size,
            whole_batch_size=24, label_smoothing=0.1, relative=1e-12,
        )  # fmt: skip


def test_the_gradient_is_that_of_the_mean_loss() -> None:
    torch.manual_seed(0)
    model = small_net(nn.GroupNorm(2, 8))
    images, labels = draw_batch(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    outcome = train_step(
        model,
        optimizer,
        NO_SCALER,
        images.__getitem__,
        labels,
        micro_batch_size=3,
        seed=0,
        label_smoothing=0.1,
    )
    got = [p.grad for p in model.parameters()]
    losses = nn.functional.cross_entropy(
        model(images), labels, reduction="none", label_smoothing=0.1
    )
    expected = torch.autograd.grad(losses.mean(), list(model.parameters()))
    torch.testing.assert_close(got, list(expected))
    torch.testing.assert_close(outcome.losses, losses.detach())
    assert int(outcome.num_correct) == int((model(images).argmax(1) == labels).sum())


def test_weights_after_ten_steps_hardly_depend_on_the_slices() -> None:
    weights = []
    for slice_size in (32, 16, 4):
        torch.manual_seed(0)
        model = batch_norm_net()
        take_steps(model, slice_size, num_steps=10)
        weights.append(torch.cat([value.flatten() for value in model.state_dict().values()]))
    for other in weights[1:]:
        assert (other - weights[0]).norm() <= 1e-4 * weights[0].norm()


@pytest.mark.parametrize("group_size", [1, 2, 32])
def test_slices_are_whole_groups_about_batch_over_accumulate(group_size: int) -> None:
    for batch_size in range(1, 201):
        for accumulate_steps in range(1, 17):
            micro = micro_batch_size(batch_size, accumulate_steps, group_size)
            assert micro % group_size == 0
            assert 0 <= micro * accumulate_steps - batch_size < accumulate_steps * (group_size + 1)
            for num_images in {batch_size, 1 + batch_size // 3}:
                sizes = slice_sizes(num_images, micro, group_size)
                assert sum(sizes) == num_images
                assert len(sizes) <= accumulate_steps
                groups = [g for size in sizes for g in group_sizes(size, group_size)]
                assert groups == group_sizes(num_images, group_size)


class LittleMemory(nn.Module):
    """Runs out of memory on a slice above `max_images`, late: BatchNorm and RNG have moved."""

    def __init__(self, net: nn.Module, max_images: int, error: Exception) -> None:
        super().__init__()
        self.net, self.max_images, self.error = net, max_images, error
        self.failed: weakref.ref[Tensor] | None = None
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        assert self.failed is None or self.failed() is None, "the failed slice is still alive"
        logits: Tensor = self.net(images)
        if len(images) > self.max_images:
            self.failed = weakref.ref(logits)
            raise type(self.error)(*self.error.args)
        return logits


@pytest.mark.parametrize("max_images", [4, 8, 16])
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ],
)
def test_a_retry_for_memory_ends_as_if_begun_with_the_smaller_slice(
    max_images: int, error: Exception
) -> None:
    torch.manual_seed(0)
    retried = LittleMemory(batch_norm_net(4, dropout=0.3), max_images, error)
    torch.manual_seed(0)
    from_start = batch_norm_net(4, dropout=0.3)
    outcomes = take_steps(retried, 32)
    expected = take_steps(from_start, max_images)
    assert retried.failed is not None
    assert [outcome.micro_batch_size for outcome in outcomes] == [max_images] * 3
    assert weights_sha256(retried.net) == weights_sha256(from_start)
    for outcome, other in zip(outcomes, expected, strict=True):
        assert torch.equal(outcome.losses, other.losses)
        assert torch.equal(outcome.num_correct, other.num_correct)


@pytest.mark.parametrize("max_images", [4, 8])
def test_memory_that_runs_out_for_the_input_halves_the_slice_too(max_images: int) -> None:
    model = batch_norm_net(4, dropout=0.3)
    images, labels = draw_batch(30)
    asked = []

    def prepare(rows: slice) -> Tensor:
        asked.append(rows.stop - rows.start)
        if asked[-1] > max_images:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return images[rows]

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outcome = train_step(model, optimizer, NO_SCALER, prepare, labels, micro_batch_size=32, seed=0)
    assert outcome.micro_batch_size == max_images
    failed, used = [size for size in asked if size > max_images], asked[-8 * 4 // max_images :]
    assert asked == failed + used
    assert sum(used) == 30


def test_a_slice_above_a_short_step_is_halved_from_what_the_step_used() -> None:
    model = LittleMemory(batch_norm_net(4), 4, torch.OutOfMemoryError("out"))
    (outcome,) = take_steps(model, 400, num_steps=1, num_images=8)
    assert outcome.micro_batch_size == 4
    assert model.calls == 1 + 2


@pytest.mark.parametrize(
    ("answers", "size"), [([True], 32), ([False, True], 16), ([False, False, True], 8)]
)
def test_slices_are_halved_until_there_is_room_and_the_step_begins_anew(
    answers: list[bool], size: int
) -> None:
    torch.manual_seed(0)
    asked, from_start = batch_norm_net(4, dropout=0.3), batch_norm_net(4, dropout=0.3)
    from_start.load_state_dict(asked.state_dict())
    (outcome,) = take_steps(asked, 32, num_steps=1, has_room=iter(answers).__next__)
    take_steps(from_start, size, num_steps=1)
    assert outcome.micro_batch_size == size
    assert weights_sha256(asked) == weights_sha256(from_start)


def test_one_group_does_without_room() -> None:
    (outcome,) = take_steps(batch_norm_net(4), 32, num_steps=1, has_room=lambda: False)
    assert outcome.micro_batch_size == 4


def test_memory_too_small_for_one_group_is_told() -> None:
    model = LittleMemory(batch_norm_net(4), 3, torch.OutOfMemoryError("out"))
    with pytest.raises(torch.OutOfMemoryError) as caught:
        take_steps(model, 32)
    assert str(caught.value) == "one slice of 4 images does not fit in memory"


def test_a_model_without_batch_norm_is_halved_down_to_one_image() -> None:
    model = LittleMemory(small_net(nn.GroupNorm(2, 8)), 1, torch.OutOfMemoryError("out"))
    assert take_steps(model, 32)[-1].micro_batch_size == 1


@pytest.mark.parametrize(
    "message", ["CUDA error: an illegal memory access was encountered", "shapes do not fit"]
)
def test_another_error_passes_unchanged_and_is_not_retried(message: str) -> None:
    model = LittleMemory(batch_norm_net(4), 3, RuntimeError(message))
    with pytest.raises(RuntimeError) as caught:
        take_steps(model, 32)
    assert str(caught.value) == message
    assert model.calls == 1


@pytest.mark.parametrize("name", ["sgd", "adamw"])
@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_a_step_that_the_scaler_skips_moves_no_parameter(
    name: str, clip_norm: float | None
) -> None:
    torch.manual_seed(0)
    model = batch_norm_net()
    optimizer = build_optimizer(model, name=name, lr=0.1, momentum=0.9, weight_decay=0.1)
    scaler = GradScaler("cpu", init_scale=2.0**127)

    images, labels = draw_batch(9)

    def step() -> None:
        train_step(
            model, optimizer, scaler, *prepared(1000 * images, labels), micro_batch_size=4, seed=0,
            clip_norm=clip_norm,
        )  # fmt: skip

    before = [p.clone() for p in model.parameters()]
    step()
    assert scaler.get_scale() == 2.0**126
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    moments = [v for state in optimizer.state.values() for v in state.values()]
    assert all(not value.any() for value in moments if value is not None)
    scaler.update(1.0)
    step()
    assert not all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_scaling_by_a_power_of_two_changes_nothing(clip_norm: float | None) -> None:
    hashes = set()
    for scaler in (NO_SCALER, GradScaler("cpu", init_scale=2.0**10)):
        torch.manual_seed(0)
        model = batch_norm_net()
        optimizer = build_optimizer(model, name="sgd", lr=0.1, momentum=0.9, weight_decay=0)
        for step in range(3):
            train_step(
                model, optimizer, scaler, *prepared(*draw_batch(9)), micro_batch_size=4, seed=step,
                clip_norm=clip_norm,
            )  # fmt: skip
        hashes.add(weights_sha256(model))
    assert len(hashes) == 1


def test_the_norm_clipped_is_that_of_the_summed_gradient() -> None:
    model = small_net(nn.GroupNorm(2, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    images, labels = draw_batch(10)
    train_step(
        model,
        optimizer,
        NO_SCALER,
        images.__getitem__,
        labels,
        micro_batch_size=3,
        seed=0,
        clip_norm=0.01,
    )
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    torch.testing.assert_close(norm, torch.tensor(0.01))


class HostReads(TorchDispatchMode):
    """Counts how often a value is read from the device."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_a_step_never_waits_for_the_device() -> None:
    model = batch_norm_net(4, dropout=0.1)
    with HostReads() as reads:
        outcome = take_steps(model, 8, num_steps=1)[0]
        assert reads.count == 0
        outcome.num_correct.item()
        assert reads.count == 1


def test_a_step_s_random_numbers_are_keyed_by_seed_and_place() -> None:
    assert len({step_seed(seed, seen) for seed in range(40) for seen in range(40)}) == 1600
    hashes = []
    for state_before in (1, 2):
        torch.manual_seed(0)
        model = batch_norm_net(4, dropout=0.5)
        torch.manual_seed(state_before)
        take_steps(model, 8)
        hashes.append(weights_sha256(model))
    assert hashes[0] == hashes[1]
