"""Fixtures that several folders of tests share."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("dev", deadline=None, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """Give a folder in memory where there is one: the fsyncs of a busy disk take most of a test."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def hostile_tmp_path(tmp_path: Path) -> Path:
    """Return an empty folder whose path has a space, a quote and letters beyond ASCII."""
    folder = tmp_path / "it's data Ünï 日本"
    folder.mkdir()
    return folder


@pytest.fixture
def image_folder(hostile_tmp_path: Path) -> Path:
    """Return a folder of small JPEGs: `train/` 3 classes x 8 images, `val/` 3 classes x 4."""
    root = hostile_tmp_path / "images"
    for split, num_images in (("train", 8), ("val", 4)):
        for label, name in enumerate(("class 1", "class 2", "class 10")):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(num_images):
                rng = np.random.default_rng((label, number, num_images))
                pixels = rng.integers(0, 80, (20, 24, 3), np.uint8) + np.uint8(80 * label)
                Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=90)
    return root
