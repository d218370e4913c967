"""The running average of the weights: how it moves, and that it is what is judged and kept."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.laws import assert_resumes_exactly
from tests.unit.training.conftest import RECIPE, memory_loader, small_net
from tests.unit.training.test_loop import net, run
from tuner.data.augment import evaluation_batch
from tuner.errors import SettingsError
from tuner.training.average import start_average, update_average
from tuner.training.checkpoint import CheckpointFolder, weights_sha256
from tuner.training.evaluate import evaluate
from tuner.training.optim import build_optimizer
from tuner.training.state import TrainState, start_state, trained_weights

AVERAGED = replace(RECIPE, ema_decay=0.8)


def start(
    build: Callable[[], nn.Module] = net, precision: str = "fp32", *, is_averaged: bool = True
) -> TrainState:
    return start_state(
        build,
        lambda model: build_optimizer(model, name="sgd", lr=1, momentum=0.9, weight_decay=1e-3),
        device=torch.device("cpu"),
        precision=precision,
        batch_size=RECIPE.batch_size,
        accumulate_steps=2,
        seed=0,
        is_averaged=is_averaged,
    )


def test_an_average_moves_by_its_decay_and_faster_in_the_first_steps() -> None:
    model = nn.Linear(1, 1)
    average = start_average(model)
    expected = 0.0
    model.weight.data.fill_(0.0)
    average.weight.data.fill_(0.0)  # type: ignore[operator]
    for number, decay in ((1, 2 / 11), (2, 3 / 12), (3, 4 / 13), (40, 0.8), (1000, 0.8)):
        model.weight.data.fill_(float(number))
        update_average(average, model, decay=0.8, num_steps=number)
        expected = decay * expected + (1 - decay) * number
        assert average.weight.item() == pytest.approx(expected)  # type: ignore[operator]


def test_statistics_are_averaged_as_the_weights_are_and_counts_are_copied() -> None:
    model = nn.BatchNorm1d(2)
    average = start_average(model)
    for _ in range(3):
        model(torch.randn(8, 2) + 5)
    before = average.state_dict()["running_mean"].clone()
    update_average(average, model, decay=0.25, num_steps=1000)
    state = average.state_dict()
    expected = 0.25 * before + 0.75 * model.state_dict()["running_mean"]
    torch.testing.assert_close(state["running_mean"], expected)
    assert state["num_batches_tracked"] == 3


def test_the_average_of_a_run_is_that_of_its_weights_after_each_step() -> None:
    state = start()
    weight = next(state.model.parameters())
    expected, steps = weight.detach().clone(), 0

    def follow(*_: object) -> None:
        nonlocal steps
        steps += 1
        expected.lerp_(weight.detach(), 1 - min(0.8, (1 + steps) / (10 + steps)))

    state.optimizer.register_step_post_hook(follow)
    list(run(state, AVERAGED))
    assert state.average is not None
    torch.testing.assert_close(next(state.average.parameters()), expected)
    assert not torch.equal(expected, weight)


def test_the_average_is_judged_and_training_goes_on_from_the_weights() -> None:
    averaged, plain = start(), start(is_averaged=False)
    results = list(run(averaged, AVERAGED))
    others = list(run(plain))
    assert weights_sha256(averaged.model) == weights_sha256(plain.model)
    assert [each.train_loss for each in results] == [each.train_loss for each in others]
    losses = [each.validation_loss for each in results]
    assert losses != [each.validation_loss for each in others]
    assert averaged.average is not None
    assert losses[-1] == loss_of(averaged.average) != loss_of(averaged.model)


def loss_of(model: nn.Module) -> float:
    """Return the mean loss of a model over the validation images that `run` has."""
    loader = memory_loader(30)
    images = evaluation_batch(torch.from_numpy(loader.pixels["validation"]), image_size_px=8)
    labels = torch.from_numpy(loader.validation.labels)
    found = evaluate(model, [(images.__getitem__, labels)], device=torch.device("cpu"))
    return found.loss_sum / len(labels)


def test_what_is_handed_over_is_what_was_judged() -> None:
    averaged, plain = start(), start(is_averaged=False)
    for state in (averaged, plain):
        list(run(state, AVERAGED if state is averaged else RECIPE))
    assert averaged.average is not None
    weights = trained_weights(averaged.to_plain())
    expected = averaged.average.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    weights = trained_weights(plain.to_plain())
    assert all(torch.equal(weights[key], value) for key, value in plain.model.state_dict().items())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_run_with_an_average_resumes_to_the_same_bits(tmp_path: Path, precision: str) -> None:
    def go_on(state: TrainState, save: Callable[[TrainState], None]) -> object:
        results = list(run(state, AVERAGED, save=save, checkpoint_every_s=0.0))
        ends.append(weights_sha256(state.average or nn.Identity()))
        return iter(results)

    ends: list[str] = []
    assert_resumes_exactly(
        lambda: start(precision=precision),
        go_on,  # type: ignore[arg-type]
        CheckpointFolder(tmp_path, pytest.fail),
    )
    assert len(ends) > 1
    assert len(set(ends)) == 1


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_an_average_is_kept_in_full_precision(precision: str) -> None:
    state = start(precision=precision)
    list(run(state, AVERAGED))
    assert state.average is not None
    assert {each.dtype for each in state.average.parameters()} == {torch.float32}


def test_a_model_that_cannot_be_copied_is_told() -> None:
    def build() -> nn.Module:
        model = small_net(nn.BatchNorm2d(8))
        model.lock = threading.Lock()  # type: ignore[assignment]
        return model

    with pytest.raises(SettingsError) as caught:
        start(build)
    assert caught.value.problems == (
        "train.ema_decay: the model cannot be copied "
        "(TypeError: cannot pickle '_thread.lock' object); use train.ema_decay=null",
    )
    start(build, is_averaged=False)
