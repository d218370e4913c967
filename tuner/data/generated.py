"""The generated data set: 1,000 + 500 small photographs of ten kinds of thing, made once."""

import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image

from tuner.data.once import ensure_folder
from tuner.data.scene import HARDSHIPS, Hardship, photograph
from tuner.data.things import THINGS

FOLDER = "generated-1"  # another number whenever the pictures change
IMAGES_PER_KIND = {"train": 100, "val": 50}
MISLABELLED_PER_KIND = {"train": 6, "val": 0}
HARD_SHARE = 0.2
SIDES_PX = (80, 96)
JPEG_QUALITIES = (70, 95)


def ensure_generated(cache_root: Path, progress: Callable[[int, int], None] | None = None) -> Path:
    """Return the folder of the set under `cache_root`: `train/<class>/` and `val/<class>/`.

    A file's name tells what it shows, its folder how it is labelled: 6 % of the training images
    are in a wrong one. Several processes may ask at once; one renders, the others wait.

    Args:
        cache_root: Where the set is kept; it is made if it is missing.
        progress: Called with the images done and their total.

    Raises:
        DataError: Nothing can be written there.
    """
    tell = progress or (lambda done, total: None)
    return ensure_folder(cache_root / FOLDER, lambda folder: _render_all(folder, tell))


def _render_all(root: Path, progress: Callable[[int, int], None]) -> None:
    tasks = list(_tasks())
    for done, (split, kind, number, label) in enumerate(tasks, start=1):
        path = root / split / label / f"{kind}_{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        _render(
            path, kind, np.random.Generator(np.random.PCG64([*f"{split} {path.name}".encode()]))
        )
        progress(done, len(tasks))


def _tasks() -> Iterator[tuple[str, str, int, str]]:
    """Yield split, kind, number and label; each class loses and gains the same number."""
    kinds = list(THINGS)
    for split, num_images in IMAGES_PER_KIND.items():
        for (position, kind), number in product(enumerate(kinds), range(num_images)):
            away = number + 1 if number < MISLABELLED_PER_KIND[split] else 0
            yield split, kind, number, kinds[(position + away) % len(kinds)]


def _render(path: Path, kind: str, rng: np.random.Generator) -> None:
    hardship: Hardship = "none"
    if rng.random() < HARD_SHARE:
        hardship = HARDSHIPS[rng.integers(len(HARDSHIPS))]
    width_px, height_px = rng.integers(*SIDES_PX, size=2, endpoint=True).tolist()
    image = Image.fromarray(photograph(kind, hardship, width_px, height_px, rng))
    with path.open("wb") as file:
        image.save(file, "JPEG", quality=int(rng.integers(*JPEG_QUALITIES, endpoint=True)))
        file.flush()
        os.fsync(file.fileno())  # before the folder gets its final name
