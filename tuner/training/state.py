"""All that training moves, in one object that its caller owns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from tuner.training.average import start_average
from tuner.training.ghost_norm import ghost_size
from tuner.training.mining import MiningState
from tuner.training.step import micro_batch_size


@dataclass(slots=True)
class RunningSums:
    """What has been summed since the last report."""

    totals: Tensor  # (2,) float64 on the device: loss, number correct
    num_images: int = 0
    train_s: float = 0.0
    data_wait_s: float = 0.0


@dataclass(slots=True)
class TrainState:
    """A run between two optimizer steps.

    The place in the data and every random number are functions of the seed and `samples_seen`,
    so no generator and no loader has a state to keep.
    """

    model: nn.Module
    optimizer: Optimizer
    scaler: GradScaler
    device: torch.device
    autocast_dtype: torch.dtype | None
    micro_batch_size: int  # images of one slice; halved where memory ran out
    sums: RunningSums
    average: nn.Module | None = None  # of the weights over the steps, where one is kept
    mining: MiningState | None = None  # where it comes back to hard images
    asks_for_room: bool = True  # whether the next whole step halves slices that leave none free
    samples_seen: int = 0
    samples_skipped: int = 0  # of steps that fp16 skipped: the schedule stands still for them
    optimizer_steps: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)  # reports, as plain values
    predictions: Tensor | None = None  # the last report's, int32 (validation images,), on the CPU

    def to_plain(self) -> dict[str, Any]:
        """Return everything needed to go on, as plain values and the live tensors themselves."""
        return {
            "model": self.model.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "micro_batch_size": self.micro_batch_size,
            "totals": self.sums.totals,
            "num_images": self.sums.num_images,
            "train_s": self.sums.train_s,
            "data_wait_s": self.sums.data_wait_s,
            "samples_seen": self.samples_seen,
            "samples_skipped": self.samples_skipped,
            "optimizer_steps": self.optimizer_steps,
            "history": self.history,
            "predictions": self.predictions,
            "mining": self.mining and self.mining.to_plain(),
        }

    def restore(self, plain: Mapping[str, Any]) -> None:
        """Go back to where `to_plain` was called, whatever device its tensors are on."""
        self.model.load_state_dict(plain["model"])
        if self.average is not None:
            self.average.load_state_dict(plain["average"])
        self.optimizer.load_state_dict(plain["optimizer"])
        if plain["scaler"]:  # empty where the run did not scale, as on a CPU before it
            self.scaler.load_state_dict(plain["scaler"])
        self.micro_batch_size = plain["micro_batch_size"]
        self.asks_for_room = False  # of a run that goes on the slices are known
        self.sums = RunningSums(
            totals=plain["totals"].to(self.device, copy=True),
            num_images=plain["num_images"],
            train_s=plain["train_s"],
            data_wait_s=plain["data_wait_s"],
        )
        self.samples_seen = plain["samples_seen"]
        self.samples_skipped = plain.get("samples_skipped", 0)
        self.optimizer_steps = plain["optimizer_steps"]
        self.history = list(plain["history"])
        self.predictions = plain.get("predictions")  # came with a later version
        if self.mining is not None:
            self.mining.restore(plain["mining"])


def start_state(
    build_model: Callable[[], nn.Module],
    build_optimizer: Callable[[nn.Module], Optimizer],
    *,
    device: torch.device,
    precision: str,
    batch_size: int,
    accumulate_steps: int | str,
    seed: int,
    is_averaged: bool = False,
) -> TrainState:
    """Return a run at its start; `seed` draws the model's first weights.

    `precision` is ``auto`` (fp32 on a CPU, bf16 on a GPU that has it, else fp16), ``fp32``,
    ``bf16`` or ``fp16``; fp16 alone scales its gradients. `accumulate_steps` ``auto`` begins with
    one slice. The first step halves slices until a GPU has some memory to spare. `is_averaged`
    keeps a running average of the weights.

    Raises:
        SettingsError: The model cannot be copied, to be averaged.
    """
    torch.manual_seed(seed)
    model = build_model().to(device).to(memory_format=torch.channels_last)
    dtype = autocast_dtype(precision, device)
    return TrainState(
        model=model,
        optimizer=build_optimizer(model),
        scaler=GradScaler(device.type, enabled=dtype is torch.float16),
        device=device,
        autocast_dtype=dtype,
        micro_batch_size=micro_batch_size(batch_size, accumulate_steps, ghost_size(model)),
        sums=no_sums(device),
        average=start_average(model) if is_averaged else None,
    )


def trained_weights(plain: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint that its scores are of: the average where one is kept."""
    weights: dict[str, Tensor] = plain.get("average") or plain["model"]
    return weights


def no_sums(device: torch.device) -> RunningSums:
    """Return sums over nothing."""
    return RunningSums(torch.zeros(2, dtype=torch.float64, device=device))


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """Return what `train.precision` computes in on a device; None is fp32."""
    if precision == "auto":
        if device.type != "cuda":
            return None
        return torch.bfloat16 if torch.cuda.is_bf16_supported(False) else torch.float16
    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
