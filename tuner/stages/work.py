"""The training that a search asks for, as numbers."""

from functools import partial
from itertools import product
from math import inf, sqrt

from tuner.assemble import checkpoint_bytes, weight_copies
from tuner.data.augment import stored_size_px
from tuner.data.cache import CacheHeader
from tuner.data.generated import IMAGES_PER_KIND
from tuner.data.things import THINGS
from tuner.images import count_listed
from tuner.planning.cost import Work
from tuner.settings.config import Config
from tuner.settings.sections import SearchConfig
from tuner.stages.opening import Search


def plan_work(search: Search, num_images: int, num_validation: int, num_classes: int) -> Work:
    """Returns the training that the search asks for on so many images.

    Raises:
        SettingsError: There is no such model, or it cannot take such images.
    """
    config = search.config
    rungs = search.rungs(num_images)
    return Work(
        num_images=num_images,
        num_validation=num_validation,
        report_samples=config.report_samples(num_images),
        rungs=rungs[-1:] if config.search.scheduler == "none" else rungs,
        reduction_factor=config.search.reduction_factor,
        trials=config.search.trials,
        confirm_runs=min(config.search.confirm_top, config.search.trials)
        * config.search.confirm_seeds,
        checkpoint_bytes=checkpoint_bytes(
            largest_step(search),
            num_classes=num_classes,
            num_images=num_images,
            num_validation=num_validation,
        ),
        search_budget_s=config.search.time_budget_s or inf,
        chance=chance_score(config.search, num_classes, num_validation),
    )


def chance_score(asked: SearchConfig, num_classes: int, num_validation: int) -> float:
    """Returns the score that a guess of the class stays below, but for one time in a thousand.

    -inf where `search.grace_epochs` is set, and for a metric that is no share of the images: then
    every rung counts as it is.
    """
    num_guesses = {"top1": 1, "balanced_top1": 1, "top5": 5}.get(asked.metric, num_classes)
    if asked.grace_epochs != "auto" or num_guesses >= num_classes:
        return -inf
    share = num_guesses / num_classes
    return share + 3 * sqrt(share * (1 - share) / num_validation)


def largest_step(search: Search) -> Config:
    """Returns the settings of the space whose steps need most: model, optimizer and batch.

    They are what is timed to know the speed of a trial, and its memory.

    Raises:
        SettingsError: There is no such model, or it cannot take such images.
    """
    largest = max(search.possible_values("train.batch_size"))
    found = search.config.with_overrides({"train.batch_size": largest})
    model_bytes = partial(checkpoint_bytes, num_classes=2, num_images=0, num_validation=0)
    for keys, size in (
        (("optim.name", "optim.momentum"), lambda config: weight_copies(config.optim)),
        (("model.name",), model_bytes),
        (("mining.ratio",), lambda config: config.mining.ratio),
    ):
        combinations = product(*map(search.possible_values, keys))
        candidates = [
            found.with_overrides(dict(zip(keys, values, strict=True))) for values in combinations
        ]
        found = max(candidates, key=size) if len(candidates) > 1 else candidates[0]
    return found


def stored_variants(search: Search) -> list[Config]:
    """Returns settings of the space for each size that it wants images decoded at."""
    size_px = search.config.data.image_size
    crops = search.possible_values("augment.crop")
    crop_of_size = {stored_size_px(crop, size_px): crop for crop in crops}
    return [search.config.with_overrides({"augment.crop": crop}) for crop in crop_of_size.values()]


def planned_decoded_bytes(search: Search, work: Work) -> int:
    """Returns what all images take on disk once they are decoded; 0 where that is not wanted."""
    if search.config.data.cache == "none":
        return 0
    num_images = work.num_images + work.num_validation
    sizes_px = (
        stored_size_px(config.augment.crop, config.data.image_size)
        for config in stored_variants(search)
    )
    return sum(CacheHeader("", num_images, size_px).num_bytes for size_px in sizes_px)


def count_images(search: Search, *, may_download: bool = True) -> tuple[int, int, int]:
    """Returns how many training images, validation images and classes there seem to be.

    Files are listed and not opened; what is missing is downloaded where the settings and
    `may_download` allow it.

    Raises:
        DataError: There are no images that can be listed.
    """
    data = search.config.data
    if data.source == "generated":
        num_classes = len(THINGS)
        counts = [num_classes * number for number in IMAGES_PER_KIND.values()]
    else:
        *counts, num_classes = count_listed(
            search.config,
            search.cache_root,
            may_download=may_download,
            may_mine=search.may_mine,
        )
    num_images, num_validation = (min(count, data.limit or count) for count in counts)
    return num_images, num_validation, num_classes
