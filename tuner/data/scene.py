"""Renders small photographs: a thing with its material, light, surroundings and the camera's flaws.

Pixels are RGB float32 (height, width, 3) from 0 to 1 unless it is said otherwise. All draws come
from the generator that is passed, so one seed is one photograph.
"""

import colorsys
from typing import Any, Literal, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from tuner.data.things import THINGS, Material, Outline, Part, Place, clutter

Pixels: TypeAlias = NDArray[np.floating[Any]]
Hardship: TypeAlias = Literal["none", "occluded", "dark", "small", "blurred"]

SUPERSAMPLING = 2
HARDSHIPS: tuple[Hardship, ...] = ("occluded", "dark", "small", "blurred")
PLACES: tuple[Place, ...] = ("outdoors", "table", "surface")
USUAL_SHARE = 0.88  # of the things in their usual place, and of those in their usual colour


def photograph(
    kind: str, hardship: Hardship, width_px: int, height_px: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Return a photograph of a thing of this kind, RGB uint8 (height_px, width_px, 3)."""
    thing, shape = THINGS[kind], (height_px * SUPERSAMPLING, width_px * SUPERSAMPLING)
    place, ground_hue, hue = PLACES[rng.integers(3)], rng.random(), rng.random()
    if rng.random() < USUAL_SHARE:
        place, ground_hue = thing.place, thing.ground_hue
    if rng.random() < USUAL_SHARE:
        hue = thing.hue
    scene = _surroundings(shape, place, ground_hue, rng)
    light = rng.uniform(-1, 1), rng.uniform(-1, -0.3)
    for _ in range(rng.integers(0, 4)):
        _place(scene, clutter(rng), rng.random(), rng.uniform(0.15, 0.35), light, rng)
    scene = _blurred(scene, rng.uniform(0.3, 4))
    size = rng.uniform(0.3, 0.4) if hardship == "small" else rng.uniform(0.6, 0.95)
    _place(scene, thing.parts(rng), hue, size, light, rng)
    if hardship == "occluded":
        _place(scene, clutter(rng), rng.random(), rng.uniform(0.4, 0.6), light, rng)
    return _exposed(scene, hardship, (width_px, height_px), rng)


def _place(
    scene: Pixels,
    parts: list[Part],
    hue: float,
    size: float,
    light: tuple[float, float],
    rng: np.random.Generator,
) -> None:
    """Put a thing of `size` of the scene's short side into the scene, with its shadow."""
    full = np.array(scene.shape[1::-1])
    scale = size * min(scene.shape[:2]) / 2
    centre = full / 2 + rng.uniform(-1, 1, 2) * np.maximum(full / 2 - 0.9 * scale, 0)
    angle, shear = rng.normal(0, 0.25), rng.normal(0, 0.12)
    turn = np.array([(np.cos(angle), np.sin(angle)), (-np.sin(angle), np.cos(angle))])
    stretch = np.array([(rng.choice((-1, 1)) * rng.uniform(0.85, 1.15), 0), (shear, 1)])
    left, top = np.maximum(centre - 1.8 * scale, 0).astype(int)
    right, bottom = np.minimum(centre + 1.8 * scale, full).astype(int)
    near = scene[top:bottom, left:right]
    outlines = [part.outline @ stretch @ turn * scale + centre - (left, top) for part in parts]
    covered, albedo = _painted(outlines, [part.material for part in parts], near.shape, hue, rng)
    shading, gloss = _relief(covered, scale, light, rng)
    shading *= 1 + rng.uniform(0.1, 0.5) * (_clouds(near.shape[:2], rng) - 0.5)
    near *= 1 - rng.uniform(0.3, 0.7) * _shadow(covered, scale, light, rng)[:, :, None]
    near += covered[:, :, None] * (albedo * shading[:, :, None] + gloss[:, :, None] - near)


def _painted(
    outlines: list[Outline],
    materials: list[Material],
    shape: tuple[int, ...],
    hue: float,
    rng: np.random.Generator,
) -> tuple[Pixels, Pixels]:
    """Return how much of each pixel the outlines cover, and their colours without light."""
    paint = {
        "body": _colour(hue + rng.normal(0, 0.03), 0.85, rng),
        "accent": _colour(rng.random(), 0.6, rng),
        "dark": np.full(3, rng.uniform(0.04, 0.2), np.float32),
        "glass": _colour(0.58, 0.4, rng) * 0.4 + 0.4,
        "green": _colour(0.3, 0.8, rng),
    }
    covered, albedo = np.zeros(shape[:2], np.uint8), np.empty(shape, np.uint8)
    albedo[:] = paint[materials[0]] * 255  # smooth edges must not blend with black
    for outline, material in zip(outlines, materials, strict=True):
        points = [np.round(outline * 16).astype(np.int32)]
        cv2.fillPoly(covered, points, 255, cv2.LINE_AA, shift=4)
        cv2.fillPoly(albedo, points, (paint[material] * 255).tolist(), cv2.LINE_AA, shift=4)
    return covered / np.float32(255), albedo / np.float32(255)


def _relief(
    covered: Pixels, scale: float, light: tuple[float, float], rng: np.random.Generator
) -> tuple[Pixels, Pixels]:
    """Return the light and the gloss on a thing that bulges towards its middle."""
    depth = cv2.distanceTransform((covered > 0.5).astype(np.uint8), cv2.DIST_L2, 3)
    bulge = np.sqrt(np.clip(depth / (rng.uniform(0.3, 0.6) * scale), 0, 1)) * scale * 0.35
    bulge = _blurred(bulge, 0.05 * scale + 0.5)
    slope_x = cv2.Sobel(bulge, -1, 1, 0, scale=1 / 8)
    slope_y = cv2.Sobel(bulge, -1, 0, 1, scale=1 / 8)
    facing = 0.7 - slope_x * light[0] - slope_y * light[1]
    facing = np.clip(facing / np.sqrt(1 + slope_x**2 + slope_y**2), 0, 1.2)
    ambient = rng.uniform(0.25, 0.5)
    gloss = rng.uniform(0, 2) * np.clip(facing - 0.8, 0, 1) ** 2
    return ambient + (1.2 - ambient) * facing, gloss


def _shadow(
    covered: Pixels, scale: float, light: tuple[float, float], rng: np.random.Generator
) -> Pixels:
    reach = rng.uniform(0.1, 0.4) * scale
    move = np.array([(1, 0, -light[0] * reach), (0, 1, -light[1] * reach)], np.float32)
    shadow = cv2.warpAffine(covered, move, covered.shape[::-1])
    return _blurred(np.asarray(shadow, np.float32), rng.uniform(0.04, 0.15) * scale)


def _surroundings(
    shape: tuple[int, int], place: Place, ground_hue: float, rng: np.random.Generator
) -> Pixels:
    """Return an open view, a table before a wall, or one surface seen from above."""
    height, width = shape
    ground = _surface(shape, _colour(ground_hue + rng.normal(0, 0.03), 0.6, rng), rng)
    if place == "surface":
        return ground
    ramp = np.linspace(0, 1, height, dtype=np.float32)[:, None, None]
    if place == "outdoors":
        sky = _colour(rng.uniform(0.53, 0.62), 0.7, rng) * 0.5 + 0.4
        clouds = np.clip(_clouds(shape, rng) * 2 - rng.uniform(0.6, 1.2), 0, 1)[:, :, None]
        back, ripple = sky + (1 - sky) * np.maximum(ramp, clouds), rng.uniform(0, 0.3) * height
    else:
        wall = _colour(rng.random(), 0.3, rng) * 0.6 + 0.35
        back, ripple = _surface(shape, wall, rng) * (1.1 - 0.3 * ramp), 0.0
    edge = height * rng.uniform(0.35, 0.75) + ripple * (_clouds((1, width), rng) - 0.5)
    below = np.clip(np.arange(height, dtype=np.float32)[:, None] - edge, 0, 1)
    return np.asarray(back + below[:, :, None] * (ground - back), np.float32)


def _surface(shape: tuple[int, int], colour: Pixels, rng: np.random.Generator) -> Pixels:
    """Return a material that is grained, and often planked or checked."""
    texture = 1 + rng.uniform(0.3, 1) * (_clouds(shape, rng, stretch=rng.choice((1, 1, 6))) - 0.5)
    pitch = rng.uniform(0.08, 0.35) * shape[1]
    y, x = (np.arange(length, dtype=np.float32) / pitch + rng.random() for length in shape)
    pattern = rng.integers(0, 4)
    if pattern == 1:
        texture *= np.where(x % 1 < 0.05, 0.6, 1 + 0.1 * np.sin(7 * np.floor(x)))
    elif pattern == 2:
        texture *= 1 + rng.uniform(0.05, 0.3) * ((np.floor(x) + np.floor(y)[:, None]) % 2)
    drift = _clouds(shape, rng)[:, :, None] * (np.roll(colour, 1) - colour) * 0.3
    return texture[:, :, None] * (colour + drift)


def _exposed(
    scene: Pixels, hardship: Hardship, size: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Return what the camera makes of the scene: focus, white balance, exposure and noise."""
    sigma = rng.uniform(2.5, 5) if hardship == "blurred" else rng.uniform(0.3, 1.2)
    scene = np.asarray(cv2.resize(_blurred(scene, sigma), size, interpolation=cv2.INTER_AREA))
    y, x = np.ogrid[-1 : 1 : size[1] * 1j, -1 : 1 : size[0] * 1j]
    vignette = 1 - rng.uniform(0, 0.2) * (x**2 + y**2)[:, :, None]
    exposure = rng.uniform(0.12, 0.3) if hardship == "dark" else rng.uniform(0.7, 1.3)
    balance = exposure * rng.uniform(0.9, 1.1, 3)
    seen = np.clip(scene * vignette * balance, 0, None) ** rng.uniform(0.75, 1.1)
    seen += rng.normal(0, rng.uniform(0.004, 0.025), seen.shape)
    return np.asarray(np.round(np.clip(seen, 0, 1) * 255), np.uint8)


def _clouds(shape: tuple[int, int], rng: np.random.Generator, *, stretch: int = 1) -> Pixels:
    """Return five octaves of noise about 0.5, drawn out `stretch` times along x."""
    total = np.zeros(shape, np.float32)
    for octave in range(1, 6):
        cells = 2**octave + 1
        grid = rng.random((cells * stretch, cells), np.float32) - 0.5
        waves = cv2.resize(grid, shape[::-1], interpolation=cv2.INTER_CUBIC)
        total += np.asarray(waves, np.float32) / 1.6**octave
    return total + 0.5


def _blurred(image: Pixels, sigma: float) -> Pixels:
    return np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), np.float32)


def _colour(hue: float, max_saturation: float, rng: np.random.Generator) -> Pixels:
    saturation, value = rng.uniform(0.1, max_saturation), rng.uniform(0.35, 0.95)
    return np.array(colorsys.hsv_to_rgb(hue % 1, saturation, value), np.float32)
