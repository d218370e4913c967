"""Classifiers by name: small ones, every one of torchvision's and of timm's, and one's own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuner.errors import SettingsError, did_you_mean
from tuner.training.ghost_norm import use_ghost_batch_norm
from tuner.training.keyed_dropout import use_keyed_dropout
from tuner.training.model_check import try_out
from tuner.training.own_model import build_own, is_own

TIMM = "timm/"


def build_model(
    name: str, num_classes: int, *, image_size_px: int, ghost_batch_size: int
) -> nn.Module:
    """Return a new classifier of square RGB images in training mode, drawn from torch's RNG.

    It maps (n, 3, image_size_px, image_size_px) to (n, num_classes) logits; of a user's own model
    that is for `check_classifier` to see.

    Raises:
        SettingsError: No such model, or it cannot take images of this size, or work on ghost
            groups; or a user's own raises.
    """
    if is_own(name):
        model = build_own(name, num_classes)
        try_out(model, name, image_size_px)
    else:
        model = _build_known(name, num_classes, image_size_px)
    try:
        use_ghost_batch_norm(model, ghost_batch_size)
    except ValueError as error:
        raise SettingsError(
            f"model.name: {name}: its statistics cannot be taken over ghost groups ({error}); "
            "use nn.BatchNorm2d with weights, running statistics and a momentum, or GroupNorm"
        ) from error
    use_keyed_dropout(model)
    return model.train()


def is_from_outside(name: str) -> bool:
    """Say whether a model is a user's own, or timm's: nobody here has seen what it gives."""
    return is_own(name) or name.startswith(TIMM)


def _build_known(name: str, num_classes: int, image_size_px: int) -> nn.Module:
    if name in BUILT_IN:
        build = BUILT_IN[name]
    elif name.startswith(TIMM):
        build = _timm_builder(name, image_size_px)
    else:
        build = _torchvision_builder(name, image_size_px)
    try:
        model = build(num_classes=num_classes)
        with torch.no_grad():
            model.eval()(torch.zeros(1, 3, image_size_px, image_size_px))
    except (RuntimeError, ValueError, AssertionError) as error:
        cause = str(error).splitlines()[0]
        raise SettingsError(
            f"model.name: {name} cannot take images of {image_size_px} px ({cause}); "
            "choose another data.image_size or model"
        ) from error
    return model


class LeNet(nn.Sequential):
    """LeNet-5 with ReLU and max pooling (LeCun et al. 1998); other sizes than 32 px are pooled."""

    def __init__(self, *, num_classes: int) -> None:
        super().__init__(
            nn.Conv2d(3, 6, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d(5),
            nn.Flatten(),
            nn.Linear(16 * 5 * 5, 120),
            nn.ReLU(inplace=True),
            nn.Linear(120, 84),
            nn.ReLU(inplace=True),
            nn.Linear(84, num_classes),
        )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, projected where the shape changes."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's features."""
        return torch.relu_(self.body(images) + self.shortcut(images))


class SmallResNet(nn.Sequential):
    """The residual network of 6n + 2 layers for small images (He et al. 2015, section 4.2).

    A stem of stride 2 costs a quarter and suits images of 64 px.
    """

    def __init__(self, *, blocks_per_stage: int, stem_stride: int, num_classes: int) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, stem_stride, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            *(
                ResidualBlock(
                    channels_in=channels if block or channels == 16 else channels // 2,
                    channels=channels,
                    stride=1 if block or channels == 16 else 2,
                )
                for channels in (16, 32, 64)
                for block in range(blocks_per_stage)
            ),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, num_classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _torchvision_builder(name: str, image_size_px: int) -> Callable[..., nn.Module]:
    from torchvision import models  # a second of import that the built-in models do not need

    known = models.list_models(module=models)
    if name not in known:
        raise SettingsError(
            f"model.name: no such model ({name}){did_you_mean(name, [*BUILT_IN, *known])}; "
            f"use {', '.join(BUILT_IN)}, a torchvision classifier, timm/… or "
            "package.module:function"
        )
    options: dict[str, Any] = {}
    if name.startswith("vit_"):
        options = {"image_size": image_size_px}
    elif name in ("googlenet", "inception_v3"):
        options = {"aux_logits": False, "init_weights": True}
    return partial(models.get_model, name, weights=None, **options)


def _timm_builder(name: str, image_size_px: int) -> Callable[..., nn.Module]:
    try:
        import timm
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise SettingsError(
                f"model.name: {name}: timm cannot be imported ({error}); install {error.name}"
            ) from error
        raise SettingsError(
            f"model.name: {name}: timm is not installed; pip install -e '.[timm]'"
        ) from error

    of_timm = name.removeprefix(TIMM)
    if not timm.is_model(of_timm):
        near = did_you_mean(name, [f"{TIMM}{each}" for each in timm.list_models()])
        raise SettingsError(
            f"model.name: no such model ({name}){near}; use a name of timm.list_models()"
        )
    configured = timm.get_pretrained_cfg(of_timm, allow_unregistered=True)
    options: dict[str, Any] = {"pretrained": False}
    if configured is not None and configured.fixed_input_size:
        options["img_size"] = image_size_px
    return partial(timm.create_model, of_timm, **options)


BUILT_IN: dict[str, Callable[..., nn.Module]] = {
    "lenet": LeNet,
    "resnet8": partial(SmallResNet, blocks_per_stage=1, stem_stride=1),
    "resnet8_s2": partial(SmallResNet, blocks_per_stage=1, stem_stride=2),
    "resnet20": partial(SmallResNet, blocks_per_stage=3, stem_stride=1),
    "resnet20_s2": partial(SmallResNet, blocks_per_stage=3, stem_stride=2),
}
