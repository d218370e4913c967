"""Prepares the small images of `image_folder`, whole or damaged; cuts texts into lines."""

from pathlib import Path
from typing import Any

from tuner.data.label_text import LINE_END, Line
from tuner.data.prepare import PreparedData, prepare_dataset

CUT = "not a readable image (Truncated File Read); "
EMPTY = "the file is empty (0 bytes); "
TEXT = "not an image of a known kind (JPEG, PNG, BMP, GIF, WEBP, TIFF, PPM, AVIF); "
REMEDY = "replace it or set data.on_bad_image=skip"


def run(root: Path, **changes: Any) -> PreparedData:
    """Prepare the images below `root` with settings that `changes` may replace."""
    settings = {
        "validation_fraction": 0.25,
        "split_seed": 0,
        "limit": None,
        "decoder": "cv2",
        "on_bad_image": "fail",
    }
    return prepare_dataset(root, **(settings | changes))


def spoil(root: Path) -> None:
    """Damage three images: two of training, one of validation."""
    cut = root / "train/class 1/3.jpg"
    cut.write_bytes(cut.read_bytes()[:200])
    (root / "train/class 10/0.jpg").write_bytes(b"")
    (root / "val/class 2/1.jpg").write_text("no image")


def lines_of(text: str) -> list[Line]:
    """Return the lines of a text as those of a label file come."""
    lines = enumerate(LINE_END.split(text), start=1)
    return [(number, line) for number, line in lines if line.strip(" \t")]
