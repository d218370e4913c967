"""Exact top-1, top-5 and loss over a list of images."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuner.training.memory import is_out_of_memory, release_memory
from tuner.training.step import Prepare


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Counts and sums over the images evaluated; divide once, at the end."""

    num_correct_top1: int
    num_correct_top5: int
    num_evaluated: int
    loss_sum: float  # not finite where any logit is NaN or infinite: no score then
    predictions: Tensor  # the class of each image in their order, int32 (n,), on the CPU


def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Prepare, Tensor]],
    *,
    device: torch.device,
    autocast_dtype: torch.dtype | None = None,
) -> Evaluation:
    """Return the counts over batches, each of labels (n,) on `device` and what makes its images.

    Top-1 counts the predictions, each the first of equal classes; top-5 is top-min(5, classes);
    the loss is plain cross-entropy. Parameters, buffers, RNG and the modules' modes stay as they
    are. The device is waited for once, at the end. Where memory runs out, batches are halved from
    there on; what was counted stays.

    Raises:
        torch.OutOfMemoryError: One image alone does not fit.
    """
    totals = torch.zeros(3, dtype=torch.float64, device=device)  # exact for counts below 2**53
    predictions = [torch.empty(0, dtype=torch.int32, device=device)]
    num_evaluated, most = 0, sys.maxsize
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        for prepare, labels in batches:
            first = 0
            while first < len(labels):
                rows = slice(first, min(first + most, len(labels)))
                found = _counts(model, prepare, labels, rows, autocast_dtype)
                if found is None:
                    most = half_of(rows.stop - first)
                    release_memory(device)
                    continue
                totals += found[0]
                predictions.append(found[1])
                first = rows.stop
            num_evaluated += len(labels)
    finally:
        for module in training:
            module.training = True
    top1, top5, loss_sum = totals.tolist()
    return Evaluation(int(top1), int(top5), num_evaluated, loss_sum, torch.cat(predictions).cpu())


@torch.inference_mode()
def _counts(
    model: nn.Module,
    prepare: Prepare,
    labels: Tensor,
    rows: slice,
    autocast_dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor] | None:
    """Return top-1, top-5 and the loss summed over the rows, (3,) float64, and the best classes.

    None: memory ran out.
    """
    try:
        with torch.autocast(labels.device.type, autocast_dtype, enabled=autocast_dtype is not None):
            logits = model(prepare(rows))
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            predictions = logits.argmax(1)  # of equal ones the first, as `label_ranks` has it
            is_correct = predictions == labels[rows]
            in_top5 = label_ranks(logits, labels[rows]) < 5
            loss = F.cross_entropy(logits, labels[rows], reduction="none")
            counts = torch.stack([is_correct.sum(), in_top5.sum(), loss.double().sum()])
            return counts, predictions.to(torch.int32)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def half_of(num_images: int) -> int:
    """Return how many images to try where memory ran out for `num_images`.

    Raises:
        torch.OutOfMemoryError: There is no smaller number.
    """
    if num_images == 1:
        raise torch.OutOfMemoryError("one image to evaluate does not fit in memory")
    return num_images // 2


def label_ranks(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the place of each label among its row's logits, int64 (n,), 0 for the highest.

    Equal logits rank by class number, as a stable descending sort would; a NaN outranks none.
    """
    own = logits.gather(1, labels[:, None])
    lower_class = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    return ((logits > own) | ((logits == own) & lower_class)).sum(1)
