"""A model of the user's own, from a file in the working directory, with weights of the user's."""

import hashlib
import json
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch

from tests.integration.conftest import Command
from tuner.settings.text import read_yaml

LAYERS = """
from torch import nn

def block(channels_in, channels):
    norm = nn.BatchNorm2d(channels)
    return nn.Conv2d(channels_in, channels, 3, stride=2, padding=1), norm, nn.ReLU()
"""
NETS = """
from torch import nn
from own_layers_here import block

def build(num_classes, width=8):
    body = (*block(3, width), nn.Dropout2d(0.1), *block(width, width), nn.AdaptiveAvgPool2d(2))
    return nn.Sequential(*body, nn.Flatten(), nn.BatchNorm1d(4 * width),
        nn.Linear(4 * width, num_classes))
"""
SEARCH = (
    *("space=tiny.yaml", "data.root=images", "model.name=own_nets_here:build"),
    *("model.weights=first.pt", "train.epochs=1", "search.trials=2", "search.confirm_top=0"),
    *("search.max_concurrent=1", "throughput.train.accumulate_steps=[1, 2]"),
)


@pytest.fixture
def project(command: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with the user's modules, and weights for 5 other classes."""
    folder = command.folder
    (folder / "own_layers_here.py").write_text(LAYERS)
    (folder / "own_nets_here.py").write_text(NETS)
    monkeypatch.syspath_prepend(folder)
    from own_nets_here import build  # type: ignore[import-not-found]

    torch.manual_seed(9)
    torch.save({"state_dict": build(5).state_dict()}, folder / "first.pt")
    for name in ("own_nets_here", "own_layers_here"):
        del sys.modules[name]
    return folder


def last_line(done: CompletedProcess[str]) -> str:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()[-1]


def test_a_users_model_is_searched_and_retrained_from_anywhere(
    command: Command, project: Path, tmp_path: Path
) -> None:
    searched = command.run("search", *SEARCH)
    assert (searched.returncode, searched.stderr) == (0, "")
    assert (
        "weights   first.pt: 90.1% of own_nets_here:build's parameters, 19 tensors loaded, "
        "0 missing, 0 unexpected, 2 of another shape (10.weight, 10.bias)\n"
    ) in searched.stdout
    folder = project / "results" / "tiny-images"
    (row,) = json.loads((folder / "weights.json").read_text())
    assert row["mismatched"] == [["10.weight", [5, 32], [3, 32]], ["10.bias", [5], [3]]]
    best = read_yaml(folder / "best.yaml")
    assert best["model_code"] == {
        "folder": str(project),
        "file": "own_nets_here.py",
        "sha256": hashlib.sha256(NETS.encode()).hexdigest(),
    }
    first = (project / "first.pt").read_bytes()
    assert best["weights_sha256"] == hashlib.sha256(first).hexdigest()

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    away, config = Command(elsewhere), f"config={folder / 'best.yaml'}"
    assert last_line(away.run("retrain", config, "output=again")).startswith("repeated: ")
    assert (elsewhere / "again" / "model.safetensors").read_bytes() == (
        folder / "best" / "model.safetensors"
    ).read_bytes()

    (project / "first.pt").unlink()
    refused = away.run("retrain", config, "output=gone")
    assert (refused.returncode, refused.stderr) == (
        2,
        f"error: model.weights: {project}/first.pt: cannot be read (No such file or directory); "
        "give a safetensors file or a state dict, or null\n",
    )
    assert not (elsewhere / "gone").exists()
