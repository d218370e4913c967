"""A trained classifier as a `torch.export` program that runs wherever torch does."""

import copy
import io

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from tuner.data.augment import MEAN, STD
from tuner.errors import RunError
from tuner.training.ghost_norm import use_plain_batch_norm
from tuner.training.keyed_dropout import drop_keyed_dropout

TRIED_BATCHES = (1, 3)  # a batch of one is what exporting most easily gets wrong
TOLERANCE = 1e-5


class PixelClassifier(nn.Module):
    """A classifier of decoded squares: cuts the centre and normalises before the model.

    Args:
        model: Maps normalised (n, 3, crop_px, crop_px) to logits.
        crop_px: Side of the centre that it sees.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, model: nn.Module, crop_px: int) -> None:
        super().__init__()
        self.model = model
        self.crop_px = crop_px
        self.register_buffer("scale", torch.tensor([1 / (255 * std) for std in STD]))
        shift = [-mean / std for mean, std in zip(MEAN, STD, strict=True)]
        self.register_buffer("shift", torch.tensor(shift))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (n, classes) of RGB pixels, uint8 (n, size, size, 3)."""
        start = (images.shape[1] - self.crop_px) // 2
        kept = slice(start, start + self.crop_px)
        pixels = images[:, kept, kept].float()
        return self.model((pixels * self.scale + self.shift).permute(0, 3, 1, 2))


def export_program(model: nn.Module, *, resize_px: int, crop_px: int) -> bytes:
    """Return a file for `torch.export.load`: uint8 (n, resize_px, resize_px, 3) to logits.

    n is any number from 1 up. The program needs torch alone: ghost BatchNorm is plain in it, and
    dropout gone. It was tried: its logits are those of the model.

    Raises:
        RunError: torch cannot follow the model, or the program gives other logits.
    """
    plain = copy.deepcopy(model).cpu().float().eval()
    use_plain_batch_norm(plain)
    drop_keyed_dropout(plain)
    whole = PixelClassifier(plain, crop_px).eval()
    example = torch.zeros(2, resize_px, resize_px, 3, dtype=torch.uint8)
    try:
        with torch.no_grad():
            any_number = {"images": {0: Dim("n", min=1)}}
            program = torch.export.export(whole, (example,), dynamic_shapes=any_number)
    except Exception as error:  # torch raises many kinds for what it cannot follow
        cause = str(error).strip().partition("\n")[0] or type(error).__name__
        raise RunError(
            f"format: torch.export refuses this model ({cause}); leave pt2 out"
        ) from error
    _try(program, PixelClassifier(copy.deepcopy(model).cpu().float().eval(), crop_px), resize_px)
    _forget_sources(program)
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


@torch.no_grad()
def _try(program: ExportedProgram, whole: nn.Module, resize_px: int) -> None:
    run, draw = program.module(), torch.Generator().manual_seed(0)
    for n in TRIED_BATCHES:
        pixels = torch.randint(0, 256, (n, resize_px, resize_px, 3), generator=draw)
        images = pixels.to(torch.uint8)
        wanted, found = whole(images), run(images)
        if not torch.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE):
            error = (found - wanted).abs().max().item()
            raise RunError(
                f"format: the exported program differs from the model (by {error:.2g} on a batch "
                f"of {n}); leave pt2 out"
            )


def _forget_sources(program: ExportedProgram) -> None:
    """Take out the lines of source that each node came from: they name folders of this machine."""
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
