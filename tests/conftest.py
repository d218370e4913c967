"""Fixtures that several folders of tests share."""

import contextlib
import os
import shutil
import signal
import subprocess
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

# Begun in the background, tests and all that they start would not hear an interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """Give a folder in memory where there is one: the fsyncs of a busy disk take most of a test."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


class SmallDisk:
    """A disk of its own, in memory, and of a size that can change.

    Args:
        path: Where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self._run("mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(path))

    def resize(self, num_bytes: int) -> None:
        """Give it so many bytes in all."""
        self._run("mount", "-o", f"remount,size={num_bytes}", str(self.path))

    def make_read_only(self) -> None:
        """Refuse every change, as a disk does that fails."""
        self._run("mount", "-o", "remount,ro", str(self.path))

    def fill(self) -> None:
        """Leave not one byte free."""
        with contextlib.suppress(OSError):
            (self.path / "filling").write_bytes(bytes(shutil.disk_usage(self.path).total + 1))
        assert shutil.disk_usage(self.path).free == 0

    def remove(self) -> None:
        """Unmount it, at once even where somebody still has a file open."""
        self._run("umount", "--lazy", str(self.path))

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Give a disk of 1 MiB that can be filled, and made larger; only root may have one."""
    try:
        disk = SmallDisk(tmp_path / "disk")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk can be mounted here: {error}")
    yield disk
    disk.remove()


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
    write_classes(root / "train", 8)
    write_classes(root / "val", 4)
    return root


@pytest.fixture
def held_out_root(hostile_tmp_path: Path) -> Path:
    """Return a folder of the classes of `image_folder`, 5 JPEGs each that it does not hold."""
    root = hostile_tmp_path / "test images"
    write_classes(root, 5)
    return root


def write_classes(root: Path, num_images: int) -> None:
    """Write so many images of each of three classes; with another number they are others."""
    for label, name in enumerate(("class 1", "class 2", "class 10")):
        folder = root / name
        folder.mkdir(parents=True)
        for number in range(num_images):
            rng = np.random.default_rng((label, number, num_images))
            pixels = rng.integers(0, 80, (20, 24, 3), np.uint8) + np.uint8(80 * label)
            Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=90)


@pytest.fixture
def csv_dataset(image_folder: Path) -> Path:
    """Return the images of `image_folder` in the layout of CSV labels: 24 and 12 of them."""
    for split, name in (("train", "train_label.csv"), ("val", "valid_label.csv")):
        lines = ["path,label"]
        for path in sorted((image_folder / split).rglob("*.jpg")):
            image = path.rename(image_folder / split / f"{path.parent.name} {path.name}")
            lines.append(f"{image.name},{path.parent.name}")
        label_file = image_folder / "label" / name
        label_file.parent.mkdir(exist_ok=True)
        label_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for folder in sorted((image_folder / split).iterdir()):
            if folder.is_dir():
                folder.rmdir()
    return image_folder
