"""Exact top-1, top-5 and loss over a list of images."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Counts and sums over the images evaluated; divide once, at the end."""

    num_correct_top1: int
    num_correct_top5: int
    num_evaluated: int
    loss_sum: float  # not finite where any logit is NaN or infinite: no score then


def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    device: torch.device,
    autocast_dtype: torch.dtype | None = None,
) -> Evaluation:
    """Return the counts over batches of images (n, 3, size, size) and labels (n,) on `device`.

    Top-5 is top-min(5, classes); the loss is plain cross-entropy. Parameters, buffers, RNG and
    the modules' modes stay as they are. The device is waited for once, at the end.
    """
    totals = torch.zeros(3, dtype=torch.float64, device=device)  # exact for counts below 2**53
    num_evaluated = 0
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with (
            torch.inference_mode(),
            torch.autocast(device.type, autocast_dtype, enabled=autocast_dtype is not None),
        ):
            for images, labels in batches:
                logits = model(images)
                logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
                ranks = label_ranks(logits, labels)
                loss = F.cross_entropy(logits, labels, reduction="none")
                totals += torch.stack([(ranks < 1).sum(), (ranks < 5).sum(), loss.double().sum()])
                num_evaluated += len(labels)
    finally:
        for module in training:
            module.training = True
    top1, top5, loss_sum = totals.tolist()
    return Evaluation(int(top1), int(top5), num_evaluated, loss_sum)


def label_ranks(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the place of each label among its row's logits, int64 (n,), 0 for the highest.

    Equal logits rank by class number, as a stable descending sort would; a NaN outranks none.
    """
    own = logits.gather(1, labels[:, None])
    lower_class = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    return ((logits > own) | ((logits == own) & lower_class)).sum(1)
