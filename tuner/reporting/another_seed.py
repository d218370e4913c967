"""Whether one more run of a confirmed configuration scored as was to be expected, for people."""

from collections.abc import Mapping
from typing import Any

from tuner.reporting.terminal import interval_text, metric_text

ROUNDING = 1e-9  # where all seeds had one score, its mean may miss it by a last bit


def another_seed_text(confirmed: Mapping[str, Any], score: float, seed: int) -> str:
    """Returns whether the score is inside the interval that was stated.

    Args:
        confirmed: As `best.yaml` has it, with an interval.
        score: The best of the run.
        seed: Of the run.
    """
    metric, (low, high) = confirmed["metric"], confirmed["interval"]
    is_inside = low - ROUNDING <= score <= high + ROUNDING
    told = (
        f"seed {seed}: {metric_text(metric, score)}, {'inside' if is_inside else 'outside'} the "
        f"interval stated for one more run ({interval_text(metric, low, high)})"
    )
    if seed in confirmed["seeds"]:
        told += "; it is no fresh seed, but one that was confirmed on"
    return told
