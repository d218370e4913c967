"""Half precision: which steps fp16 skips, and that such a step is as if it had not been."""

from dataclasses import replace

import pytest
import torch
from torch.amp import GradScaler

from tests.unit.training.conftest import RECIPE
from tests.unit.training.test_average import AVERAGED, start
from tests.unit.training.test_loop import run
from tuner.training.checkpoint import weights_sha256
from tuner.training.optim import learning_rate
from tuner.training.plan import Recipe
from tuner.training.state import TrainState

TOO_HIGH = 2.0**22  # gradients in fp16 end at 65,504


def learning_rates(state: TrainState) -> list[float]:
    """Return a list that each step, skipped or not, adds its learning rate to."""
    rates: list[float] = []
    state.optimizer.register_step_pre_hook(
        lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"])
    )
    return rates


def test_a_skipped_step_moves_neither_schedule_nor_average_nor_weights() -> None:
    state = start(precision="fp16")
    state.scaler = GradScaler("cpu", init_scale=TOO_HIGH)
    rates = learning_rates(state)
    looks = [look(state)]
    recipe = replace(AVERAGED, report_samples=32)  # steps of 8 images each
    results = run(state, recipe, 32, save=lambda _: looks.append(look(state)), checkpoint_every_s=0)
    assert [each.message for each in results] == [""] * 3
    assert len(rates) == len(looks) - 1 == 12
    taken = 0
    for rate, (weights, average, skipped), after in zip(rates, looks, looks[1:], strict=False):
        assert rate == rate_at(taken + 4, recipe)  # the schedule counts images of steps taken
        is_skipped = after[2] == skipped + 8
        assert is_skipped or after[2] == skipped
        assert torch.equal(weights, after[0]) is is_skipped
        assert (average == after[1]) is is_skipped
        taken += 0 if is_skipped else 8
    assert 0 < taken == 8 * state.optimizer_steps < 96


def look(state: TrainState) -> tuple[torch.Tensor, str, int]:
    """Return the first weights, a hash of the whole average, and the images of skipped steps."""
    assert state.average is not None
    weights = next(state.model.parameters()).detach().clone()
    return weights, weights_sha256(state.average), state.samples_skipped


def rate_at(samples: float, recipe: Recipe) -> float:
    """Return the learning rate in the middle of a step there, of 96 images in all."""
    return learning_rate(
        samples,
        total_samples=96,
        peak_lr=recipe.peak_lr,
        schedule=recipe.schedule,
        warmup_fraction=recipe.warmup_fraction,
    )


def test_images_of_skipped_steps_are_seen_and_the_budget_stays() -> None:
    state = start(precision="fp16")
    state.scaler = GradScaler("cpu", init_scale=TOO_HIGH)
    results = list(run(state, AVERAGED))
    assert state.samples_skipped > 0
    assert results[-1].samples_seen == RECIPE.epochs * 30
    assert results[-1].reason is None


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_without_a_scaler_no_step_is_skipped(precision: str) -> None:
    state = start(precision=precision)
    list(run(state, AVERAGED))
    assert state.samples_skipped == 0
    assert state.optimizer_steps == 3 * 4
    assert all(value.dtype == torch.float32 for value in state.model.parameters())
    assert not state.scaler.is_enabled()


def test_the_scale_of_a_checkpoint_is_gone_on_with() -> None:
    state, resumed = start(precision="fp16"), start(precision="fp16")
    state.scaler = GradScaler("cpu", init_scale=TOO_HIGH)
    list(run(state, until_samples=30))
    resumed.restore(state.to_plain())
    assert resumed.scaler.get_scale() == state.scaler.get_scale() < TOO_HIGH
    assert resumed.samples_skipped == state.samples_skipped > 0
