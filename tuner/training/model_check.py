"""A look at what a model from outside gives on one batch, before anything is trained with it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tuner.errors import SettingsError
from tuner.training.own_model import told

NUM_IMAGES = 3
SAME = 1e-3  # of the largest output: rounding in fp32 stays far below


def check_classifier(model: nn.Module, name: str, num_classes: int, image_size_px: int) -> None:
    """Check that a model maps images to one finite number per class, and can be trained.

    It is asked for a black and for a random batch at evaluation, and for the random one in
    training, after which its running statistics are others: the model is not to be used further.

    Raises:
        SettingsError: One line that names the model and what is wrong.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise SettingsError(f"model.name: {name}: has no parameters to train; give it some")
    shape = (NUM_IMAGES, 3, image_size_px, image_size_px)
    wanted = (NUM_IMAGES, num_classes)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    model.eval()
    with torch.no_grad():
        for what, images in (("black", torch.zeros(shape)), ("random", noise)):
            output = _output(model, name, images, f"{what} images")
            _check(output, name, wanted, f"for {what} images at evaluation")
        alone = _output(model, name, noise[:1], "one image")
    _check(alone, name, (1, num_classes), "for one image at evaluation")
    if not torch.allclose(alone, output[:1], rtol=0, atol=SAME * float(output.abs().max())):
        raise SettingsError(
            f"model.name: {name}: gives one image other outputs beside other images at evaluation, "
            "or each time; let model.eval() end that"
        )
    output = _output(model.train(), name, noise, "random images in training")
    _check(output, name, wanted, "for random images in training")
    if not output.requires_grad:
        raise SettingsError(
            f"model.name: {name}: no gradient reaches its parameters; "
            "compute its output without torch.no_grad and detach"
        )


def try_out(model: nn.Module, name: str, image_size_px: int) -> None:
    """Give a model one black image at evaluation; lazy layers have their shapes afterwards.

    Raises:
        SettingsError: It raises; one line that names the model and where.
    """
    # Not in inference mode: what a model makes at its first call has to take gradients later.
    with torch.no_grad():
        _output(model.eval(), name, torch.zeros(1, 3, image_size_px, image_size_px), "one image")
    for layer, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise SettingsError(
                f"model.name: {name}: {layer} has no shape after one image, for nothing uses it; "
                "leave it out"
            )


def _output(model: nn.Module, name: str, images: Tensor, what: str) -> Any:
    try:
        return model(images)
    except Exception as error:
        size_px = images.shape[-1]
        raise SettingsError(
            f"model.name: {name}: raised {told(error)} for {what} of {size_px} px; "
            "mend that, or choose another data.image_size"
        ) from error


def _check(output: Any, name: str, shape: tuple[int, int], when: str) -> None:
    if not isinstance(output, Tensor):
        raise SettingsError(
            f"model.name: {name}: returned no tensor ({type(output).__name__}) {when}; "
            f"return one of shape {shape}: a number for each image and class"
        )
    if tuple(output.shape) != shape:
        raise SettingsError(
            f"model.name: {name}: gave outputs of shape {tuple(output.shape)} {when}; "
            f"give {shape}: a number for each image and class"
        )
    if not output.is_floating_point():
        raise SettingsError(
            f"model.name: {name}: gave {str(output.dtype).removeprefix('torch.')} outputs {when}; "
            "give floating-point logits"
        )
    if not output.isfinite().all():
        raise SettingsError(f"model.name: {name}: gave NaN or infinite outputs {when}; mend that")
