"""The optimizer, and the learning rate as a function of the images seen."""

import math

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer


def build_optimizer(
    model: nn.Module, *, name: str, lr: float, momentum: float, weight_decay: float
) -> Optimizer:
    """Return SGD with Nesterov momentum, Adam or AdamW over the model's parameters.

    Biases and the weights of norms, the parameters of one axis, are not decayed (He et al. 2018,
    arXiv:1812.01187). `momentum` is Adam's first beta. The step is torch's fused one.
    """
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if name == "sgd":
        sgd = SGD(groups, lr=lr, momentum=momentum, nesterov=momentum > 0, fused=True)
        # A first fused step that the scaler skips would leave what was in memory (torch 2.14).
        for parameter in parameters if momentum else ():
            sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    kinds = {"adam": Adam, "adamw": AdamW}
    return kinds[name](groups, lr=lr, betas=(momentum, 0.999), fused=True)


def learning_rate(
    samples_seen: float,
    *,
    total_samples: int,
    peak_lr: float,
    schedule: str,
    warmup_fraction: float,
) -> float:
    """Return the learning rate after `samples_seen` of `total_samples` images.

    It rises linearly over `warmup_fraction` of the budget, then follows `schedule`: ``cosine``
    falls to 0, ``constant`` stays, ``step`` divides by 10 at one half and at three quarters of
    the budget. Slices, accumulation and reports do not enter.
    """
    progress = samples_seen / total_samples
    if progress < warmup_fraction:
        return peak_lr * progress / warmup_fraction
    if schedule == "constant":
        return peak_lr
    if schedule == "step":
        return peak_lr * 0.1 ** ((progress >= 0.5) + (progress >= 0.75))
    assert schedule == "cosine"
    rest = (progress - warmup_fraction) / (1 - warmup_fraction)
    return peak_lr * 0.5 * (1 + math.cos(math.pi * min(rest, 1.0)))
