"""Random crops, mirroring and quarter turns of whole batches on the device, and normalisation.

Every draw is a function of (seed, epoch, image id): neither the batch an image is in nor the worker
that read it can change what it looks like.
"""

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from tuner.data.keyed import Stream, keyed_uniform

Crop: TypeAlias = Literal["none", "pad", "resized"]

MEAN = (0.485, 0.456, 0.406)  # of ImageNet's training images, as R, G, B from 0 to 1
STD = (0.229, 0.224, 0.225)
PAD_FRACTION = 1 / 8  # 4 pixels of 32, as in He et al. 2015
MIN_AREA = 0.35  # short training wants larger crops than the usual 0.08 (ffcv's ImageNet recipe)
MAX_ASPECT = 4 / 3
STORED_PER_CROPPED = 8 / 7  # 256 pixels are stored for crops of 224


@dataclass(frozen=True, slots=True)
class Augment:
    """How training images are varied, and the side in pixels of what the model sees."""

    crop: Crop
    flip: bool
    rotate90: bool
    image_size_px: int


def stored_size_px(crop: Crop, image_size_px: int) -> int:
    """Return the side of the decoded squares from which images of `image_size_px` are cut."""
    if crop == "resized":
        return 2 * round(image_size_px * STORED_PER_CROPPED / 2)
    return image_size_px


