"""The training of the stock searches: model, optimizer, length of `search_spaces/cifar10.yaml`.

A plain loop over batches of `plain_batches.py`. Every report is added to its trial's file of JSON
lines at once, with the same time stamps as ours (`slot_times.py`), so a search may be ended at any
moment.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from plain_batches import Batch, Batches, our_batches, prepare_ours, stock_batches
from torch import nn
from torch.nn import functional
from torch.optim import Optimizer

from tuner.training.models import build_model
from tuner.training.optim import build_optimizer, learning_rate

LR = (1e-3, 1.0)
BATCH_SIZES = (32, 64, 128, 256)
WEIGHT_DECAY = (1e-5, 1e-2)
LABEL_SMOOTHING = (0.0, 0.2)


@dataclass(frozen=True, slots=True)
class Setup:
    """A stock search, as its command line has it.

    Attributes:
        images: Folder with `train/` and `val/`.
        output: Folder that everything is written to.
        trials: Configurations tried; -1 is no end.
        seed: Of proposals and of weights; 0 by default, as ours.
        data_path: "stock", or "ours", this program's cache, loader and augmentation.
    """

    images: str
    output: str
    trials: int = -1
    epochs: int = 9
    num_workers: int = 0
    seed: int = 0
    data_path: str = "stock"

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> "Setup":
        given = dict(each.split("=", 1) for each in arguments)
        numbers = {key: int(given.pop(key)) for key in tuple(given) if key in NUMBERS}
        assert given.get("data_path", "stock") in ("stock", "ours"), given
        folders = {key: str(Path(given.pop(key)).absolute()) for key in ("images", "output")}
        return cls(**folders, **numbers, **given)

    def prepare(self) -> None:
        """Does what is done once, before the first trial."""
        self.reports.mkdir(parents=True)
        if self.data_path == "ours":
            prepare_ours(Path(self.images), self.prepared)

    def batches(self, batch_size: int) -> Batches:
        images = Path(self.images)
        if self.data_path == "ours":
            return our_batches(images, self.prepared, batch_size=batch_size, seed=self.seed)
        return stock_batches(images, batch_size=batch_size, num_workers=self.num_workers)

    @property
    def reports(self) -> Path:
        return Path(self.output) / "reports"

    @property
    def prepared(self) -> Path:
        return Path(self.output) / "prepared"


NUMBERS = ("trials", "epochs", "num_workers", "seed")


def train_epochs(
    settings: Mapping[str, Any], setup: Setup
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Trains one trial; yields its report, already written, and its weights after every epoch."""
    started_at = time.time()
    torch.set_num_threads(1)
    torch.manual_seed(setup.seed)
    batches = setup.batches(settings["batch_size"])
    model = build_model("resnet8", batches.num_classes, image_size_px=32, ghost_batch_size=32)
    model = model.to(memory_format=torch.channels_last)
    optimizer = build_optimizer(
        model, name="sgd", lr=settings["lr"], momentum=0.9, weight_decay=settings["weight_decay"]
    )
    stamps = {
        "worker_pid": os.getpid(),
        "started_at": started_at,
        "setup_s": time.time() - started_at,
    }
    file = setup.reports / f"{started_at:.6f}-{os.getpid()}.jsonl"
    for epoch in range(setup.epochs):
        train_s, data_wait_s = train_epoch(model, optimizer, batches, epoch, setup.epochs, settings)
        evaluated = time.perf_counter()
        top1 = evaluate(model, batches)
        evaluate_s = time.perf_counter() - evaluated
        report = {
            **stamps,
            "top1": top1,
            "samples_seen": (epoch + 1) * batches.num_train,
            "train_s": train_s,
            "data_wait_s": data_wait_s,
            "evaluate_s": evaluate_s,
            "seconds": train_s + data_wait_s + evaluate_s,
            "reported_at": time.time(),
        }
        with file.open("a") as lines:
            lines.write(json.dumps(report) + "\n")
        yield report, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def train_epoch(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Batches,
    epoch: int,
    epochs: int,
    settings: Mapping[str, Any],
) -> tuple[float, float]:
    """Trains one pass; returns seconds of training and of waiting for data."""
    seen = epoch * batches.num_train
    train_s = data_wait_s = 0.0
    model.train()
    clock = time.perf_counter()
    for batch in batches.train(epoch):
        waited = time.perf_counter()
        num_images = len(batch[0])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(
                seen + num_images / 2,
                total_samples=epochs * batches.num_train,
                peak_lr=settings["lr"],
                schedule="cosine",
                warmup_fraction=0.1,
            )
        take_step(model, optimizer, batch, settings["label_smoothing"])
        seen += num_images
        done = time.perf_counter()
        data_wait_s += waited - clock
        train_s += done - waited
        clock = done
    return train_s, data_wait_s


def take_step(model: nn.Module, optimizer: Optimizer, batch: Batch, label_smoothing: float) -> None:
    images, labels = batch
    optimizer.zero_grad()
    logits = model(images.to(memory_format=torch.channels_last))
    functional.cross_entropy(logits, labels, label_smoothing=label_smoothing).backward()
    optimizer.step()


@torch.inference_mode()
def evaluate(model: nn.Module, batches: Batches) -> float:
    """Returns the share of all validation images whose class is found."""
    model.eval()
    correct = 0
    for images, labels in batches.validation():
        logits = model(images.to(memory_format=torch.channels_last))
        correct += int((logits.argmax(1) == labels).sum())
    return correct / batches.num_validation
