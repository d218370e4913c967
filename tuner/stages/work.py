"""The training that a search asks for, as numbers."""

from itertools import product
from pathlib import Path

from tuner.assemble import checkpoint_bytes, weight_copies
from tuner.data.generated import IMAGES_PER_KIND
from tuner.data.index import load_splits
from tuner.data.things import THINGS
from tuner.planning.cost import Work
from tuner.stages.opening import Search


def plan_work(search: Search, num_images: int, num_validation: int, num_classes: int) -> Work:
    """Returns the training that the search asks for on so many images.

    Raises:
        SettingsError: There is no such model, or it cannot take such images.
    """
    config = search.config
    rungs = search.rungs(num_images)
    keys = ("optim.name", "optim.momentum")
    optimizers = (
        config.with_overrides(dict(zip(keys, values, strict=True)))
        for values in product(*map(search.possible_values, keys))
    )
    largest = max(optimizers, key=lambda each: weight_copies(each.optim))
    sizes = (
        checkpoint_bytes(largest.with_overrides({"model.name": name}), num_classes)
        for name in search.possible_values("model.name")
    )
    return Work(
        num_images=num_images,
        num_validation=num_validation,
        report_samples=config.report_samples(num_images),
        rungs=rungs[-1:] if config.search.scheduler == "none" else rungs,
        reduction_factor=config.search.reduction_factor,
        trials=config.search.trials,
        confirm_runs=min(config.search.confirm_top, config.search.trials)
        * config.search.confirm_seeds,
        checkpoint_bytes=max(sizes),
    )


def count_images(search: Search) -> tuple[int, int, int]:
    """Returns how many training images, validation images and classes there seem to be.

    Files are listed and not opened.

    Raises:
        DataError: There is no folder of images that can be listed.
    """
    data = search.config.data
    if data.source == "generated":
        num_classes = len(THINGS)
        counts = [num_classes * number for number in IMAGES_PER_KIND.values()]
    else:
        assert data.root is not None
        splits = load_splits(
            Path(data.root),
            validation_fraction=data.validation_fraction,
            split_seed=data.split_seed,
        )
        num_classes = len(splits.train.classes)
        counts = [len(splits.train), len(splits.validation)]
    num_images, num_validation = (min(count, data.limit or count) for count in counts)
    return num_images, num_validation, num_classes
