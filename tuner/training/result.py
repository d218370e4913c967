"""What a run reports: scores, times, or why it ended."""

import math
import resource
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from tuner.errors import TunerError
from tuner.training.memory import is_out_of_memory
from tuner.training.plan import Recipe, nominal_samples
from tuner.training.state import TrainState


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One report. Scores are fractions; times are since the report before.

    A run that failed ends with a result of the same form: `reason` is ``diverged``,
    ``out_of_memory`` or ``error``, `message` says more, and what was not measured is NaN.
    """

    samples_seen: int
    nominal_samples: int  # the multiple of the report length, or the budget, that it counts for
    epoch: float
    learning_rate: float
    micro_batch_size: int
    train_s: float
    data_wait_s: float
    images_per_s: float
    peak_memory_bytes: int  # of the device; on a CPU of the whole process
    evaluate_s: float
    seconds: float  # the three times together
    train_loss: float = math.nan
    train_top1: float = math.nan
    validation_loss: float = math.nan
    top1: float = math.nan
    top5: float = math.nan
    balanced_top1: float = math.nan  # the mean over classes, however many images each has
    num_correct: int = 0
    num_evaluated: int = 0
    reason: str | None = None
    message: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as values that strict JSON takes: None stands for NaN, infinity."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def build_result(
    state: TrainState, recipe: Recipe, num_images: int, *, evaluate_s: float = 0.0, **measured: Any
) -> EpochResult:
    """Return the report of the state as it stands, with what was `measured` besides."""
    sums = state.sums
    busy_s = sums.train_s + sums.data_wait_s
    return EpochResult(
        samples_seen=state.samples_seen,
        nominal_samples=nominal_samples(state.samples_seen, recipe, num_images),
        epoch=state.samples_seen / num_images,
        learning_rate=state.optimizer.param_groups[0]["lr"],
        micro_batch_size=state.micro_batch_size,
        train_s=sums.train_s,
        data_wait_s=sums.data_wait_s,
        evaluate_s=evaluate_s,
        seconds=busy_s + evaluate_s,
        images_per_s=sums.num_images / busy_s if busy_s else 0.0,
        peak_memory_bytes=peak_memory_bytes(state.device),
        **measured,
    )


def failed_result(
    state: TrainState, recipe: Recipe, num_images: int, error: Exception
) -> EpochResult:
    """Return the last report of a run that `error` has ended."""
    reason = "out_of_memory" if is_out_of_memory(error) else "error"
    message = describe_error(error)
    return build_result(state, recipe, num_images, reason=reason, message=message)


def describe_error(error: Exception) -> str:
    """Return one line that says what went wrong and, where it may be a bug, in which line."""
    if isinstance(error, TunerError):
        return str(error)
    first_line = (str(error).splitlines() or [""])[0]
    if is_out_of_memory(error):
        return first_line
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"{type(error).__name__}: {first_line} ({where})"


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory so far, of the device; on a CPU of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
