"""What training sees is a crop, mirroring and turn that only the seed, epoch and image choose."""

import itertools

import numpy as np
import pytest
import torch

from tuner.data.augment import (
    MEAN,
    STD,
    Augment,
    _scale_and_shift,
    augment_batch,
    evaluation_batch,
    stored_size_px,
)
from tuner.data.keyed import stable_keys

CROPS = ("none", "pad", "resized")
KEYS = stable_keys(str(number) for number in range(400))


def drawn_images(num_images: int, side: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (num_images, side, side, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def pixels_of(normal: torch.Tensor) -> np.ndarray:
    """Undo the normalisation: (n, 3, s, s) floats to (n, s, s, 3) from 0 to 255."""
    values = normal.float().numpy().transpose(0, 2, 3, 1)
    pixels: np.ndarray = (values * np.array(STD) + np.array(MEAN)) * 255
    return pixels


def as_integers(normal: torch.Tensor) -> np.ndarray:
    pixels = pixels_of(normal)
    assert np.abs(pixels - pixels.round()).max() < 1e-3
    return pixels.round().astype(np.uint8)


def variants(image: np.ndarray, turns: range, flips: tuple[bool, ...]) -> list[np.ndarray]:
    pairs = itertools.product(turns, flips)
    return [np.rot90(image[:, ::-1] if flip else image, turn) for turn, flip in pairs]


@pytest.mark.parametrize(
    ("crop", "size", "stored"),
    [("none", 224, 224), ("pad", 32, 32), ("resized", 224, 256), ("resized", 64, 74)],
)
def test_stored_size(crop: str, size: int, stored: int) -> None:
    assert stored_size_px(crop, size) == stored  # type: ignore[arg-type]


@pytest.mark.parametrize(("flip", "rotate90"), [*itertools.product([False, True], repeat=2)])
def test_each_mirroring_and_turn_is_drawn_equally_often(flip: bool, rotate90: bool) -> None:
    augment = Augment(crop="none", flip=flip, rotate90=rotate90, image_size_px=7)
    images = drawn_images(400, 7)
    varied = as_integers(augment_batch(images, KEYS, seed=1, epoch=2, augment=augment))
    turns, flips = range(4 if rotate90 else 1), ((False, True) if flip else (False,))
    counts = np.zeros(len(turns) * len(flips))
    for image, result in zip(images.numpy(), varied, strict=True):
        counts += [np.array_equal(result, variant) for variant in variants(image, turns, flips)]
    assert counts.sum() == len(images)
    expected = len(images) / len(counts)
    assert ((counts - expected) ** 2 / expected).sum() < 24  # chi-square of 7, p = 0.001


def test_pad_moves_the_image_by_up_to_an_eighth_and_reflects_its_edges() -> None:
    augment = Augment(crop="pad", flip=True, rotate90=True, image_size_px=16)
    images = drawn_images(400, 16)
    varied = as_integers(augment_batch(images, KEYS, seed=0, epoch=0, augment=augment))
    found = set()
    for image, result in zip(images.numpy(), varied, strict=True):
        padded = np.pad(image, ((2, 2), (2, 2), (0, 0)), mode="reflect")
        for y, x in itertools.product(range(5), repeat=2):
            moved = padded[y : y + 16, x : x + 16]
            options = variants(moved, range(4), (False, True))
            if any(np.array_equal(result, option) for option in options):
                found.add((y, x))
                break
        else:
            pytest.fail("not one of the 25 crops of the padded image")
    assert len(found) == 25


def test_resized_crops_are_boxes_of_the_image_of_the_promised_size_and_shape() -> None:
    augment = Augment(crop="resized", flip=True, rotate90=True, image_size_px=32)
    ramp = torch.arange(36, dtype=torch.uint8) * 4
    images = torch.stack(torch.meshgrid(ramp, ramp, indexing="ij"), dim=-1)
    images = torch.cat([images, torch.full_like(images[..., :1], 9)], dim=-1).expand(400, -1, -1, 3)
    varied = pixels_of(augment_batch(images, KEYS, seed=0, epoch=0, augment=augment))
    assert np.abs(varied[..., 2] - 9).max() < 1e-3  # no border is seen
    steps = np.stack([np.diff(varied, axis=1)[:, 8, 8], np.diff(varied, axis=2)[:, 8, 8]], axis=1)
    heights, widths = (np.abs(steps[..., channel]).max(axis=1) * 32 / 144 for channel in (0, 1))
    areas, aspects = heights * widths, widths / heights
    assert 0.34 < areas.min() < 0.37
    assert 0.9 < areas.max() < 1.001
    assert 0.74 < aspects.min() < 0.77
    assert 1.3 < aspects.max() < 1.34


@pytest.mark.parametrize("crop", CROPS)
def test_an_image_looks_the_same_in_any_batch_and_different_in_the_next_epoch(crop: str) -> None:
    augment = Augment(crop=crop, flip=True, rotate90=True, image_size_px=28)  # type: ignore[arg-type]
    images, keys = drawn_images(37, stored_size_px(augment.crop, 28)), KEYS[:37]
    whole = augment_batch(images, keys, seed=0, epoch=1, augment=augment)
    order = np.random.default_rng(0).permutation(37)
    parts = [
        augment_batch(images[part], keys[part], seed=0, epoch=1, augment=augment)
        for part in np.split(order, [1, 3, 20])
    ]
    assert torch.equal(torch.cat(parts), whole[order])
    for seed, epoch in ((0, 2), (1, 1)):
        other = augment_batch(images, keys, seed=seed, epoch=epoch, augment=augment)
        assert (other != whole).flatten(1).any(1).float().mean() > 0.8


def test_evaluation_sees_the_normalised_centre() -> None:
    images = drawn_images(5, 36)
    seen = evaluation_batch(images, image_size_px=32)
    assert np.array_equal(as_integers(seen), images[:, 2:34, 2:34].numpy())
    centre = (images[:, 2:34, 2:34].double() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
    torch.testing.assert_close(seen.double(), centre.permute(0, 3, 1, 2), rtol=0, atol=1e-6)


@pytest.mark.parametrize("crop", CROPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batches_come_channels_last_in_the_type_asked_for(crop: str, dtype: torch.dtype) -> None:
    augment = Augment(crop=crop, flip=True, rotate90=True, image_size_px=28)  # type: ignore[arg-type]
    images = drawn_images(6, stored_size_px(augment.crop, 28))
    varied = augment_batch(images, KEYS[:6], seed=0, epoch=0, augment=augment, dtype=dtype)
    seen = evaluation_batch(images, image_size_px=28, dtype=dtype)
    for batch in (varied, seen):
        assert batch.shape == (6, 3, 28, 28)
        assert batch.dtype == dtype
        assert batch.is_contiguous(memory_format=torch.channels_last)


def test_constants_first_made_for_an_evaluation_can_be_trained_with() -> None:
    _scale_and_shift.cache_clear()
    with torch.inference_mode():
        evaluation_batch(drawn_images(2, 8), image_size_px=8)
    assert not any(constant.is_inference() for constant in _scale_and_shift(8, torch.device("cpu")))
    assert _scale_and_shift.cache_info().hits == 1
