"""The images of a test, prepared as a command does it but without a word."""

from pathlib import Path

from tuner.data.prepare import PreparedData
from tuner.images import prepare_images
from tuner.settings.config import Config


def prepare_quietly(config: Config, cache_root: Path, folder: Path | None = None) -> PreparedData:
    """Return the images, their record in `folder`, or else in `cache_root`."""
    return prepare_images(
        config,
        cache_root,
        report_path=(folder or cache_root) / "dataset.json",
        num_processes=1,
        progress=lambda done, total: None,
    )