def augment_batch(
    images: torch.Tensor,
    keys: NDArray[np.uint64],
    *,
    seed: int,
    epoch: int,
    augment: Augment,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return the varied and normalised images, (n, 3, size, size) channels_last, on their device.

    Args:
        images: RGB, uint8 (n, stored, stored, 3), stored = `stored_size_px`.
        keys: The images' keys, uint64 (n,).
        seed: Of the training run.
        epoch: Which pass over the data this is.
        augment: What varies.
        dtype: Of the result.
    """
    draw = partial(keyed_uniform, keys, seed=seed, epoch=epoch)
    turns = np.floor(4 * draw(stream=Stream.ROTATE)) * augment.rotate90
    is_flipped = (draw(stream=Stream.FLIP) < 0.5) & augment.flip
    # A turn by 90 degrees is a mirroring followed by an exchange of the axes.
    sign_y = np.where(np.isin(turns, (2, 3)), -1, 1)
    sign_x = np.where(np.isin(turns, (1, 2)) ^ is_flipped, -1, 1)
    is_turned = turns % 2 == 1
    at_y, at_x = draw(stream=Stream.CROP_Y), draw(stream=Stream.CROP_X)
    size = augment.image_size_px
    # All draws go to the device in one transfer.
    if augment.crop == "resized":
        area, aspect = draw(stream=Stream.CROP_AREA), draw(stream=Stream.CROP_ASPECT)
        boxes = _boxes(area, aspect, at_y, at_x, sign_y, sign_x)
        draws = to_device(np.stack([*boxes, is_turned.astype(np.float32)]), images.device)
        varied = _resized_crops(images, size, draws)
    else:
        pad = round(size * PAD_FRACTION) * (augment.crop == "pad")
        shifts = (np.floor(at * (2 * pad + 1)) - pad for at in (at_y, at_x))
        integers = np.stack([*shifts, sign_y, sign_x, is_turned]).astype(np.int64)
        draws = to_device(integers, images.device)
        varied = _shifted(images, draws)
    if augment.rotate90:
        is_odd = draws[4, :, None, None, None] > 0
        varied = torch.where(is_odd, varied.transpose(1, 2), varied)
    return _normalise(varied, dtype)


def evaluation_batch(
    images: torch.Tensor, *, image_size_px: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return the normalised centres of uint8 (n, stored, stored, 3), (n, 3, size, size)."""
    start = (images.shape[1] - image_size_px) // 2
    kept = slice(start, start + image_size_px)
    return _normalise(images[:, kept, kept], dtype)


def to_device(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return the values on the device, without waiting for it: only pinned memory allows that."""
    on_host = torch.from_numpy(values)
    if device.type == "cuda":
        on_host = on_host.pin_memory()
    return on_host.to(device, non_blocking=True)


def _shifted(images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Return (n, stored, stored, 3), each image moved and mirrored; edges are filled by reflection.

    The first rows of `draws` (5, n) are shift and sign, down and across. Whole rows are picked
    first, then pixels of them: a third of the time of indexing both at once.
    """
    n, side = images.shape[:2]
    shift_y, shift_x, sign_y, sign_x = draws[:4]
    line_starts = side * torch.arange(n * side, device=images.device).view(n, side, 1)
    rows = _reflected(shift_y, sign_y, side) + line_starts[:, 0] // side
    columns = _reflected(shift_x, sign_x, side)[:, None] + line_starts
    picked_rows = images.reshape(n * side, side * 3).index_select(0, rows.flatten())
    pixels = picked_rows.view(n * side * side, 3).index_select(0, columns.flatten())
    return pixels.view(images.shape)


def _reflected(shift: torch.Tensor, sign: torch.Tensor, side: int) -> torch.Tensor:
    """Return which pixel of a line stands at each place of it, int64 (n, side)."""
    ramp, last = torch.arange(side, device=shift.device), side - 1
    place = torch.where(sign[:, None] < 0, last - ramp, ramp) + shift[:, None]
    return last - (last - place.abs()).abs()


def _boxes(
    area: NDArray[np.float64],
    aspect: NDArray[np.float64],
    at_y: NDArray[np.float64],
    at_x: NDArray[np.float64],
    sign_y: NDArray[np.int64],
    sign_x: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Return scale and centre, down and across, of the crops drawn: float32 (4, n).

    They map places in the crop to places in the image, both from -1 to 1.
    """
    area = MIN_AREA + (1 - MIN_AREA) * area
    stretch = np.exp((aspect - 0.5) * math.log(MAX_ASPECT))  # square root of width / height
    height, width = (np.minimum(np.sqrt(area) * by, 1) for by in (1 / stretch, stretch))
    centre_y, centre_x = (1 - height) * (2 * at_y - 1), (1 - width) * (2 * at_x - 1)
    return np.stack([sign_y * height, centre_y, sign_x * width, centre_x]).astype(np.float32)


def _resized_crops(images: torch.Tensor, size: int, draws: torch.Tensor) -> torch.Tensor:
    """Return float32 (n, size, size, 3): each image's box, read bilinearly.

    The grid is not made by `affine_grid`: its matrix product rounds by the size of the batch.
    """
    scale_y, centre_y, scale_x, centre_x = draws[:4, :, None]
    places = (torch.arange(size, device=images.device) * 2 + (1 - size)) / size
    down, across = places * scale_y + centre_y, places * scale_x + centre_x
    n = len(images)
    grid = torch.stack(
        [across[:, None].expand(n, size, size), down[:, :, None].expand(n, size, size)], dim=-1
    )
    pixels = images.permute(0, 3, 1, 2).float()
    sampled = functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    return sampled.permute(0, 2, 3, 1)


def _normalise(images: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # As long lines: arithmetic that broadcasts over a last axis of 3 takes ten times as long.
    width = images.shape[2]
    lines = images.float().contiguous().view(-1, width * 3)
    scale, shift = _scale_and_shift(width, images.device)
    torch.addcmul(shift, lines, scale, out=lines)
    normal = lines.view(images.shape).to(dtype).permute(0, 3, 1, 2)
    return normal.contiguous(memory_format=torch.channels_last)


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # else an evaluation's would be no tensors to train with
def _scale_and_shift(width: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factor and summand of a line of pixels, kept on the device: (width * 3,) each."""
    scale = torch.tensor([1 / (255 * std) for std in STD]).repeat(width)
    shift = torch.tensor([-mean / std for mean, std in zip(MEAN, STD, strict=True)]).repeat(width)
    return scale.to(device), shift.to(device)
