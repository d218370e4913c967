"""From settings to the objects of one training run: settings stop here.

A search's trial and a retraining are the same run in different folders.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tuner.data.augment import Augment
from tuner.data.mining import Mining
from tuner.data.prepare import PreparedData
from tuner.reading import ClosableSource
from tuner.settings.config import Config
from tuner.settings.sections import MiningConfig, OptimConfig
from tuner.training.checkpoint import CheckpointFolder
from tuner.training.feed import BatchSource
from tuner.training.loop import fit
from tuner.training.mining import start_mining
from tuner.training.model_check import check_classifier
from tuner.training.models import build_model, is_from_outside
from tuner.training.optim import build_optimizer
from tuner.training.plan import Recipe
from tuner.training.result import EpochResult
from tuner.training.state import TrainState, start_state
from tuner.training.weights import WeightsFit, load_weights

# Of a tensor or a report beside its numbers; at most 420 in models of 10 to 727 tensors, 2026-12.
ENTRY_BYTES = 512
PREDICTION_BYTES = 4
MINING_BYTES = 12  # of an image: its loss, and its position among the hard ones
CHECKPOINT_EVERY_S = 60.0  # a kill in a long epoch costs at most this much work


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One configuration between its first image and its last."""

    state: TrainState
    recipe: Recipe
    data: PreparedData
    loader: ClosableSource
    checkpoints: CheckpointFolder
    metric: str
    direction: str

    @property
    def total_samples(self) -> int:
        """Images of the whole run, over all epochs."""
        return self.recipe.epochs * len(self.data.train)

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The report with the best finite score, the earliest of equals; None without one."""
        scored = [report for report in self.state.history if report[self.metric] is not None]
        better = max if self.direction == "maximize" else min
        return better(scored, key=lambda report: report[self.metric], default=None)

    def results(
        self, until_samples: int, loader: BatchSource | None = None
    ) -> Generator[EpochResult, None, None]:
        """Trains on to `until_samples`; every result has its checkpoint before it is yielded.

        Args:
            until_samples: Images of the whole run by then.
            loader: Reads the batches instead of the run's own.
        """
        return fit(
            self.state,
            loader=loader or self.loader,
            train=self.data.train,
            validation=self.data.validation,
            recipe=self.recipe,
            until_samples=until_samples,
            save=self.save,
            checkpoint_every_s=CHECKPOINT_EVERY_S,
        )

    def save(self, state: TrainState) -> None:
        """Writes a checkpoint of `state`, that of the best report kept beside the newest two.

        Raises:
            CheckpointError: It cannot be written.
        """
        keep = [self.best["samples_seen"]] if self.best else []
        self.checkpoints.save(state.to_plain(), state.samples_seen, keep=keep)

    def what_is_lost(self, reported_samples: int) -> str:
        """Returns what to say where checkpoints are gone: they are behind the last report."""
        samples_seen, place = self.state.samples_seen, self.checkpoints.folder
        if samples_seen >= reported_samples:
            return ""
        if samples_seen == 0:
            return f"{place}: no checkpoint is left; training begins anew"
        return (
            f"{place}: the newest checkpoint is of {samples_seen} images and not of "
            f"{reported_samples}; training goes on from there"
        )


def open_run(
    config: Config,
    data: PreparedData,
    loader: ClosableSource,
    folder: Path,
    *,
    on_damaged: Callable[[str], None],
) -> TrainingRun:
    """Returns the run whose checkpoints lie in `folder`, at its newest one.

    Args:
        config: All settings.
        data: The images.
        loader: Reads them, at the size of the same settings.
        folder: Where checkpoints are and go; it need not exist.
        on_damaged: Told, in one line, of a checkpoint that is passed over.

    Raises:
        SettingsError: There is no such model, or it cannot take such images; or there is no
            checkpoint, and the first weights cannot be read.
    """
    checkpoints = CheckpointFolder(folder, on_damaged)
    found = checkpoints.newest()
    # A checkpoint brings its weights: the file of the first ones may be gone by now.
    start = config.with_overrides({"model.weights": None}) if found else config
    state = build_state(start, len(data.train.classes))
    recipe = build_recipe(config, len(data.train))
    if recipe.mining is not None:
        state.mining = start_mining(len(data.train), data.first_hard, state.device)
    if found:
        state.restore(found[1])
    return TrainingRun(
        state=state,
        recipe=recipe,
        data=data,
        loader=loader,
        checkpoints=checkpoints,
        metric=config.search.metric,
        direction=config.search.direction,
    )


def short_step_notes(batch_size: int, num_images: int) -> tuple[str, ...]:
    """Returns what there is to say of a batch above the number of training images: one line."""
    if batch_size <= num_images:
        return ()
    return (
        f"train.batch_size: {batch_size} is above the {num_images} training images; "
        "such an epoch is one short step",
    )


def mining_notes(config: Config, highest_ratio: float, *, is_told: bool) -> tuple[str, ...]:
    """Returns what there is to say of mining that never begins: one line.

    Args:
        config: All settings.
        highest_ratio: The highest `mining.ratio` that they may get.
        is_told: Whether hard images are known beforehand, so that the first epoch may be on them.
    """
    epochs, mining = config.train.epochs, config.mining
    begins = (
        mining.start_fraction <= epoch / epochs < mining.end_fraction
        for epoch in range(0 if is_told else 1, epochs)
    )
    if not highest_ratio or any(begins):
        return ()
    return (
        f"mining.ratio: no mining epoch begins between {mining.start_fraction:g} and "
        f"{mining.end_fraction:g} of train.epochs={epochs}; it changes nothing",
    )


def build_recipe(config: Config, num_images: int) -> Recipe:
    """Returns how to train on `num_images` images an epoch."""
    return Recipe(
        batch_size=config.train.batch_size,
        epochs=config.train.epochs,
        report_samples=config.report_samples(num_images),
        peak_lr=config.optim.lr,
        schedule=config.optim.schedule,
        warmup_fraction=config.optim.warmup_fraction,
        label_smoothing=config.train.label_smoothing,
        clip_norm=config.train.clip_norm,
        seed=config.train.seed,
        augment=Augment(
            crop=config.augment.crop,
            flip=config.augment.flip,
            rotate90=config.augment.rotate90,
            image_size_px=config.data.image_size,
        ),
        ema_decay=config.train.ema_decay,
        mining=build_mining(config.mining),
    )


def build_mining(mining: MiningConfig) -> Mining | None:
    """Returns how training comes back to hard images; None where it does not."""
    if not mining.ratio:
        return None
    return Mining(
        ratio=mining.ratio,
        hard_fraction=mining.hard_fraction,
        start_fraction=mining.start_fraction,
        end_fraction=mining.end_fraction,
    )


def check_model(config: Config, num_classes: int) -> WeightsFit | None:
    """Builds the model once, on the CPU, and looks at its outputs where it comes from outside.

    Returns:
        What of the weights file it got; None where there is none.

    Raises:
        SettingsError: There is no such model, it cannot take such images, or does not give finite
            outputs for each class; or the weights cannot be read or do not fit.
    """
    name, image_size_px = config.model.name, config.data.image_size
    net = build_net(config, num_classes)
    fit = load_first_weights(net, config)
    if fit is not None or is_from_outside(name):
        check_classifier(net, name, num_classes, image_size_px)
    return fit


def checkpoint_bytes(
    config: Config, *, num_classes: int, num_images: int, num_validation: int
) -> int:
    """Returns what a checkpoint has at most; the model is built once, on the CPU.

    Args:
        config: All settings.
        num_classes: Outputs of the model.
        num_images: Of training; what is known of each where the run mines.
        num_validation: Images whose predictions it holds.

    Raises:
        SettingsError: There is no such model, or it cannot take such images.
    """
    net = build_net(config, num_classes)
    state = list(net.state_dict().values())
    copies = list(net.parameters()) * (weight_copies(config.optim) - 1)
    if config.train.ema_decay is not None:
        copies += state
    num_reports = ceil(config.train.epochs / config.report_epochs)
    num_entries = len(state) + len(copies) + num_reports + 1
    tensor_bytes = sum(each.nbytes for each in (*state, *copies))
    image_bytes = PREDICTION_BYTES * num_validation
    if config.mining.ratio:
        image_bytes += MINING_BYTES * num_images
    return tensor_bytes + image_bytes + ENTRY_BYTES * num_entries


def weight_copies(optim: OptimConfig) -> int:
    """Returns how many numbers a checkpoint holds for each weight, the optimizer's among them."""
    if optim.name == "sgd":
        return 2 if optim.momentum else 1
    return 3


