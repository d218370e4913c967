"""A run keeps the checkpoint of its best report, and says so where checkpoints are gone."""

import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from tests.unit.training.conftest import RECIPE, memory_loader, small_net
from tuner.assemble import TrainingRun, build_net, build_state, check_model, mining_notes, open_run
from tuner.data.loader import Loader
from tuner.data.prepare import PreparedData
from tuner.errors import SettingsError
from tuner.settings.config import Config
from tuner.training.checkpoint import CheckpointFolder, weights_sha256
from tuner.training.optim import build_optimizer
from tuner.training.result import build_result
from tuner.training.state import start_state

NUM_IMAGES = 30


def run_in(folder: Path, direction: str = "maximize") -> TrainingRun:
    """Return a run at its start."""
    images = memory_loader(NUM_IMAGES)
    splits = {"train": images.train, "validation": images.validation}
    return TrainingRun(
        state=start_state(
            lambda: small_net(nn.BatchNorm2d(8)),
            lambda model: build_optimizer(model, name="sgd", lr=1, momentum=0.9, weight_decay=0),
            device=torch.device("cpu"),
            precision="fp32",
            batch_size=8,
            accumulate_steps=1,
            seed=0,
        ),
        recipe=RECIPE,
        data=PreparedData(
            images.train, images.validation, fingerprint="", images_fingerprint="", notes=()
        ),
        loader=Loader(splits, stored_px=8, decoder="pil", num_workers=0, prefetch_factor=1),
        checkpoints=CheckpointFolder(folder, pytest.fail),
        metric="top1",
        direction=direction,
    )


def report(run: TrainingRun, score: float) -> None:
    """Let the run come to a report with that score, and save it."""
    run.state.samples_seen += 15
    result = build_result(run.state, run.recipe, NUM_IMAGES, top1=score)
    run.state.history.append(result.to_plain())
    run.save(run.state)


def assert_best_is(run: TrainingRun, samples_seen: int | None) -> None:
    """Check that score, epoch and file of the best report are those of that place."""
    if samples_seen is None:
        assert run.best is None
        return
    saved = torch.load(run.checkpoints.path(samples_seen))
    assert saved["samples_seen"] == samples_seen
    assert saved["history"][-1] == run.best
    assert run.best is not None
    assert run.best["samples_seen"] == samples_seen
    assert run.best["epoch"] == samples_seen / NUM_IMAGES


