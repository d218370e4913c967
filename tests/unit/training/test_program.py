"""An exported program gives the model's logits for any number of images, and nothing of ours."""

import io

import pytest
import torch
from torch import Tensor, nn

from tuner.data.augment import evaluation_batch
from tuner.errors import RunError
from tuner.training.models import build_model
from tuner.training.program import export_program

pytestmark = pytest.mark.filterwarnings("default")  # torch.export's own


def noise(num_images: int, size_px: int) -> Tensor:
    draw = torch.Generator().manual_seed(num_images)
    pixels = torch.randint(0, 256, (num_images, size_px, size_px, 3), generator=draw)
    return pixels.to(torch.uint8)


@pytest.mark.parametrize("name", ["resnet8_s2", "lenet", "mobilenet_v3_small"])
def test_logits_are_those_of_the_model_for_any_number_of_images(name: str) -> None:
    torch.manual_seed(0)
    model = build_model(name, 7, image_size_px=32, ghost_batch_size=8)
    model(torch.randn(16, 3, 32, 32))  # running statistics that are not those of a new model
    before = {key: value.clone() for key, value in model.state_dict().items()}
    data = export_program(model, resize_px=36, crop_px=32)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert model.training
    program = torch.export.load(io.BytesIO(data))
    run = program.module()
    model.eval()
    for num_images in (1, 3, 17):
        images = noise(num_images, 36)
        with torch.inference_mode():
            wanted = model(evaluation_batch(images, image_size_px=32))
            torch.testing.assert_close(run(images), wanted, rtol=1e-5, atol=1e-5)
    assert b"Ghost" not in data
    assert b"KeyedDropout" not in data
    assert __file__.encode() not in data
    assert b"/tuner/training/" not in data  # no source lines, which name folders of this machine


class Choosing(nn.Module):
    """A model that does one thing or another, by what it sees."""

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, (n, 2)."""
        means = images.mean((2, 3))[:, :2]
        return means if means.sum() > 0 else -means


class Drawing(nn.Module):
    """A model that draws its logits anew each time."""

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, (n, 2)."""
        return images.mean((2, 3))[:, :2] + torch.rand(2)


@pytest.mark.parametrize(
    ("model", "begin"),
    [
        (Choosing(), "format: torch.export refuses this model ("),
        (Drawing(), "format: the exported program differs from the model (by "),
    ],
)
def test_a_model_that_makes_no_program_is_refused_in_one_line(model: nn.Module, begin: str) -> None:
    with pytest.raises(RunError) as caught:
        export_program(model, resize_px=8, crop_px=8)
    message = str(caught.value)
    assert message.startswith(begin)
    assert message.endswith("; leave pt2 out")
    assert "\n" not in message
