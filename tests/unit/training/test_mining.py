"""A run that mines: which images it trains on, what it remembers, and that it resumes exactly."""

from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.laws import assert_resumes_exactly
from tests.unit.training.conftest import RECIPE, MemoryLoader, memory_loader
from tests.unit.training.test_loop import run, start
from tuner.data.mining import Mining, hard_positions, mining_order
from tuner.training.checkpoint import CheckpointFolder, weights_sha256
from tuner.training.mining import start_mining
from tuner.training.plan import Recipe, plan_steps
from tuner.training.result import EpochResult
from tuner.training.state import TrainState

NUM_TRAIN = 30
MINING = Mining(ratio=1.5, hard_fraction=0.2, start_fraction=0.25, end_fraction=0.8)
MINED = replace(RECIPE, epochs=4, mining=MINING)


class Recorder:
    """A loader that remembers which images it was asked for."""

    def __init__(self, loader: MemoryLoader) -> None:
        self.loader = loader
        self.read: list[list[int]] = []

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[Tensor, None, None]:
        def noted() -> Generator[NDArray[np.int64], None, None]:
            for chosen in positions:
                if split == "train":
                    self.read.append(chosen.tolist())
                yield chosen

        return self.loader.batches(split, noted())


def mining_state(first_hard: list[int] | None = None) -> TrainState:
    state = start()
    known = np.array(first_hard or (), np.int64)
    state.mining = start_mining(NUM_TRAIN, known, state.device)
    return state


def train(
    recipe: Recipe, first_hard: list[int] | None = None
) -> tuple[TrainState, list[EpochResult], list[list[int]]]:
    """Return the state at the end, the results and the images of each step."""
    state, loader = mining_state(first_hard), Recorder(memory_loader(NUM_TRAIN))
    return state, list(run(state, recipe, NUM_TRAIN, loader=loader)), loader.read


def test_a_run_is_whole_epochs_then_mining_epochs_then_whole_ones_of_its_budget() -> None:
    state, results, steps = train(MINED)
    assert state.samples_seen == results[-1].samples_seen == results[-1].nominal_samples == 120
    # 6 hard images of 30, 9 in all: from the first epoch's end to 0.8 of 120 images.
    mined = [8, 1] * 8
    assert [len(step) for step in steps] == [8, 8, 8, 6, *mined, 8, 8, 2]
    assert sum(map(len, steps)) == 120


def test_mining_epochs_take_the_images_of_highest_loss_so_far_and_some_others() -> None:
    losses: dict[int, NDArray[np.float32]] = {}
    state, loader = mining_state(), Recorder(memory_loader(NUM_TRAIN))
    assert state.mining is not None
    for result in run(state, replace(MINED, report_samples=1), NUM_TRAIN, loader=loader):
        losses[result.samples_seen] = state.mining.losses.numpy().copy()
    assert np.isnan(losses[24]).sum() == 6
    seen, first = 30, 4
    for epoch in range(1, 9):
        hard = hard_positions(losses[seen], loader.loader.train.labels, 0.2)
        order = mining_order(hard, loader.loader.train.keys, ratio=1.5, seed=0, epoch=epoch)
        read = loader.read[first] + loader.read[first + 1]
        assert read == order.tolist()
        assert set(hard.tolist()) <= set(read)
        seen, first = seen + 9, first + 2


def test_a_loss_is_remembered_as_it_was_in_the_training_pass_without_smoothing() -> None:
    state = mining_state()
    recipe = replace(MINED, epochs=1, report_samples=30, peak_lr=0.0, label_smoothing=0.5)
    other = mining_state()
    list(run(state, recipe, NUM_TRAIN))
    list(run(other, replace(recipe, label_smoothing=0.0), NUM_TRAIN))
    assert state.mining is not None
    assert other.mining is not None
    assert torch.equal(state.mining.losses, other.mining.losses)
    assert state.mining.losses.isfinite().all()
    assert len(state.mining.losses.unique()) == NUM_TRAIN
    smooth, plain = (each.history[0]["train_loss"] for each in (state, other))
    assert smooth != plain == pytest.approx(float(other.mining.losses.mean()), rel=1e-6)


