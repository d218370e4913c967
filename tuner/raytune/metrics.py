"""The last report of a running trial, as metrics that Ray serves to Prometheus."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ray.util.metrics import Gauge

# Of a report; Ray serves each as ray_tuner_<name>.
DESCRIPTIONS = {
    "top1": "Validation images classified right by the first guess, as a fraction of 1.",
    "top5": "Validation images whose class is among the first five guesses, as a fraction of 1.",
    "balanced_top1": "Mean over the classes of the share classified right by the first guess.",
    "validation_loss": "Mean loss of a validation image, in nats.",
    "train_loss": "Mean loss of a training image since the report before, in nats.",
    "images_per_s": "Training images a second, evaluation left out.",
    "peak_memory_bytes": "Most memory so far, in bytes: of the GPU, without one of the process.",
    "samples_seen": "Training images seen since the trial began.",
}
TAGS = ("trial", "stage")
# Ray exports a value once and forgets it two exports later (2.60: every 10 s, at least 1 s), while
# the next report may be minutes away.
REPEAT_EVERY_S = 1.0


@contextmanager
def shown_metrics(trial_number: int, stage: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Gives what shows a report of a trial; its figures stay until the end, and then go.

    Those of ended trials go because a search has thousands; Prometheus keeps what it has read.
    Whatever happens to a metric, the trial goes on.

    Args:
        trial_number: Of the search or, apart, of the confirm runs.
        stage: "search" or "confirm".
    """
    tags = {"trial": str(trial_number), "stage": stage}
    last: dict[str, float] = {}
    has_ended = threading.Event()

    def set_gauges() -> None:
        with suppress(Exception):
            for name, value in last.items():
                Gauge(f"tuner_{name}", DESCRIPTIONS[name], TAGS).set(value, tags)

    def repeat() -> None:
        while not has_ended.wait(REPEAT_EVERY_S):
            set_gauges()

    def show(report: Mapping[str, Any]) -> None:
        nonlocal last
        last = {name: report[name] for name in DESCRIPTIONS if report.get(name) is not None}
        set_gauges()

    repeater = threading.Thread(target=repeat, name="metrics", daemon=True)
    with suppress(RuntimeError):  # no thread to be had
        repeater.start()
    try:
        yield show
    finally:
        has_ended.set()
        with suppress(RuntimeError):
            repeater.join()
