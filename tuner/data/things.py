"""The ten kinds of thing in the generated photographs, as flat outlines and materials.

Outlines are float64 (points, 2), x to the right and y down, about -1 to 1. Some kinds are alike on
purpose: mug and bottle, apple and pear, car and bus, fish and leaf, flower and starfish.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Outline: TypeAlias = NDArray[np.float64]
Place: TypeAlias = Literal["outdoors", "table", "surface"]
Material: TypeAlias = Literal["body", "accent", "dark", "glass", "green"]

TURN = np.linspace(0, 2 * np.pi, 90, endpoint=False)


@dataclass(frozen=True, slots=True)
class Part:
    """One outline of a thing and what it is made of; later parts lie on earlier ones."""

    outline: Outline
    material: Material = "body"


@dataclass(frozen=True, slots=True)
class Thing:
    """A kind of thing: its form, its usual hue from 0 to 1, and where it is usually found."""

    parts: Callable[[np.random.Generator], list[Part]]
    hue: float
    place: Place
    ground_hue: float


def clutter(rng: np.random.Generator) -> list[Part]:
    """Return a thing of no kind: a blob, a board or a stick."""
    waves = [rng.uniform(-0.3, 0.3) * np.cos(k * TURN + rng.uniform(0, 6)) / k for k in (2, 3, 5)]
    blob = _polar(0.9 + sum(waves))
    board = _box(-1, -rng.uniform(0.1, 0.9), 1, rng.uniform(0.1, 0.9))
    return [Part(blob if rng.random() < 0.5 else board), Part(0.4 * blob + 0.2, "accent")]


def _apple(rng: np.random.Generator) -> list[Part]:
    dent = rng.uniform(0.1, 0.3)
    radius = 0.85 - dent * np.exp(-6 * (1 + np.sin(TURN)))
    stem = _bar((0, -0.6), (rng.uniform(-0.2, 0.2), -1.0), 0.05)
    leaf = 0.35 * _lens(0.35) + (0.3, -0.9)
    return [
        Part(_polar(radius) * (rng.uniform(0.9, 1.1), 1)),
        Part(stem, "dark"),
        Part(leaf, "green"),
    ]


def _pear(rng: np.random.Generator) -> list[Part]:
    neck = rng.uniform(0.26, 0.45)
    lean = rng.uniform(-0.2, 0.2)
    radius = 0.75 + 0.2 * np.sin(TURN)
    body = _polar(radius)
    body[:, 0] *= np.interp(body[:, 1], (-1, -0.2, 0.3), (neck * 1.6, 0.75, 1))
    body[:, 1] = np.where(body[:, 1] < 0, body[:, 1] * 1.6, body[:, 1])
    body[:, 0] += lean * body[:, 1]
    stem = _bar((-0.8 * lean, -0.8), (-lean + rng.uniform(-0.2, 0.2), -1.15), 0.05)
    return [Part(body), Part(stem, "dark")]


def _bottle(rng: np.random.Generator) -> list[Part]:
    width, neck = rng.uniform(0.28, 0.45), rng.uniform(0.1, 0.16)
    shoulder = rng.uniform(-0.5, -0.1)
    body = _turned((neck, -1), (neck, shoulder - 0.2), (width, shoulder + 0.1), (width, 0.97))
    label = _box(-width, shoulder + 0.25, width, rng.uniform(0.4, 0.8))
    return [Part(body), Part(label, "accent"), Part(_box(-neck, -1.1, neck, -0.9), "dark")]


def _mug(rng: np.random.Generator) -> list[Part]:
    top, bottom, height = rng.uniform(0.42, 0.65), rng.uniform(0.35, 0.6), rng.uniform(0.6, 0.85)
    handle = _polar(np.full(90, 0.42)) * (0.8, 1) + (top, 0)
    hole = _polar(np.full(90, 0.25)) * (0.8, 1) + (top, 0)
    rim = _polar(np.ones(90)) * (top, 0.15) + (0, -height)
    body = _turned((top, -height), (bottom, height - 0.1), (bottom - 0.1, height))
    return [Part(handle), Part(hole, "dark"), Part(body), Part(rim, "dark")]


def _car(rng: np.random.Generator) -> list[Part]:
    roof, hood = rng.uniform(-0.62, -0.42), rng.uniform(0.45, 0.75)
    corners = [(-1, 0.3), (-1, -0.05), (-0.65, -0.1), (-0.4, roof), (0.25, roof)]
    body = np.array([*corners, (hood, -0.1), (1, 0.02), (1, 0.3)])
    glass = np.array([(-0.5, -0.1), (-0.33, roof + 0.09), (0.2, roof + 0.09), (hood - 0.15, -0.1)])
    return [Part(body), Part(glass, "glass"), *_wheels(0.3, rng.uniform(0.19, 0.26))]


def _bus(rng: np.random.Generator) -> list[Part]:
    top, num_panes = rng.uniform(-0.6, -0.4), int(rng.integers(3, 7))
    left = np.linspace(-0.93, 0.95, num_panes + 1)[:-1]
    width = 1.88 / num_panes - 0.07
    panes = [Part(_box(x, top + 0.1, x + width, top + 0.42), "glass") for x in left]
    parts = [Part(_box(-1, top, 1, 0.36)), Part(_box(-1, 0.08, 1, 0.17), "accent")]
    return [*parts, *panes, *_wheels(0.36, rng.uniform(0.14, 0.2))]


def _fish(rng: np.random.Generator) -> list[Part]:
    spread = rng.uniform(0.25, 0.5)
    tail = np.array([(-0.4, 0), (-1, -spread), (-0.85, 0), (-1, spread)])
    fin = np.array([(0.35, -0.25), (-0.1, -rng.uniform(0.5, 0.7)), (-0.25, -0.2)])
    eye = _polar(np.full(90, 0.07)) + (0.6, -0.08)
    body = 0.78 * _lens(rng.uniform(0.4, 0.6)) + (0.15, 0)
    return [Part(tail, "accent"), Part(fin, "accent"), Part(body), Part(eye, "dark")]


def _leaf(rng: np.random.Generator) -> list[Part]:
    width = rng.uniform(0.35, 0.55)
    ribs = [
        Part(_bar((x, 0), (x + 0.22, side * 0.6 * width), 0.025), "accent")
        for x in (-0.5, -0.15, 0.2)
        for side in (-1, 1)
    ]
    stalk = _bar((-1.2, rng.uniform(-0.2, 0.2)), (-0.7, 0), 0.045)
    return [Part(stalk, "accent"), Part(0.9 * _lens(width)), *ribs]


def _flower(rng: np.random.Generator) -> list[Part]:
    num_petals, depth = int(rng.integers(5, 9)), rng.uniform(0.2, 0.45)
    radius = 1 - depth + depth * np.abs(np.cos(num_petals * TURN / 2))
    heart = _polar(np.full(90, rng.uniform(0.18, 0.32)))
    return [Part(_polar(radius)), Part(heart, "accent")]


def _starfish(rng: np.random.Generator) -> list[Part]:
    arms = np.abs(np.cos(2.5 * TURN)) ** rng.uniform(1.2, 2.5)
    inner = rng.uniform(0.3, 0.45)
    spots = [
        Part(0.07 * _polar(np.ones(90)) + 0.3 * _direction(0.4 * np.pi * k), "accent")
        for k in range(5)
    ]
    return [Part(_polar(inner + (1 - inner) * arms)), *spots]


def _polar(radius: ArrayLike) -> Outline:
    outline: Outline = np.stack([np.cos(TURN), np.sin(TURN)], axis=1) * np.asarray(radius)[:, None]
    return outline


def _direction(angle: float) -> Outline:
    return np.array([np.cos(angle), np.sin(angle)])


def _lens(width: float) -> Outline:
    """Return a pointed oval from (-1, 0) to (1, 0)."""
    x, sign = np.cos(TURN), np.sign(np.sin(TURN))
    return np.stack([x, sign * width * (1 - x**2)], axis=1)


def _turned(*profile: tuple[float, float]) -> Outline:
    """Return what a lathe makes of (half width, height) points from top to bottom."""
    right = np.array(profile)
    return np.concatenate([right, right[::-1] * (-1, 1)])


def _box(left: float, top: float, right: float, bottom: float) -> Outline:
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)])


def _bar(start: tuple[float, float], end: tuple[float, float], half_width: float) -> Outline:
    along = np.subtract(end, start)
    across = half_width * np.array([-along[1], along[0]]) / np.hypot(*along)
    return np.array([start + across, end + across, end - across, start - across])


def _wheels(y: float, radius: float) -> list[Part]:
    disc = _polar(np.ones(90))
    tyres = [Part(radius * disc + (x, y), "dark") for x in (-0.57, 0.57)]
    hubs = [Part(0.45 * radius * disc + (x, y), "glass") for x in (-0.57, 0.57)]
    return tyres + hubs


THINGS = {
    "apple": Thing(_apple, hue=0.0, place="table", ground_hue=0.08),
    "bottle": Thing(_bottle, hue=0.38, place="table", ground_hue=0.04),
    "bus": Thing(_bus, hue=0.13, place="outdoors", ground_hue=0.6),
    "car": Thing(_car, hue=0.62, place="outdoors", ground_hue=0.1),
    "fish": Thing(_fish, hue=0.55, place="surface", ground_hue=0.5),
    "flower": Thing(_flower, hue=0.9, place="outdoors", ground_hue=0.3),
    "leaf": Thing(_leaf, hue=0.3, place="surface", ground_hue=0.06),
    "mug": Thing(_mug, hue=0.7, place="table", ground_hue=0.1),
    "pear": Thing(_pear, hue=0.18, place="table", ground_hue=0.06),
    "starfish": Thing(_starfish, hue=0.04, place="surface", ground_hue=0.13),
}
