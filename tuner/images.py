"""From settings to images: where they lie, how they are listed, and that they are good."""

import os
from functools import partial
from pathlib import Path

from tuner.data.folder import list_folder
from tuner.data.generated import ensure_generated
from tuner.data.hard_labels import read_hard
from tuner.data.held_out import HeldOut, check_held_out, count_held_out
from tuner.data.index import load_splits
from tuner.data.labelled import list_csv, list_lines
from tuner.data.listing import ListImages
from tuner.data.prepare import PreparedData, ReadHard, prepare_dataset
from tuner.data.torchvision_set import REMEDY, ensure_written, list_set
from tuner.data.verify import Progress
from tuner.settings.config import Config

MINING_FILE = "label/mining_label.csv"
NOT_NOW = "a dry run downloads nothing; leave out dry_run=true, or run python -m tuner.dataset"
LABELLED = {"csv": list_csv, "list": list_lines, "torchvision": list_csv}


def images_root(config: Config, cache_root: Path, progress: Progress | None = None) -> Path:
    """Returns the folder that image paths are relative to; what is missing there is made.

    Raises:
        DataError: A set cannot be found, downloaded or written.
    """
    data = config.data
    cache_root = Path(data.cache_root or cache_root)
    if data.source == "generated":
        return ensure_generated(cache_root, progress)
    assert data.root is not None
    if data.source != "torchvision":
        return Path(data.root)
    assert data.dataset is not None
    return ensure_written(
        cache_root,
        name=data.dataset,
        root=Path(data.root),
        may_download=data.download,
        progress=progress,
    )


def count_listed(
    config: Config, cache_root: Path, *, may_download: bool, may_mine: bool
) -> tuple[int, int, int]:
    """Returns how many training images, validation images and classes there are to prepare.

    Files are listed, neither opened nor written; a set of torchvision is downloaded where the
    settings and `may_download` allow it.

    Raises:
        DataError: There are no images that can be listed.
    """
    data = config.data
    assert data.root is not None
    list_images = image_lister(config)
    if data.source == "torchvision":
        assert data.dataset is not None
        list_images = partial(
            list_set,
            name=data.dataset,
            cache_root=Path(data.cache_root or cache_root),
            may_download=data.download and may_download,
            remedy=NOT_NOW if data.download else REMEDY,
        )
    splits = load_splits(
        Path(data.root),
        validation_fraction=data.validation_fraction,
        split_seed=data.split_seed,
        list_images=list_images,
    )
    hard = hard_reader(config, Path(data.root), may_mine=may_mine)
    if hard is not None and data.source != "torchvision":  # whose files may not be there yet
        hard(splits.train)
    return len(splits.train), len(splits.validation), len(splits.train.classes)


def count_test_images(config: Config) -> int:
    """Returns how many images of the test split there are to prepare; 0 without one.

    Raises:
        DataError: There are none where the settings say.
    """
    data = config.data
    if data.test_root is None:
        return 0
    count = count_held_out(Path(data.test_root))
    return min(count, data.limit or count)


def image_lister(config: Config) -> ListImages:
    """Returns what lists the images below `images_root` with their classes."""
    data = config.data
    if data.source not in LABELLED:
        return list_folder
    train, validation = (
        os.path.expanduser(name) if name else None
        for name in (data.train_labels, data.validation_labels)
    )
    return partial(
        LABELLED[data.source],
        train_labels=train,
        validation_labels=validation,
        may_lack_images=data.on_bad_image == "skip",
    )


def hard_reader(config: Config, root: Path, *, may_mine: bool) -> ReadHard | None:
    """Returns what reads which training images are hard first; None where nothing needs it."""
    data = config.data
    name = data.mining_labels
    if name is None and data.source == "csv" and os.path.lexists(root / MINING_FILE):
        name = MINING_FILE
    is_needed = may_mine or config.mining.ratio
    return partial(read_hard, root, name=name) if name and is_needed else None


def prepare_images(
    config: Config,
    cache_root: Path,
    *,
    report_path: Path,
    num_processes: int,
    progress: Progress,
    may_mine: bool = False,
) -> PreparedData:
    """Returns the images of the settings, each opened once; makes a generated set if needed.

    Args:
        config: All settings.
        cache_root: Where sets of ours are kept.
        report_path: Where the record goes, `dataset.json`.
        num_processes: Processes that check.
        progress: Told as the work goes on.
        may_mine: Whether a trial may mine though `config` does not.

    Raises:
        DataError: The images cannot be used; one line for each reason.
    """
    root = images_root(config, cache_root, progress)
    return prepare_dataset(
        root,
        validation_fraction=config.data.validation_fraction,
        split_seed=config.data.split_seed,
        limit=config.data.limit,
        decoder=config.data.decoder,
        on_bad_image=config.data.on_bad_image,
        list_images=image_lister(config),
        read_hard=hard_reader(config, root, may_mine=may_mine),
        report_path=report_path,
        num_processes=num_processes,
        progress=progress,
    )


def prepare_held_out(
    config: Config,
    used: PreparedData,
    *,
    report_path: Path,
    num_processes: int,
    progress: Progress,
) -> HeldOut | None:
    """Returns the images of the test split, each opened once; None where the settings name none.

    Args:
        config: All settings.
        used: Training and validation, which none of them may be in.
        report_path: Where the verdicts go.
        num_processes: Processes that check.
        progress: Told as the work goes on.

    Raises:
        DataError: The images cannot be used; one line for each reason.
    """
    if config.data.test_root is None:
        return None
    return check_held_out(
        Path(config.data.test_root),
        used,
        limit=config.data.limit,
        split_seed=config.data.split_seed,
        decoder=config.data.decoder,
        on_bad_image=config.data.on_bad_image,
        report_path=report_path,
        num_processes=num_processes,
        progress=progress,
    )
