"""Nothing about speed changes a weight, and no report of a killed process is lost."""

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import pytest
import torch

from tuner import trial
from tuner.assemble import build_loader, open_run, prepare_images
from tuner.data.prepare import PreparedData
from tuner.settings.config import Config
from tuner.settings.load import load_space
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


def prepare(config: Config, folder: Path) -> PreparedData:
    return prepare_images(
        config,
        folder,
        report_path=folder / "dataset.json",
        num_processes=1,
        progress=lambda done, total: None,
    )


def weights_of(config: Config, folder: Path) -> str:
    """Train in full and return the SHA-256 of the last checkpoint's weights."""
    folder.mkdir()
    data = prepare(config, folder)
    with build_loader(config, data) as loader:
        run = open_run(config, data, loader, folder / "checkpoints", on_damaged=pytest.fail)
        with closing(run.results(run.total_samples)) as results:
            assert [result.reason for result in results] == [None] * 3
    digest = hashlib.sha256()
    for tensor in run.state.model.state_dict().values():
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def test_neither_workers_nor_the_decoder_change_a_weight(config: Config, tmp_path: Path) -> None:
    digests = {
        weights_of(
            config.with_overrides({"loader.num_workers": workers, "data.decoder": decoder}),
            tmp_path / f"{workers}-{decoder}",
        )
        for workers, decoder in [(0, "cv2"), (1, "cv2"), (2, "cv2"), (3, "cv2"), (0, "pil")]
    }
    assert len(digests) == 1


def test_reports_that_were_saved_but_not_heard_are_told_first(
    config: Config, tmp_path: Path
) -> None:
    prepare(config, tmp_path)
    context = asdict(
        TrialContext(
            run_folder=str(tmp_path),
            images_root=str(config.data.root),
            config_json=config.to_json(),
            threads=1,
        )
    )
    job = {"trial_number": 5, "settings": {}, "start_samples": 0, "until_samples": 72}
    with closing(run_job(job, context)) as results:
        heard = [*islice(results, 2)]
    with closing(run_job(job | {"start_samples": 24}, context)) as results:
        told = list(results)
    assert [each["samples_seen"] for each in heard] == [24, 48]
    assert [each["samples_seen"] for each in told] == [48, 72]
    assert {told[0][key] == heard[1][key] for key in ("top1", "train_loss", "train_s")} == {True}
    trial.KEPT.close()