def build_net(config: Config, num_classes: int) -> nn.Module:
    """Returns the model of the settings, drawn from torch's generator: no file is read."""
    return build_model(
        config.model.name,
        num_classes,
        image_size_px=config.data.image_size,
        ghost_batch_size=config.model.ghost_batch_size,
    )


def load_first_weights(net: nn.Module, config: Config) -> WeightsFit | None:
    """Puts the weights of the settings' file into the model; returns what fitted, if any was named.

    Raises:
        SettingsError: They cannot be read, or do not fit.
    """
    if config.model.weights is None:
        return None
    return load_weights(net, config.model.name, Path(config.model.weights))


def build_first_net(config: Config, num_classes: int) -> nn.Module:
    """Returns the model of the settings as training begins with it, the weights of a file in it."""
    net = build_net(config, num_classes)
    load_first_weights(net, config)
    return net


def build_state(config: Config, num_classes: int, device: torch.device | None = None) -> TrainState:
    """Returns a run at its start, on the GPU where there is one and no device is given.

    Raises:
        SettingsError: There is no such model, it cannot take such images, or weights do not fit.
    """
    return start_state(
        partial(build_first_net, config, num_classes),
        partial(
            build_optimizer,
            name=config.optim.name,
            lr=config.optim.lr,
            momentum=config.optim.momentum,
            weight_decay=config.optim.weight_decay,
        ),
        device=device or torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        precision=config.train.precision,
        batch_size=config.train.batch_size,
        accumulate_steps=config.train.accumulate_steps,
        seed=config.train.seed,
        is_averaged=config.train.ema_decay is not None,
    )
