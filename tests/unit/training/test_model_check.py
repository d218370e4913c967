"""What a model from outside gives is looked at once, before anything is trained with it."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuner.errors import SettingsError
from tuner.training.model_check import check_classifier
from tuner.training.models import BUILT_IN, build_model


class Net(nn.Module):
    """A linear classifier of images of 8 px whose output is changed."""

    def __init__(self, num_classes: int = 5) -> None:
        super().__init__()
        self.head = nn.Linear(192, num_classes)

    def forward(self, images: Tensor) -> object:
        return self.changed(self.head(images.flatten(1)))

    def changed(self, logits: Tensor) -> object:
        return logits


class Tuple(Net):
    def changed(self, logits: Tensor) -> object:
        return (logits, logits) if self.training else logits


class Joined(Net):
    def changed(self, logits: Tensor) -> object:
        return logits.flatten()


class Whole(Net):
    def changed(self, logits: Tensor) -> object:
        return logits.argmax(1, keepdim=True).expand(-1, 5)


class Divided(Net):
    def changed(self, logits: Tensor) -> object:
        return logits / (logits - self.head.bias).abs()


class Beside(Net):
    def changed(self, logits: Tensor) -> object:
        return logits - logits.mean(0)


class AlwaysDropping(Net):
    def changed(self, logits: Tensor) -> object:
        return F.dropout(logits, 0.5)


class Detached(Net):
    def changed(self, logits: Tensor) -> object:
        return logits.detach()


class Raising(Net):
    def changed(self, logits: Tensor) -> object:
        if self.training:
            raise ValueError("no\nway")
        return logits


def check(model: nn.Module) -> None:
    check_classifier(model, "own:net", 5, 8)


def test_a_sound_classifier_passes() -> None:
    check(Net())
    for name in BUILT_IN:
        model = build_model(name, 5, image_size_px=32, ghost_batch_size=4)
        check_classifier(model, name, 5, 32)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (
            Tuple(),
            "returned no tensor (tuple) for random images in training; "
            "return one of shape (3, 5): a number for each image and class",
        ),
        (
            Net(7),
            "gave outputs of shape (3, 7) for black images at evaluation; "
            "give (3, 5): a number for each image and class",
        ),
        (
            Joined(),
            "gave outputs of shape (15,) for black images at evaluation; "
            "give (3, 5): a number for each image and class",
        ),
        (
            Whole(),
            "gave int64 outputs for black images at evaluation; give floating-point logits",
        ),
        (
            Divided(),
            "gave NaN or infinite outputs for black images at evaluation; mend that",
        ),
        (
            Beside(),
            "gives one image other outputs beside other images at evaluation, or each time; "
            "let model.eval() end that",
        ),
        (
            AlwaysDropping(),
            "gives one image other outputs beside other images at evaluation, or each time; "
            "let model.eval() end that",
        ),
        (
            Detached(),
            "no gradient reaches its parameters; "
            "compute its output without torch.no_grad and detach",
        ),
        (nn.Flatten(), "has no parameters to train; give it some"),
        (Net().requires_grad_(False), "has no parameters to train; give it some"),
    ],
)
def test_what_cannot_be_trained_or_scored_is_refused_in_one_line(
    model: nn.Module, line: str
) -> None:
    torch.manual_seed(0)
    with pytest.raises(SettingsError) as caught:
        check(model)
    assert caught.value.problems == (f"model.name: own:net: {line}",)


def test_what_raises_in_training_alone_is_told_with_its_line() -> None:
    with pytest.raises(SettingsError) as caught:
        check(Raising())
    (line,) = caught.value.problems
    number = Raising.changed.__code__.co_firstlineno + 2
    assert line.startswith("model.name: own:net: raised ValueError: no (")
    assert line.endswith(
        f"test_model_check.py line {number}) for random images in training of 8 px; "
        "mend that, or choose another data.image_size"
    )
