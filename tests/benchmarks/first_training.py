"""One configuration: this project beside a plain hand-written PyTorch loop.

    python tests/benchmarks/first_training.py FOLDER results/benchmarks/first_training.json

FOLDER holds the unpacked `cifar10-small/`. Both train the same net from the same first weights with
the same optimizer, schedule and number of images, on one thread and without loader workers, in
turns, three seeds. The plain loop is what most people write: ImageFolder, a DataLoader,
torchvision transforms, plain BatchNorm over the batch, no checkpoints.
"""

import json
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from tuner.assemble import TrainingRun, open_run
from tuner.data.augment import MEAN, STD
from tuner.images import prepare_images
from tuner.planning.environment import git_commit, processor, versions
from tuner.reading import build_loader
from tuner.settings.load import load_space
from tuner.training.ghost_norm import GhostBatchNorm2d
from tuner.training.models import build_model
from tuner.training.optim import learning_rate

SEEDS = (0, 1, 2)
EPOCHS = 4
SETTINGS = [f"train.epochs={EPOCHS}", "optim.lr=0.1", "train.batch_size=128"]


def main() -> None:
    images, to = Path(sys.argv[1]) / "cifar10-small", Path(sys.argv[2])
    torch.set_num_threads(1)
    rows = []
    for seed in SEEDS:
        plain = train_plainly(images, seed)
        ours = train_ours(images, seed)
        rows.append({"seed": seed, "plain": plain, "ours": ours})
        print(json.dumps(rows[-1]), flush=True)
    ratios = [row["ours"]["images_per_s"] / row["plain"]["images_per_s"] for row in rows]
    figures = {
        "command": f"python tests/benchmarks/first_training.py FOLDER {to}",
        "settings": SETTINGS,
        "machine": {"processor": processor(), "threads": 1},
        "versions": versions(),
        "git_commit": git_commit(),
        "seeds": rows,
        "images_per_s_ratio_ours_to_plain": round(statistics.mean(ratios), 3),
        "mean_top1": {
            who: round(statistics.mean(row[who]["top1"] for row in rows), 4)
            for who in ("plain", "ours")
        },
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")


def train_ours(images: Path, seed: int) -> dict[str, float]:
    config = load_space(
        "cifar10", ["data.source=folder", f"data.root={images}", f"train.seed={seed}", *SETTINGS]
    ).config
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_images(
            config,
            Path(folder),
            report_path=Path(folder) / "dataset.json",
            num_processes=2,
            progress=lambda done, total: None,
        )
        started = time.perf_counter()
        run: TrainingRun = open_run(
            config,
            data,
            build_loader(config, data, Path(folder)),
            Path(folder) / "c",
            on_damaged=print,
        )
        with closing(run.results(run.total_samples)) as results:
            last = list(results)[-1]
    seconds = time.perf_counter() - started
    return {
        "top1": last.top1,
        "seconds": round(seconds, 2),
        "images_per_s": round(EPOCHS * len(data.train) / seconds, 1),
    }


def train_plainly(images: Path, seed: int) -> dict[str, float]:
    torch.manual_seed(seed)
    settle = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    vary = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    train_set = datasets.ImageFolder(images / "train", transforms.Compose([*vary, *settle]))
    validation_set = datasets.ImageFolder(images / "val", transforms.Compose(settle))
    loader = DataLoader(train_set, batch_size=128, shuffle=True)
    validation = DataLoader(validation_set, batch_size=128)
    started = time.perf_counter()
    model = plain_resnet8(len(train_set.classes)).to(memory_format=torch.channels_last)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.SGD(
        [{"params": decayed, "weight_decay": 5e-4}, {"params": rest}],
        lr=0.1,
        momentum=0.9,
        nesterov=True,
    )
    seen = 0
    for _ in range(EPOCHS):
        model.train()
        for batch, labels in loader:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(
                    seen + len(batch) / 2,
                    total_samples=EPOCHS * len(train_set),
                    peak_lr=0.1,
                    schedule="cosine",
                    warmup_fraction=0.1,
                )
            optimizer.zero_grad()
            logits = model(batch.to(memory_format=torch.channels_last))
            nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            seen += len(batch)
        top1 = evaluate_plainly(model, validation)
    seconds = time.perf_counter() - started
    return {"top1": top1, "seconds": round(seconds, 2), "images_per_s": round(seen / seconds, 1)}


def evaluate_plainly(model: nn.Module, validation: DataLoader) -> float:
    model.eval()
    correct = 0
    with torch.no_grad():
        for batch, labels in validation:
            logits = model(batch.to(memory_format=torch.channels_last))
            correct += int((logits.argmax(1) == labels).sum())
    return correct / len(validation.dataset)


def plain_resnet8(num_classes: int) -> nn.Module:
    """Our resnet8 with plain BatchNorm in every place of the ghost one."""
    model = build_model("resnet8", num_classes, image_size_px=32, ghost_batch_size=32)
    for module in model.modules():
        if isinstance(module, GhostBatchNorm2d):
            module.__class__ = nn.BatchNorm2d
    return model


if __name__ == "__main__":
    main()
