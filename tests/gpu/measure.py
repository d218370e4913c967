"""Images per second of training steps on one GPU, as JSON.

    PYTHONPATH=. python tests/gpu/measure.py measured.json

resnet18 at 224 px in the device's usual precision: ghost against plain BatchNorm, and 1, 2 and 4
slices of the same step. About two minutes.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torchvision.models import resnet18

from tuner.data.augment import Augment, augment_batch, stored_size_px, to_device
from tuner.data.keyed import stable_keys
from tuner.training.ghost_norm import use_ghost_batch_norm
from tuner.training.optim import build_optimizer
from tuner.training.step import micro_batch_size, train_step

CLASSES, GHOST_BATCH_SIZE, REPEATS = 100, 32, 5


def images_per_s(
    device: torch.device, *, is_ghost: bool, slices: int, batch_size: int, size: int, steps: int
) -> dict[str, Any]:
    """Return the median and range over repeats, whole steps with augmentation, and memory."""
    torch.manual_seed(0)
    model: nn.Module = resnet18(num_classes=CLASSES)
    if is_ghost:
        use_ghost_batch_norm(model, GHOST_BATCH_SIZE)
    model = model.to(device).to(memory_format=torch.channels_last)
    optimizer = build_optimizer(model, name="sgd", lr=0.01, momentum=0.9, weight_decay=1e-4)
    scaler = GradScaler(device.type, enabled=False)
    augment = Augment(crop="resized", flip=True, rotate90=False, image_size_px=size)
    stored = stored_size_px("resized", size)
    pixels = torch.randint(0, 256, (batch_size, stored, stored, 3), dtype=torch.uint8)
    if device.type == "cuda":
        pixels = pixels.pin_memory()
        torch.cuda.reset_peak_memory_stats(device)
    keys, labels = stable_keys(map(str, range(batch_size))), np.arange(batch_size) % CLASSES
    micro = micro_batch_size(batch_size, slices, GHOST_BATCH_SIZE)

    def take_steps(num_steps: int) -> float:
        started = time.perf_counter()
        for step in range(num_steps):

            def prepare(rows: slice, step: int = step) -> Tensor:
                images = pixels[rows].to(device, non_blocking=True)
                return augment_batch(
                    images, keys[rows], seed=0, epoch=step, augment=augment, dtype=torch.bfloat16
                )

            train_step(
                model, optimizer, scaler, prepare, to_device(labels, device),
                micro_batch_size=micro, seed=step, autocast_dtype=torch.bfloat16,
            )  # fmt: skip
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    take_steps(max(1, steps // 4))
    rates = [batch_size * steps / take_steps(steps) for _ in range(REPEATS)]
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return {
        "norm": "ghost" if is_ghost else "plain",
        "slices": -(-batch_size // micro),
        "images_per_s": statistics.median(rates),
        "images_per_s_range": [min(rates), max(rates)],
        "peak_memory_bytes": peak,
    }


def main() -> None:
    to = Path(sys.argv[1])
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if has_gpu else "cpu")
    shape = {"batch_size": 512, "size": 224, "steps": 20}
    if not has_gpu:  # to see that it runs; no figure
        shape = {"batch_size": 64, "size": 32, "steps": 1}
    torch.backends.cudnn.deterministic = True
    rows = [
        images_per_s(device, is_ghost=is_ghost, slices=slices, **shape)
        for is_ghost, slices in ((False, 1), (True, 1), (True, 2), (True, 4))
    ]
    measured = {
        "device": torch.cuda.get_device_name(device) if has_gpu else "cpu",
        "torch": torch.__version__,
        "model": "resnet18",
        "precision": "bf16",
        **shape,
        "rows": rows,
    }
    to.write_text(json.dumps(measured, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
