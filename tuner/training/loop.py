"""The training loop: a generator that advances a state its caller owns, report by report."""

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import tee

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tuner.data.augment import augment_batch, evaluation_batch, to_device
from tuner.data.index import ImageIndex
from tuner.errors import CheckpointError
from tuner.files import is_disk_error
from tuner.training.average import update_average
from tuner.training.confusion import balanced_top1
from tuner.training.evaluate import evaluate
from tuner.training.feed import BatchSource, device_batches
from tuner.training.memory import forget_peak, has_margin, keep_freed_memory
from tuner.training.optim import learning_rate
from tuner.training.plan import PlannedStep, Recipe, next_report, plan_steps
from tuner.training.result import EpochResult, build_result, failed_result
from tuner.training.state import TrainState, no_sums
from tuner.training.step import Prepare, step_seed, train_step

# No setting: a score must not depend on a trial's slices. 64 images fit a CPU's cache: 1.3 times
# the speed of 128 (resnet8_s2 at 64 px).
EVALUATION_BATCH_SIZE = {"cpu": 64, "cuda": 256}
STEPS_PER_CHECK = 50  # how often the device is waited for to see a diverged run


def fit(
    state: TrainState,
    *,
    loader: BatchSource,
    train: ImageIndex,
    validation: ImageIndex,
    recipe: Recipe,
    until_samples: int,
    save: Callable[[TrainState], None] | None = None,
    checkpoint_every_s: float = math.inf,
) -> Generator[EpochResult, None, None]:
    """Train `state` until a report is due at or past `until_samples`, yielding every report.

    A report falls due at the first step at or past a multiple of `recipe.report_samples`, and at
    the end of the budget, `recipe.epochs` passes. `save` is called before each report, and
    between two steps when `checkpoint_every_s` seconds have passed. Reports, saves, stops and
    starts change no weight. An error is told by a last result with a `reason`, and not raised.

    Raises:
        CheckpointError: `save` could not write.
        OSError: A disk is full or fails.
    """
    state.model.train()
    set_up_device(state.device)
    end = next_report(until_samples - 1, recipe, len(train))
    with closing(_feed(state, loader, train, recipe, end)) as feed:
        while state.samples_seen < end:
            try:
                _train_to_report(state, feed, train, recipe, save, checkpoint_every_s)
                result = _report(state, loader, train, validation, recipe)
                if result.reason is None:
                    state.history.append(result.to_plain())
                    state.sums = no_sums(state.device)
                    if save is not None:
                        save(state)
            except CheckpointError:
                raise  # no fault of the run's: it goes on from the checkpoint before
            except Exception as error:
                if is_disk_error(error):
                    raise
                result = failed_result(state, recipe, len(train), error)
            yield result
            if result.reason is not None:
                return


def _feed(
    state: TrainState, loader: BatchSource, train: ImageIndex, recipe: Recipe, end: int
) -> Generator[tuple[PlannedStep, Tensor], None, None]:
    """Yield the steps to the first at or past `end`, each with its images.

    Images are read ahead of the training; where it mines, to the end of the epoch, whose losses
    have to be known before the next is planned.
    """
    while state.samples_seen < end:
        if state.mining is None:
            plan = plan_steps(state.samples_seen, end, train.keys, recipe)
        else:
            plan = state.mining.steps(state.samples_seen, end, train, recipe)
        read, trained = tee(plan)
        requests = (step.positions for step in read)
        with closing(device_batches(loader, train.split, requests, state.device)) as batches:
            yield from zip(trained, batches, strict=False)  # what is read ends with the plan


def _train_to_report(
    state: TrainState,
    feed: Iterator[tuple[PlannedStep, Tensor]],
    train: ImageIndex,
    recipe: Recipe,
    save: Callable[[TrainState], None] | None,
    checkpoint_every_s: float,
) -> None:
    """Take steps until a report is due, or the loss is seen to be no number."""
    due = next_report(state.samples_seen, recipe, len(train))
    clock = saved_at = time.perf_counter()
    while state.samples_seen < due:
        step, images = next(feed)
        waited = time.perf_counter()
        take_step(state, step, images, train, recipe)
        done = time.perf_counter()
        state.sums.data_wait_s += waited - clock
        state.sums.train_s += done - waited
        if state.optimizer_steps % STEPS_PER_CHECK == 0 and not state.sums.totals.isfinite().all():
            return
        # Where a report is due, only the save that holds it may be found by a resumed run.
        is_due = done - saved_at >= checkpoint_every_s and state.samples_seen < due
        if save is not None and is_due:
            save(state)
            saved_at = done
        clock = time.perf_counter()


