import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.unit.training.conftest import small_net
from tuner.training.evaluate import evaluate
from tuner.training.ghost_norm import GhostBatchNorm2d

CPU = torch.device("cpu")


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
        zip(
            torch.from_numpy(logits).split(batch_size),
            torch.from_numpy(labels).split(batch_size),
            strict=True,
        ),
        device=CPU,
    )
    order = np.argsort(-logits, axis=1, kind="stable")
    hits = order == labels[:, None]
    assert found.num_correct_top1 == hits[:, :1].sum()
    assert found.num_correct_top5 == hits[:, :5].sum()
    assert found.num_evaluated == num_images
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(num_images), labels]
    assert found.loss_sum == pytest.approx(losses.sum(), rel=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("column", [0, 1])
def test_a_logit_that_is_no_number_makes_the_loss_none(value: float, column: int) -> None:
    logits = torch.zeros(4, 3)
    logits[2, column] = value
    found = evaluate(nn.Identity(), [(logits, torch.zeros(4, dtype=torch.int64))], device=CPU)
    assert not math.isfinite(found.loss_sum)


def test_nothing_of_the_model_or_the_rng_moves() -> None:
    norm = GhostBatchNorm2d(8, ghost_batch_size=2, eps=1e-5, momentum=0.1)
    model = small_net(norm, dropout=0.5)
    model[0].eval()
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rng = torch.get_rng_state()
    batch = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    first, again = (
        evaluate(model, [(batch, torch.zeros(6, dtype=torch.int64))], device=CPU) for _ in range(2)
    )
    assert first == again
    assert torch.equal(torch.get_rng_state(), rng)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_modes_come_back_after_an_error() -> None:
    model = small_net(nn.BatchNorm2d(8))
    with pytest.raises(RuntimeError, match="channels"):
        evaluate(model, [(torch.zeros(2, 5, 8, 8), torch.zeros(2))], device=CPU)
    assert all(module.training for module in model.modules())
