"""A retraining finds what its search has left, and repeats how its result was reached."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tuner.assemble import build_net
from tuner.errors import SettingsError
from tuner.retrain import (
    RetrainKeys,
    Task,
    claim_output,
    find_cache,
    open_model,
    open_training,
    read_task,
)
from tuner.settings.config import Config
from tuner.settings.text import yaml_text
from tuner.training.checkpoint import weights_sha256


def task(folder: Path, *overrides: str, settings: Config | None = None, **recorded: Any) -> Task:
    """Return the task of a `best.yaml` in `folder`, with these settings changed."""
    path = folder / "best.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    best = {
        "settings": json.loads((settings or Config()).to_json()),
        "result": {
            "samples_seen": 9000,
            "epoch": 9.0,
            "num_correct": 400,
            "num_evaluated": 500,
            "micro_batch_size": 32,
        },
        "data_fingerprint": "f00d",
        "environment": {"threads": 1, "device": "cuda", "processor": "one", "versions": {}},
        **recorded,
    }
    path.write_text(yaml_text(best))
    return read_task(RetrainKeys(config=str(path)), list(overrides))


@pytest.mark.parametrize("left", ["generated-1/train", "decoded/0a.pixels"])
def test_the_cache_of_the_search_is_used_again(tmp_path: Path, left: str) -> None:
    best = tmp_path / "results" / "mine" / "best.yaml"
    (tmp_path / ".cache" / "others").mkdir(parents=True)
    assert find_cache(best) is None
    (tmp_path / "results" / ".cache" / left).mkdir(parents=True)
    assert find_cache(best) == tmp_path / "results" / ".cache"


def test_the_cache_that_the_settings_name_goes_before_all_others(tmp_path: Path) -> None:
    (tmp_path / "results" / ".cache" / "generated-1").mkdir(parents=True)
    folder = tmp_path / "results" / "mine"
    assert task(folder).cache_root == tmp_path / "results" / ".cache"
    named = Config().with_overrides({"data.cache_root": str(tmp_path / "big")})
    assert task(folder, settings=named).cache_root == tmp_path / "big"
    assert task(folder, f"data.cache_root={tmp_path}/other").cache_root == tmp_path / "other"


@pytest.mark.parametrize(
    ("override", "size"),
    [
        ("train.epochs=20", 32),
        ("optim.lr=0.3", 32),
        ("train.batch_size=64", None),
        ("train.accumulate_steps=2", None),
        ("model.name=lenet", None),
        ("data.image_size=32", None),
    ],
)
def test_slices_are_those_of_the_result_while_the_steps_are(
    tmp_path: Path, override: str, size: int | None
) -> None:
    assert task(tmp_path).micro_batch_size == 32
    assert task(tmp_path, override).micro_batch_size == size


def test_a_retraining_begins_with_the_recorded_slice_and_goes_on_with_its_own(
    image_folder: Path, tmp_path: Path
) -> None:
    settings = Config().with_overrides(
        {
            "data.source": "folder",
            "data.root": str(image_folder),
            "data.image_size": 16,
            "data.cache": "none",
            "model.name": "lenet",
            "train.batch_size": 64,
        }
    )
    asked = task(tmp_path, settings=settings)
    asked.output.mkdir()
    run = open_training(asked)
    assert run.state.micro_batch_size == 32
    run.state.micro_batch_size = 16
    run.state.samples_seen = 24
    run.save(run.state)
    assert open_training(asked).state.micro_batch_size == 16
    fresh = replace(asked, micro_batch_size=None, output=tmp_path / "other")
    fresh.output.mkdir()
    assert open_training(fresh).state.micro_batch_size == 64


def test_a_retraining_with_a_checkpoint_goes_on_without_the_file_of_first_weights(
    image_folder: Path, tmp_path: Path
) -> None:
    settings = Config().with_overrides(
        {
            "data.source": "folder",
            "data.root": str(image_folder),
            "data.image_size": 16,
            "data.cache": "none",
            "model.name": "lenet",
            "model.weights": str(tmp_path / "w.pt"),
        }
    )
    torch.save(build_net(settings, 3).state_dict(), tmp_path / "w.pt")
    asked = task(tmp_path, settings=settings)
    asked.output.mkdir()
    run = open_training(asked)
    fitted = (asked.output / "weights.json").read_bytes()
    (tmp_path / "w.pt").rename(tmp_path / "moved.pt")
    refusal = (
        f"model.weights: {tmp_path}/w.pt: cannot be read (No such file or directory); "
        "give a safetensors file or a state dict, or null"
    )
    again = task(tmp_path, settings=settings)
    with pytest.raises(SettingsError) as caught:
        open_training(again)
    assert caught.value.problems == (refusal,)
    run.state.samples_seen = 24
    run.save(run.state)
    resumed = open_training(again)
    assert again == asked
    assert weights_sha256(resumed.state.model) == weights_sha256(run.state.model)
    assert (asked.output / "weights.json").read_bytes() == fitted
    with pytest.raises(SettingsError) as caught:
        read_task(RetrainKeys(config=f"{tmp_path}/best.yaml", output=f"{tmp_path}/other"), [])
    assert caught.value.problems == (refusal,)


def test_a_retraining_that_began_without_weights_does_not_go_on_with_a_file_that_is_gone(
    tmp_path: Path,
) -> None:
    output = task(tmp_path).output
    output.mkdir()
    claim_output(task(tmp_path), "f00d")
    with pytest.raises(SettingsError, match="gone.pt: cannot be read"):
        task(tmp_path, f"model.weights={tmp_path}/gone.pt")


def test_the_code_of_a_model_is_sought_where_it_was_when_it_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    settings = Config().with_overrides({"model.name": "net_for_retrain:build"})
    code = {"folder": str(tmp_path / "code"), "file": "net_for_retrain.py", "sha256": "f00d"}
    again = task(tmp_path / "run", settings=settings, model_code=code, classes=["a", "b", "c"])
    with pytest.raises(SettingsError) as caught:
        open_model(again)
    assert caught.value.problems == (
        f"model.name: net_for_retrain:build: its module is gone from {tmp_path}/code; "
        "put it back there, or start in the folder that holds it now",
    )
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "net_for_retrain.py").write_text(
        "from torch import nn\n"
        "def build(num_classes):\n"
        "    assert num_classes == 3\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, num_classes))\n"
    )
    open_model(again)


def test_a_result_of_other_weights_is_another_run(tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(b"1")
    settings = Config().with_overrides({"model.weights": str(tmp_path / "w.pt")})
    begun = task(tmp_path, settings=settings)
    before = begun.binding
    begun.output.mkdir()
    claim_output(begun, "f00d")
    assert task(tmp_path, settings=settings).binding == before
    (tmp_path / "w.pt").write_bytes(b"2")
    now = task(tmp_path, settings=settings).binding
    assert {key for key in now if now[key] != before[key]} == {"model.weights_sha256"}
    assert task(tmp_path, "model.weights=null", settings=settings).weights_sha256 is None
