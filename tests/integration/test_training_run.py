"""Nothing about speed changes a weight, and no report of a killed process is lost."""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.prepared import prepare_quietly
from tuner import trial
from tuner.assemble import TrainingRun, open_run
from tuner.errors import CheckpointError
from tuner.reading import build_loader, decode_images
from tuner.settings.config import Config
from tuner.settings.load import load_space
from tuner.training.checkpoint import weights_sha256
from tuner.trial import TrialContext, run_job


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def config(space_file: Path, image_folder: Path) -> Config:
    overrides = [f"data.root={image_folder}", "train.epochs=3"]
    return load_space(str(space_file), overrides).config


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    trial.KEPT.close()


@pytest.fixture
def context(config: Config, tmp_path: Path) -> dict[str, Any]:
    """Return the context of a search in `tmp_path`, its images prepared."""
    prepare_quietly(config, tmp_path)
    return asdict(
        TrialContext(
            run_folder=str(tmp_path),
            images_root=str(config.data.root),
            config_json=config.to_json(),
            threads=1,
            decoded_root=str(tmp_path),
        )
    )


def trained(config: Config, folder: Path) -> TrainingRun:
    """Train in full and return the run as it stands then."""
    folder.mkdir()
    data = prepare_quietly(config, folder)
    decoding = decode_images(
        config,
        data,
        folder,
        memory_bytes=2**40,
        num_processes=1,
        progress=lambda done, total: None,
    )
    decoded_root = None if decoding.refusal else folder
    with closing(build_loader(config, data, decoded_root)) as loader:
        run = open_run(config, data, loader, folder / "checkpoints", on_damaged=pytest.fail)
        with closing(run.results(run.total_samples)) as results:
            assert [result.reason for result in results] == [None] * 3
    return run


READINGS: list[dict[str, Any]] = [
    *({"loader.num_workers": num_workers} for num_workers in range(5)),
    {"data.decoder": "pil"},
    {"data.decoder": "cv2"},
    {"data.cache": "decoded"},
    {"data.cache": "decoded", "data.decoder": "pil", "loader.num_workers": 2},
    *(
        {"loader.num_workers": 2, "loader.prefetch_factor": prefetch_factor}
        for prefetch_factor in (1, 3, 4)
    ),
]


def test_however_images_are_read_the_weights_are_the_same(config: Config, tmp_path: Path) -> None:
    runs = [
        trained(config.with_overrides({"data.cache": "none"} | reading), tmp_path / str(number))
        for number, reading in enumerate(READINGS)
    ]
    assert len({weights_sha256(run.state.model) for run in runs}) == 1


@pytest.mark.parametrize("batch_size", [8, 16, 24])
def test_the_batch_is_that_of_the_optimizer_whatever_it_is_cut_into(
    config: Config, tmp_path: Path, batch_size: int
) -> None:
    cuts = {1: batch_size, 2: batch_size // 2, batch_size // 4: 4}
    runs = []
    for accumulate_steps, micro_batch_size in cuts.items():
        asked = {"train.batch_size": batch_size, "train.accumulate_steps": accumulate_steps}
        run = trained(config.with_overrides(asked), tmp_path / str(accumulate_steps))
        assert run.state.micro_batch_size == micro_batch_size
        assert run.state.optimizer_steps == 3 * math.ceil(24 / batch_size)
        runs.append(run)
    rates = [[report["learning_rate"] for report in run.state.history] for run in runs]
    assert all(each == rates[0] for each in rates)
    weights, *others = (
        torch.cat([p.flatten() for p in run.state.model.parameters()]) for run in runs
    )
    for other in others:
        assert (other - weights).norm() <= 1e-4 * weights.norm()


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """Return a job on the whole of trial 5."""
    return {
        "trial_number": 5,
        "settings": {},
        "start_samples": 0,
        "until_samples": 72,
        "beat_path": str(tmp_path / "beat"),
    }


def test_reports_that_were_saved_but_not_heard_are_told_first(
    job: dict[str, Any], context: dict[str, Any]
) -> None:
    with closing(run_job(job, context)) as results:
        heard = [*islice(results, 2)]
    with closing(run_job(job | {"start_samples": 24}, context)) as results:
        told = list(results)
    assert [each["samples_seen"] for each in heard] == [24, 48]
    assert [each["samples_seen"] for each in told] == [48, 72]
    assert {told[0][key] == heard[1][key] for key in ("top1", "train_loss", "train_s")} == {True}


def test_a_damaged_checkpoint_is_said_and_the_one_before_it_used(
    job: dict[str, Any], context: dict[str, Any], tmp_path: Path
) -> None:
    with closing(run_job(job, context)) as results:
        heard = [*islice(results, 2)]
    newest = tmp_path / "trials" / "0005" / "000000048.pt"
    newest.write_bytes(newest.read_bytes()[:-1])
    with closing(run_job(job | {"start_samples": 48}, context)) as results:
        told = list(results)
    assert [(each["samples_seen"], each["message"]) for each in told] == [
        (48, f"{newest}: is damaged (its SHA-256 does not fit); 000000024.pt is used instead"),
        (72, ""),
    ]
    assert told[0]["train_loss"] == heard[1]["train_loss"]


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (24, "the newest checkpoint is of 24 images and not of 48; training goes on from there"),
        (0, "no checkpoint is left; training begins anew"),
    ],
)
def test_a_trial_whose_checkpoints_are_gone_says_where_it_goes_on_and_ends_alike(
    job: dict[str, Any], context: dict[str, Any], tmp_path: Path, kept: int, told: str
) -> None:
    with closing(run_job(job, context)) as results:
        heard = [*islice(results, 2)]
    folder = tmp_path / "trials" / "0005"
    for path in folder.iterdir():
        if int(path.stem) > kept:
            path.unlink()
    with closing(run_job(job | {"start_samples": 48}, context)) as results:
        again = list(results)
    assert [each["message"] for each in again] == [f"{folder}: {told}"] + [""] * (len(again) - 1)
    assert [each["samples_seen"] for each in again] == [24, 48, 72][kept // 24 :]
    assert again[-2]["train_loss"] == heard[1]["train_loss"]


def test_a_checkpoint_that_cannot_be_written_is_raised(
    job: dict[str, Any], context: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "trials").touch()
    with pytest.raises(CheckpointError), closing(run_job(job, context)) as results:
        list(results)
