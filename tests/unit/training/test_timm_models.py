"""Models of timm, an extra: a small stand-in for it, and timm itself where it is installed."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tuner.errors import SettingsError
from tuner.training.ghost_norm import GhostBatchNormAct2d, ghost_size
from tuner.training.model_check import check_classifier
from tuner.training.models import build_model

STAND_IN = """
from types import SimpleNamespace
from torch import nn
from timm.layers import BatchNormAct2d

NAMES = ["resnet18", "vit_tiny"]
CREATED = []

def list_models():
    return NAMES

def is_model(name):
    return name.split(".")[0] in NAMES

def get_pretrained_cfg(name, allow_unregistered):
    return SimpleNamespace(fixed_input_size=name.startswith("vit"))

def create_model(name, pretrained, num_classes, **options):
    CREATED.append((name, pretrained, options))
    return nn.Sequential(nn.Conv2d(3, 8, 3), BatchNormAct2d(8), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, num_classes))
"""
LAYERS = """
from torch import nn

class BatchNormAct2d(nn.BatchNorm2d):
    def __init__(self, num_features):
        super().__init__(num_features)
        self.drop, self.act = nn.Identity(), nn.PReLU(8)

    def forward(self, images):
        return self.act(self.drop(super().forward(images)))
"""
HAS_TIMM = importlib.util.find_spec("timm") is not None


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a package in the place of timm; give its folder."""
    package = tmp_path / "timm"
    package.mkdir()
    (package / "__init__.py").write_text(STAND_IN)
    (package / "layers.py").write_text(LAYERS)
    for name in [each for each in sys.modules if each.partition(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [each for each in sys.modules if each.partition(".")[0] == "timm"]:
        del sys.modules[name]


def build(name: str) -> nn.Module:
    return build_model(name, 5, image_size_px=32, ghost_batch_size=4)


def refusal(name: str) -> str:
    with pytest.raises(SettingsError) as caught:
        build(name)
    (line,) = caught.value.problems
    return line


def test_a_model_is_made_for_the_classes_and_never_downloads(stand_in: Path) -> None:
    model = build("timm/resnet18.a1_in1k")
    assert model(torch.zeros(6, 3, 32, 32)).shape == (6, 5)
    assert sys.modules["timm"].CREATED == [("resnet18.a1_in1k", False, {})]


def test_a_model_of_a_fixed_size_is_made_for_the_size_of_the_images(stand_in: Path) -> None:
    build("timm/vit_tiny")
    assert sys.modules["timm"].CREATED == [("vit_tiny", False, {"img_size": 32})]


def test_a_norm_with_an_activation_keeps_it_on_ghost_groups(stand_in: Path) -> None:
    model = build("timm/resnet18")
    norm = model.get_submodule("1")
    assert isinstance(norm, GhostBatchNormAct2d)
    assert ghost_size(model) == 4
    assert list(norm.state_dict()) == [
        "weight", "bias", "running_mean", "running_var", "num_batches_tracked", "act.weight",
    ]  # fmt: skip
    images = torch.randn(9, 8, 4, 4)
    plain = nn.BatchNorm2d(8)
    expected = torch.cat([norm.get_submodule("act")(plain(part)) for part in images.split([4, 5])])
    torch.testing.assert_close(norm(images), expected)


def test_an_unknown_name_is_told_with_the_nearest(stand_in: Path) -> None:
    assert refusal("timm/resnet81") == (
        "model.name: no such model (timm/resnet81); did you mean timm/resnet18?; "
        "use a name of timm.list_models()"
    )


def test_a_timm_that_lacks_something_says_what(stand_in: Path) -> None:
    (stand_in / "__init__.py").write_text("import own_missing_part\n")
    assert refusal("timm/resnet18") == (
        "model.name: timm/resnet18: timm cannot be imported (No module named "
        "'own_missing_part'); install own_missing_part"
    )


@pytest.mark.skipif(HAS_TIMM, reason="timm is installed")
def test_without_timm_one_line_says_how_to_install_it() -> None:
    assert refusal("timm/resnet18") == (
        "model.name: timm/resnet18: timm is not installed; pip install -e '.[timm]'"
    )


@pytest.mark.skipif(not HAS_TIMM, reason="timm is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_050", "deit_tiny_patch16_224"])
def test_timms_own_models_are_sound_classifiers(name: str) -> None:
    model = build_model(f"timm/{name}", 5, image_size_px=64, ghost_batch_size=4)
    check_classifier(model, f"timm/{name}", 5, 64)
    assert not [each for each in model.modules() if type(each).__name__ == "BatchNormAct2d"]
