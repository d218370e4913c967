import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.unit.training.conftest import small_net
from tuner.training.evaluate import evaluate
from tuner.training.ghost_norm import GhostBatchNorm2d
from tuner.training.step import Prepare

CPU = torch.device("cpu")


def batches(
    images: Tensor, labels: Tensor, batch_size: int = 1000
) -> Iterator[tuple[Prepare, Tensor]]:
    for part, targets in zip(images.split(batch_size), labels.split(batch_size), strict=True):
        yield part.__getitem__, targets


@given(
    num_images=st.integers(1, 90),
    num_classes=st.sampled_from([2, 3, 4, 5, 6, 10, 1000]),
    batch_size=st.integers(1, 40),
    levels=st.sampled_from([2, 5, 10**6]),
    seed=st.integers(0, 100),
)
def test_counts_and_loss_equal_numpy_s(
    num_images: int, num_classes: int, batch_size: int, levels: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, levels, (num_images, num_classes)) * (8 / levels)  # ties are many
    labels = rng.integers(0, num_classes, num_images)
    found = evaluate(
        nn.Identity(),
        batches(torch.from_numpy(logits), torch.from_numpy(labels), batch_size),
        device=CPU,
    )
    order = np.argsort(-logits, axis=1, kind="stable")
    hits = order == labels[:, None]
    assert found.num_correct_top1 == hits[:, :1].sum()
    assert found.predictions.dtype == torch.int32
    assert found.predictions.tolist() == order[:, 0].tolist()
    assert found.num_correct_top5 == hits[:, :5].sum()
    assert found.num_evaluated == num_images
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(num_images), labels]
    assert found.loss_sum == pytest.approx(losses.sum(), rel=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("column", [0, 1])
def test_a_logit_that_is_no_number_makes_the_loss_none(value: float, column: int) -> None:
    logits = torch.zeros(4, 3)
    logits[2, column] = value
    found = evaluate(nn.Identity(), batches(logits, torch.zeros(4, dtype=torch.int64)), device=CPU)
    assert not math.isfinite(found.loss_sum)


@given(
    logits=st.lists(
        st.lists(
            st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.0]), min_size=7, max_size=7
        ),
        min_size=1,
        max_size=20,
    ),
    seed=st.integers(0, 9),
)
def test_top_1_is_the_number_of_right_predictions_whatever_the_logits(
    logits: list[list[float]], seed: int
) -> None:
    labels = torch.from_numpy(np.random.default_rng(seed).integers(0, 7, len(logits)))
    found = evaluate(nn.Identity(), batches(torch.tensor(logits), labels, 3), device=CPU)
    assert found.num_correct_top1 == (found.predictions == labels).sum()
    assert found.num_correct_top1 <= found.num_correct_top5 <= found.num_evaluated
    assert found.num_evaluated == len(found.predictions)


def test_nothing_of_the_model_or_the_rng_moves() -> None:
    norm = GhostBatchNorm2d(8, ghost_batch_size=2, eps=1e-5, momentum=0.1)
    model = small_net(norm, dropout=0.5)
    model[0].eval()
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rng = torch.get_rng_state()
    batch = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    first, again = (
        evaluate(model, batches(batch, torch.zeros(6, dtype=torch.int64)), device=CPU)
        for _ in range(2)
    )
    assert torch.equal(first.predictions, again.predictions)
    assert (first.loss_sum, first.num_correct_top5) == (again.loss_sum, again.num_correct_top5)
    assert torch.equal(torch.get_rng_state(), rng)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_modes_come_back_after_an_error() -> None:
    model = small_net(nn.BatchNorm2d(8))
    with pytest.raises(RuntimeError, match="channels"):
        evaluate(model, batches(torch.zeros(2, 5, 8, 8), torch.zeros(2)), device=CPU)
    assert all(module.training for module in model.modules())


class LittleMemory(nn.Module):
    """Takes logits as images; runs out of memory above `max_images`."""

    def __init__(self, max_images: int) -> None:
        super().__init__()
        self.max_images = max_images
        self.sizes: list[int] = []

    def forward(self, logits: Tensor) -> Tensor:
        self.sizes.append(len(logits))
        if len(logits) > self.max_images:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return logits


def test_batches_are_halved_where_memory_runs_out_and_all_images_still_count_once() -> None:
    logits, labels = torch.randn(70, 7).double(), torch.arange(70) % 7
    expected = evaluate(nn.Identity(), batches(logits, labels), device=CPU)
    model = LittleMemory(5)
    found = evaluate(model, batches(logits, labels, 32), device=CPU)
    assert model.sizes == [32, 16, 8, *[4] * 16, 4, 2]
    assert (found.num_correct_top1, found.num_correct_top5, found.num_evaluated) == (
        expected.num_correct_top1, expected.num_correct_top5, 70,
    )  # fmt: skip
    assert found.loss_sum == pytest.approx(expected.loss_sum, rel=1e-12)
    assert found.predictions.tolist() == logits.argmax(1).tolist()


def test_one_image_that_does_not_fit_is_told() -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        evaluate(LittleMemory(0), batches(torch.zeros(3, 2), torch.zeros(3).long()), device=CPU)
    assert str(caught.value) == "one image to evaluate does not fit in memory"