def take_step(
    state: TrainState, step: PlannedStep, images: Tensor, train: ImageIndex, recipe: Recipe
) -> None:
    """Take one optimizer step on `images`, uint8 (n, size, size, 3), and add it to the sums."""
    num_images = len(images)
    is_whole = num_images == min(recipe.batch_size, len(train))  # no short last one of an epoch
    # The middle of the step: neither the first step nor the last has a learning rate of 0.
    lr = learning_rate(
        state.samples_seen - state.samples_skipped + num_images / 2,
        total_samples=recipe.epochs * len(train),
        peak_lr=recipe.peak_lr,
        schedule=recipe.schedule,
        warmup_fraction=recipe.warmup_fraction,
    )
    for group in state.optimizer.param_groups:
        group["lr"] = lr
    outcome = train_step(
        state.model,
        state.optimizer,
        state.scaler,
        partial(_prepare_training, state, recipe, step.epoch, train.keys[step.positions], images),
        to_device(train.labels[step.positions], state.device),
        micro_batch_size=state.micro_batch_size,
        seed=step_seed(recipe.seed, state.samples_seen),
        autocast_dtype=state.autocast_dtype,
        label_smoothing=recipe.label_smoothing,
        clip_norm=recipe.clip_norm,
        has_room=_first_room(state) if is_whole else None,
    )
    state.asks_for_room &= not is_whole
    # A loss that is no number stays in the sum: it is the flag of a diverged run.
    state.sums.totals += torch.stack([outcome.losses.sum(dtype=torch.float64), outcome.num_correct])
    if state.mining is not None:
        state.mining.note(step.positions, outcome.cross_entropy)
    state.sums.num_images += num_images
    state.micro_batch_size = outcome.micro_batch_size
    state.samples_seen += num_images
    if outcome.is_skipped:
        state.samples_skipped += num_images
        return
    state.optimizer_steps += 1
    if state.average is not None:
        assert recipe.ema_decay is not None
        update_average(
            state.average, state.model, decay=recipe.ema_decay, num_steps=state.optimizer_steps
        )


def _first_room(state: TrainState) -> Callable[[], bool] | None:
    """Return what the first whole step asks whether its slices leave memory free."""
    if not state.asks_for_room:
        return None
    weight_bytes = sum(weight.nbytes for weight in state.model.parameters())
    coming_bytes = 0 if state.optimizer.state else 2 * weight_bytes  # Adam keeps two for each
    return partial(has_margin, state.device, coming_bytes)


def _prepare_training(
    state: TrainState,
    recipe: Recipe,
    epoch: int,
    keys: NDArray[np.uint64],
    images: Tensor,
    rows: slice,
) -> Tensor:
    return augment_batch(
        images[rows].to(state.device, non_blocking=True),
        keys[rows],
        seed=recipe.seed,
        epoch=epoch,
        augment=recipe.augment,
        dtype=state.autocast_dtype or torch.float32,
    )


def _report(
    state: TrainState,
    loader: BatchSource,
    train: ImageIndex,
    validation: ImageIndex,
    recipe: Recipe,
) -> EpochResult:
    waited = time.perf_counter()
    loss_sum, num_correct = state.sums.totals.tolist()  # waits for the device
    started = time.perf_counter()
    state.sums.train_s += started - waited
    if not math.isfinite(loss_sum):
        message = f"training loss is {loss_sum} after {state.samples_seen} images"
        return build_result(state, recipe, len(train), reason="diverged", message=message)
    found = evaluate(
        state.model if state.average is None else state.average,
        evaluation_batches(
            loader,
            validation,
            device=state.device,
            dtype=state.autocast_dtype,
            image_size_px=recipe.augment.image_size_px,
        ),
        device=state.device,
        autocast_dtype=state.autocast_dtype,
    )
    if not math.isfinite(found.loss_sum):
        message = f"validation loss is {found.loss_sum} after {state.samples_seen} images"
        return build_result(state, recipe, len(train), reason="diverged", message=message)
    state.predictions = found.predictions
    return build_result(
        state,
        recipe,
        len(train),
        evaluate_s=time.perf_counter() - started,
        train_loss=loss_sum / state.sums.num_images,
        train_top1=num_correct / state.sums.num_images,
        validation_loss=found.loss_sum / found.num_evaluated,
        top1=found.num_correct_top1 / found.num_evaluated,
        top5=found.num_correct_top5 / found.num_evaluated,
        balanced_top1=balanced_top1(validation.labels, found.predictions.numpy()),
        num_correct=found.num_correct_top1,
        num_evaluated=found.num_evaluated,
    )


def evaluation_batches(
    loader: BatchSource,
    index: ImageIndex,
    *,
    device: torch.device,
    dtype: torch.dtype | None,
    image_size_px: int,
) -> Iterator[tuple[Prepare, Tensor]]:
    """Yield the images of a split as `evaluate` takes them, in their order.

    Args:
        loader: Reads them.
        index: The split.
        device: Where they are evaluated.
        dtype: What is computed in; None is fp32.
        image_size_px: Side of the centre that the model sees.
    """
    batch_size = EVALUATION_BATCH_SIZE[device.type]
    everything = np.arange(len(index))
    requests = [everything[start:][:batch_size] for start in range(0, len(index), batch_size)]

    def prepare(images: Tensor, rows: slice) -> Tensor:
        return evaluation_batch(
            images[rows].to(device, non_blocking=True),
            image_size_px=image_size_px,
            dtype=dtype or torch.float32,
        )

    with closing(device_batches(loader, index.split, requests, device)) as batches:
        for positions, images in zip(requests, batches, strict=True):
            yield partial(prepare, images), to_device(index.labels[positions], device)


def set_up_device(device: torch.device) -> None:
    """Make a GPU's kernels repeatable and a CPU's memory cheap.

    cudnn.benchmark stays off: it chooses kernels by their time, so a resumed run could choose
    others than the run it goes on with, and end with other bits.
    """
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        forget_peak(device)
        return
    keep_freed_memory()
