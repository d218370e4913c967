"""How far a model finds some classes and not others, for people."""

from collections.abc import Mapping
from typing import Any

from tuner.reporting.terminal import count_text, metric_text

UNEVEN = 0.01  # between top-1 and balanced top-1: one point


def is_uneven(scores: Mapping[str, Any]) -> bool:
    """Says whether top-1 and balanced top-1 are so far apart that people should see both."""
    return bool(abs(scores["top1"] - scores["balanced_top1"]) > UNEVEN)


def uneven_text(evaluation: Mapping[str, Any]) -> str:
    """Returns top-1 beside balanced top-1, and the class found least; nothing where they agree.

    Args:
        evaluation: As `summary.json` has it.
    """
    top1, balanced = evaluation["top1"], evaluation["balanced_top1"]
    if not is_uneven(evaluation):
        return ""
    rows = zip(
        evaluation["share_found"], evaluation["num_images"], evaluation["classes"], strict=True
    )
    # Of classes that are found alike, the one that has most images tells most.
    share, count, name = min(
        (row for row in rows if row[0] is not None), key=lambda row: (row[0], -row[1])
    )
    return (
        f"top-1 {metric_text('top1', top1)}, balanced top-1 {metric_text('top1', balanced)}; "
        f"class {name!r} is found least: {metric_text('top1', share)} of "
        f"{count_text(count, 'validation image')}"
    )