def test_a_score_that_is_no_number_never_pushes_out_the_best(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    for score, best in ((0.1, 15), (math.nan, 15), (0.9, 45), (0.2, 45), (math.inf, 45), (0.3, 45)):
        report(run, score)
        assert_best_is(run, best)
    assert run.checkpoints.saved() == [45, 75, 90]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(
    scores=st.lists(st.sampled_from([0.0, 0.25, 0.5, math.nan, -math.inf]), max_size=7),
    direction=st.sampled_from(["maximize", "minimize"]),
)
def test_the_best_report_s_checkpoint_is_kept_beside_the_newest_two(
    quick_path: Path, scores: list[float], direction: str
) -> None:
    with tempfile.TemporaryDirectory(dir=quick_path) as folder:
        run = run_in(Path(folder), direction)
        finite: list[tuple[float, int]] = []
        for place, score in enumerate(scores, start=1):
            report(run, score)
            if math.isfinite(score):
                finite.append((-score if direction == "maximize" else score, 15 * place))
            best = min(finite)[1] if finite else None
            assert_best_is(run, best)
            newest = [15 * each for each in range(1, place + 1)][-2:]
            assert run.checkpoints.saved() == sorted({*newest, *([best] if best else [])})


def test_a_run_whose_checkpoints_are_gone_says_so(tmp_path: Path) -> None:
    run = run_in(tmp_path / "0007")
    assert run.what_is_lost(0) == ""
    assert run.what_is_lost(15) == f"{tmp_path}/0007: no checkpoint is left; training begins anew"
    report(run, 0.5)
    assert run.what_is_lost(15) == ""
    assert run.what_is_lost(30) == (
        f"{tmp_path}/0007: the newest checkpoint is of 15 images and not of 30; "
        "training goes on from there"
    )


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Return a file of weights of a lenet with 7 classes."""
    path = tmp_path / "w.pt"
    torch.manual_seed(5)
    torch.save(build_net(LENET, 7).state_dict(), path)
    return path


LENET = Config().with_overrides({"model.name": "lenet"})


def test_training_begins_with_the_weights_of_a_file_and_a_head_drawn_from_the_seed(
    weights: Path,
) -> None:
    config = LENET.with_overrides({"model.weights": str(weights)})
    given = torch.load(weights)
    for num_classes, is_fresh in ((7, False), (4, True)):
        state = build_state(config, num_classes, torch.device("cpu")).model.state_dict()
        drawn = build_state(LENET, num_classes, torch.device("cpu")).model.state_dict()
        for name, tensor in state.items():
            is_head = name.startswith("12.")
            expected = drawn if is_head and is_fresh else given
            assert torch.equal(tensor, expected[name])
    others = config.with_overrides({"train.seed": 1})
    heads = [
        build_state(each, 4, torch.device("cpu")).model.get_parameter("12.weight")
        for each in (config, config, others)
    ]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_a_model_alone_reads_no_file_of_weights(weights: Path) -> None:
    config = LENET.with_overrides({"model.weights": str(weights)})
    weights.unlink()
    build_net(config, 4)
    with pytest.raises(SettingsError) as caught:
        build_state(config, 4)
    assert caught.value.problems == (
        f"model.weights: {weights}: cannot be read (No such file or directory); "
        "give a safetensors file or a state dict, or null",
    )


def test_a_run_with_a_checkpoint_does_not_need_the_file_of_first_weights(
    weights: Path, tmp_path: Path
) -> None:
    given = run_in(tmp_path / "given")
    config = LENET.with_overrides({"model.weights": str(weights)})
    open_again = partial(
        open_run, config, given.data, given.loader, tmp_path / "0007", on_damaged=pytest.fail
    )
    run = open_again()
    report(run, 0.5)
    weights.unlink()
    assert weights_sha256(open_again().state.model) == weights_sha256(run.state.model)
    run.checkpoints.remove(15)
    with pytest.raises(SettingsError, match="w.pt: cannot be read"):
        open_again()


def test_weights_that_make_a_model_overflow_are_refused(weights: Path) -> None:
    state = torch.load(weights)
    torch.save({name: 1e30 * value for name, value in state.items()}, weights)
    with pytest.raises(SettingsError) as caught:
        check_model(LENET.with_overrides({"model.weights": str(weights)}), 7)
    assert caught.value.problems == (
        "model.name: lenet: gave NaN or infinite outputs for black images at evaluation; mend that",
    )


@pytest.mark.parametrize(
    ("settings", "is_told", "is_said"),
    [
        ({"mining.ratio": 2}, False, False),
        ({"mining.ratio": 0}, False, False),
        ({"mining.ratio": 2, "train.epochs": 1}, False, True),
        ({"mining.ratio": 2, "train.epochs": 1}, True, True),
        ({"mining.ratio": 2, "train.epochs": 1, "mining.start_fraction": 0.0}, True, False),
        ({"mining.ratio": 2, "train.epochs": 1, "mining.start_fraction": 0.0}, False, True),
        (
            {
                "mining.ratio": 2,
                "train.epochs": 20,
                "mining.start_fraction": 0.55,
                "mining.end_fraction": 0.6,
            },
            False,
            False,
        ),
    ],
)
def test_mining_that_never_begins_is_said(
    settings: dict[str, Any], is_told: bool, is_said: bool
) -> None:
    config = Config().with_overrides(settings)
    notes = mining_notes(config, config.mining.ratio, is_told=is_told)
    assert len(notes) == is_said
