from pathlib import Path

import pytest
import torch
from torch import nn

from tests.unit.training.conftest import small_net
from tuner.training.ghost_norm import use_ghost_batch_norm
from tuner.training.state import TrainState, start_state


def build(precision: str, accumulate_steps: int = 1) -> TrainState:
    def net() -> nn.Module:
        model = small_net(nn.BatchNorm2d(8))
        use_ghost_batch_norm(model, 8)
        return model

    return start_state(
        net,
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        device=torch.device("cpu"),
        precision=precision,
        batch_size=50,
        accumulate_steps=accumulate_steps,
        seed=5,
    )


@pytest.mark.parametrize(
    ("precision", "dtype", "is_scaled"),
    [
        ("auto", None, False),
        ("fp32", None, False),
        ("bf16", torch.bfloat16, False),
        ("fp16", torch.float16, True),
    ],
)
def test_precision_says_the_arithmetic(
    precision: str, dtype: torch.dtype | None, is_scaled: bool
) -> None:
    state = build(precision)
    assert state.autocast_dtype is dtype
    assert state.scaler.is_enabled() is is_scaled


def test_the_slice_is_whole_groups_of_the_model() -> None:
    assert build("fp32", accumulate_steps=4).micro_batch_size == 16


def test_the_seed_draws_the_first_weights_and_memory_is_channels_last() -> None:
    first, second = build("fp32").model, build("fp32").model
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    assert first[0].weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[index]


def test_the_predictions_of_the_last_report_go_with_a_checkpoint(tmp_path: Path) -> None:
    before, after = build("fp32"), build("fp32")
    assert before.to_plain()["predictions"] is None
    before.predictions = torch.tensor([2, 0, 1], dtype=torch.int32)
    torch.save(before.to_plain(), tmp_path / "a.pt")
    after.restore(torch.load(tmp_path / "a.pt", weights_only=True))
    assert after.predictions is not None
    assert (after.predictions.dtype, after.predictions.tolist()) == (torch.int32, [2, 0, 1])
    plain = before.to_plain()
    del plain["predictions"]  # as earlier versions wrote it
    after.restore(plain)
    assert after.predictions is None


@pytest.mark.parametrize(("saved", "resumed"), [("fp32", "fp16"), ("fp16", "fp32")])
def test_a_run_goes_on_with_a_scaler_that_the_checkpoint_does_not_know(
    saved: str, resumed: str
) -> None:
    before, after = build(saved), build(resumed)
    before.samples_seen = 50
    expected = after.scaler.state_dict()
    after.restore(before.to_plain())
    assert after.samples_seen == 50
    assert after.scaler.state_dict() == expected
