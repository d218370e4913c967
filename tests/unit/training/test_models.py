import pytest
import torch
from torch import nn

from tuner.errors import SettingsError
from tuner.training.ghost_norm import GhostBatchNorm2d, ghost_size
from tuner.training.models import BUILT_IN, build_model


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("image_size_px", [32, 64])
def test_a_built_in_model_maps_images_to_logits(name: str, image_size_px: int) -> None:
    model = build_model(name, 7, image_size_px=image_size_px, ghost_batch_size=4)
    assert model.training
    assert model(torch.randn(6, 3, image_size_px, image_size_px)).shape == (6, 7)


@pytest.mark.parametrize(("name", "size"), [("resnet18", 64), ("vit_b_32", 64), ("googlenet", 32)])
def test_a_torchvision_model_gives_one_tensor_and_has_ghost_batch_norm(
    name: str, size: int
) -> None:
    model = build_model(name, 3, image_size_px=size, ghost_batch_size=4)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert all(isinstance(norm, GhostBatchNorm2d) for norm in norms)
    assert ghost_size(model) == (4 if norms else 1)
    assert model(torch.randn(5, 3, size, size)).shape == (5, 3)


def test_the_depth_is_that_of_the_paper() -> None:
    for name, depth in (("resnet8", 8), ("resnet20_s2", 20)):
        model = build_model(name, 10, image_size_px=32, ghost_batch_size=32)
        layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        projections = [m for m in layers if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1)]
        assert len(layers) - len(projections) == depth


def test_the_same_seed_draws_the_same_weights() -> None:
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        model = build_model("resnet8", 10, image_size_px=32, ghost_batch_size=32)
        weights.append(torch.cat([p.flatten() for p in model.parameters()]))
    assert torch.equal(*weights)


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(SettingsError) as caught:
        build_model("resnet8_s3", 10, image_size_px=32, ghost_batch_size=32)
    assert str(caught.value) == (
        "model.name: no such model (resnet8_s3); did you mean resnet8_s2?; use lenet, resnet8, "
        "resnet8_s2, resnet20, resnet20_s2, a torchvision classifier, timm/… or "
        "package.module:function"
    )


def test_a_size_that_the_model_cannot_take_is_told() -> None:
    with pytest.raises(SettingsError) as caught:
        build_model("vit_b_16", 10, image_size_px=40, ghost_batch_size=32)
    assert str(caught.value) == (
        "model.name: vit_b_16 cannot take images of 40 px (Input shape indivisible by patch "
        "size!); choose another data.image_size or model"
    )
    with pytest.raises(SettingsError, match=r"^model\.name: alexnet cannot take images of 16 px"):
        build_model("alexnet", 10, image_size_px=16, ghost_batch_size=32)
