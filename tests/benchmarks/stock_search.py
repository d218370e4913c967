"""The search that a competent user writes from the documentation of Ray Tune, Optuna and PyTorch.

    python tests/benchmarks/stock_search.py IMAGES REPORTS.json TRIALS EPOCHS NUM_WORKERS

IMAGES holds `train/` and `val/`. Model, optimizer, space and length are those of
`search_spaces/cifar10.yaml`; all else is stock. Every trial's reports are written to REPORTS.json,
with the same time stamps as ours (`slot_times.py`). `stock_ray.py` compares the two.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from slot_times import SLOTS
from torch import nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from tuner.data.augment import MEAN, STD
from tuner.training.models import build_model
from tuner.training.optim import build_optimizer, learning_rate

SEED = 0  # as ours by default, of proposals and of weights


def main() -> None:
    images, to = Path(sys.argv[1]).absolute(), Path(sys.argv[2])
    trials, epochs, num_workers = map(int, sys.argv[3:])
    ray.init(num_cpus=SLOTS)
    try:
        with tempfile.TemporaryDirectory() as storage:
            results = build_tuner(images, storage, trials, epochs, num_workers).fit()
            assert not results.num_errors, results.errors
            histories = [result.metrics_dataframe.to_json(orient="records") for result in results]
    finally:
        ray.shutdown()
    to.write_text(json.dumps([json.loads(history) for history in histories]))


def build_tuner(
    images: Path, storage: str, trials: int, epochs: int, num_workers: int
) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={
            "lr": tune.loguniform(1e-3, 1),
            "batch_size": tune.choice([32, 64, 128, 256]),
            "weight_decay": tune.loguniform(1e-5, 1e-2),
            "label_smoothing": tune.uniform(0, 0.2),
            "images": str(images),
            "epochs": epochs,
            "num_workers": num_workers,
        },
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(metric="top1", mode="max", seed=SEED),
            scheduler=ASHAScheduler(
                time_attr="training_iteration",
                metric="top1",
                mode="max",
                max_t=epochs,
                grace_period=1,
                reduction_factor=3,
            ),
            num_samples=trials,
            max_concurrent_trials=SLOTS,
        ),
        run_config=tune.RunConfig(name="stock", storage_path=storage),
    )


def train(config: dict[str, Any]) -> None:
    """Trains one trial, with a report and a checkpoint after every epoch."""
    started_at = time.time()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    train_loader, validation_loader = build_loaders(config)
    # Not `.classes`: cloudpickle would take the word for the module torch.classes, and fail on it.
    num_classes = len(train_loader.dataset.class_to_idx)
    model = build_model("resnet8", num_classes, image_size_px=32, ghost_batch_size=32)
    model = model.to(memory_format=torch.channels_last)
    optimizer = build_optimizer(
        model, name="sgd", lr=config["lr"], momentum=0.9, weight_decay=config["weight_decay"]
    )
    stamps = {
        "worker_pid": os.getpid(),
        "started_at": started_at,
        "setup_s": time.time() - started_at,
    }
    for epoch in range(config["epochs"]):
        train_s, data_wait_s = train_epoch(model, optimizer, train_loader, epoch, config)
        evaluated = time.perf_counter()
        top1 = evaluate(model, validation_loader)
        evaluate_s = time.perf_counter() - evaluated
        with tempfile.TemporaryDirectory() as folder:
            weights = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({"epoch": epoch, **weights}, Path(folder) / "checkpoint.pt")
            tune.report(
                {
                    **stamps,
                    "top1": top1,
                    "samples_seen": (epoch + 1) * len(train_loader.dataset),
                    "train_s": train_s,
                    "data_wait_s": data_wait_s,
                    "evaluate_s": evaluate_s,
                    "seconds": train_s + data_wait_s + evaluate_s,
                    "reported_at": time.time(),
                },
                checkpoint=tune.Checkpoint.from_directory(folder),
            )


def build_loaders(config: dict[str, Any]) -> tuple[DataLoader, DataLoader]:
    images = Path(config["images"])
    settle = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    vary = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    train_set = datasets.ImageFolder(images / "train", transforms.Compose([*vary, *settle]))
    validation_set = datasets.ImageFolder(images / "val", transforms.Compose(settle))
    options = {
        "num_workers": config["num_workers"],
        "persistent_workers": config["num_workers"] > 0,
    }
    return (
        DataLoader(train_set, batch_size=config["batch_size"], shuffle=True, **options),
        DataLoader(validation_set, batch_size=config["batch_size"], **options),
    )


def train_epoch(
    model: nn.Module, optimizer: Optimizer, loader: DataLoader, epoch: int, config: dict[str, Any]
) -> tuple[float, float]:
    """Trains one pass; returns seconds of training and of waiting for data."""
    num_images = len(loader.dataset)
    seen = epoch * num_images
    train_s = data_wait_s = 0.0
    model.train()
    clock = time.perf_counter()
    for images, labels in loader:
        waited = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(
                seen + len(images) / 2,
                total_samples=config["epochs"] * num_images,
                peak_lr=config["lr"],
                schedule="cosine",
                warmup_fraction=0.1,
            )
        optimizer.zero_grad()
        logits = model(images.to(memory_format=torch.channels_last))
        smoothing = config["label_smoothing"]
        functional.cross_entropy(logits, labels, label_smoothing=smoothing).backward()
        optimizer.step()
        seen += len(images)
        done = time.perf_counter()
        data_wait_s += waited - clock
        train_s += done - waited
        clock = done
    return train_s, data_wait_s


@torch.inference_mode()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    """Returns the share of all validation images whose class is found."""
    model.eval()
    correct = 0
    for images, labels in loader:
        logits = model(images.to(memory_format=torch.channels_last))
        correct += int((logits.argmax(1) == labels).sum())
    return correct / len(loader.dataset)


if __name__ == "__main__":
    main()