def test_known_hard_images_are_those_of_the_first_mining_epoch_alone() -> None:
    first_hard = [3, 4, 5]
    _, _, steps = train(MINED, first_hard)
    epochs = [set(steps[4]), set(steps[5] + steps[6])]
    assert len(epochs[0]) == round(1.5 * 3)
    assert set(first_hard) <= epochs[0]
    assert len(epochs[1]) == 9


def test_with_known_hard_images_a_run_may_begin_on_them() -> None:
    at_once = replace(MINED, mining=replace(MINING, start_fraction=0.0))
    _, _, steps = train(at_once, [3, 4, 5])
    assert len(steps[0]) == 4
    assert {3, 4, 5} <= set(steps[0])
    _, _, steps = train(at_once)
    assert [len(step) for step in steps[:4]] == [8, 8, 8, 6]  # nothing is known before


def test_a_run_that_begins_on_a_few_hard_images_goes_on_with_all() -> None:
    """Or it would never learn that others are hard."""
    alone = Mining(ratio=1.0, hard_fraction=0.2, start_fraction=0.0, end_fraction=1.0)
    _, _, steps = train(replace(MINED, mining=alone), [3, 4])
    assert [len(step) for step in steps[:6]] == [2, 8, 8, 8, 6, 6]
    assert len(set(sum(steps, []))) == NUM_TRAIN


@pytest.mark.parametrize("first_hard", [None, [3, 4, 5]])
def test_a_ratio_that_takes_all_images_is_training_without_mining(
    first_hard: list[int] | None,
) -> None:
    """And so the epochs, their order and every random number are those of a run without."""
    whole = replace(MINED, mining=replace(MINING, ratio=30.0))
    state, _, steps = train(whole, first_hard)
    plain, loader = start(), Recorder(memory_loader(NUM_TRAIN))
    list(run(plain, replace(MINED, mining=None), NUM_TRAIN, loader=loader))
    assert steps == loader.read
    assert weights_sha256(state.model) == weights_sha256(plain.model)


def test_hard_images_alone_are_trained_on_where_the_ratio_is_one() -> None:
    state, _, steps = train(replace(MINED, mining=replace(MINING, ratio=1.0)))
    labels = memory_loader(NUM_TRAIN).train.labels
    assert [len(step) for step in steps[4:15]] == [6] * 11
    assert all(len(set(labels[step].tolist())) == 3 for step in steps[4:15])
    assert state.samples_seen == 120


@pytest.mark.parametrize("first_hard", [None, [3, 4, 5]])
def test_a_mining_run_that_is_killed_and_resumed_ends_with_the_same_bits(
    tmp_path: Path, first_hard: list[int] | None
) -> None:
    assert_resumes_exactly(
        lambda: mining_state(first_hard),
        lambda state, save: run(state, MINED, NUM_TRAIN, save=save, checkpoint_every_s=0),
        CheckpointFolder(tmp_path, pytest.fail),
    )


def test_a_run_in_stints_is_one_run() -> None:
    whole, _, _ = train(MINED)
    state = mining_state()
    for until in (20, 45, 70, 120):
        list(run(state, MINED, NUM_TRAIN, until_samples=until))
    assert weights_sha256(state.model) == weights_sha256(whole.model)
    assert state.mining is not None
    assert whole.mining is not None
    assert torch.equal(state.mining.losses, whole.mining.losses)


def test_a_plan_without_mining_does_not_look_at_it() -> None:
    keys = memory_loader(NUM_TRAIN).train.keys
    steps = [step.positions.tolist() for step in plan_steps(0, 120, keys, MINED)]
    loader = Recorder(memory_loader(NUM_TRAIN))
    list(run(start(), replace(MINED, mining=None), NUM_TRAIN, loader=loader))
    assert steps == loader.read
