"""What a person sees while a run goes on: a bar in a terminal, plain lines in a pipe."""

import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


class PatientConsole(Console):
    """Goes quiet where the reader of a pipe is gone: a search does not end with it."""

    def on_broken_pipe(self) -> None:
        """Lets what is still to be said go nowhere; rich would exit."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


CONSOLE = PatientConsole(highlight=False, soft_wrap=True)

HEAD_COLUMNS = 10
SHARES = ("top1", "top5", "balanced_top1")

Report = Mapping[str, Any]


def say(line: str) -> None:
    """Prints one line, above a bar where there is one; `?` for what the output cannot encode."""
    line = line.encode(CONSOLE.encoding, "replace").decode(CONSOLE.encoding)
    CONSOLE.print(line, markup=False, emoji=False)


def say_under(head: str, *lines: str) -> None:
    """Prints lines beside one head: the name of a stage, or what the lines are about.

    In a terminal they are wrapped to its width.
    """
    columns = CONSOLE.width - HEAD_COLUMNS if CONSOLE.is_terminal else sys.maxsize
    for line in lines:
        for part in textwrap.wrap(
            line, max(columns, 20), break_long_words=False, break_on_hyphens=False
        ):
            say(f"{head:<{HEAD_COLUMNS}}{part}")
            head = ""


def count_text(count: int, noun: str) -> str:
    """A count for people: ``1 run``, ``4 runs``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration_text(seconds: float) -> str:
    """A time for people, to about two digits: ``8 s``, ``2 min 40 s``, ``5 h 10 min``."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes = round(total / 60)
    if minutes < 60:
        return f"{total // 60} min {total % 60} s"
    return f"{minutes // 60} h {minutes % 60} min"


def bytes_text(count: int) -> str:
    """A size for people, in powers of 1,000."""
    if count < 999.5e6:  # from there on it would be 1000 MB
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e9:.1f} GB"


def score_text(report: Report) -> str:
    """The scores of a report for people: percent, and losses to three digits."""
    return (
        f"top-1 {100 * report['top1']:5.1f} %  top-5 {100 * report['top5']:5.1f} %  "
        f"loss {report['validation_loss']:.3f}  {report['images_per_s']:.0f} images/s"
    )


def metric_text(metric: str, value: float | None, *, unit: bool = True) -> str:
    """A score for people: a share in percent, a loss to three digits."""
    if value is None:
        return "none"
    if metric in SHARES:
        return f"{100 * value:.1f}{' %' if unit else ''}"
    return f"{value:.3f}"


def interval_text(metric: str, low: float, high: float) -> str:
    """A 90 % interval of a score for people."""
    return f"{metric_text(metric, low, unit=False)} to {metric_text(metric, high)}, 9 times in 10"


@contextmanager
def counting(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar to be told (done, total); it appears with the first count and goes when it ends."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=CONSOLE,
        transient=True,
        disable=not CONSOLE.is_terminal,
    ) as progress:
        bar = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


@contextmanager
def training_bar(
    total_samples: int, samples_seen: Callable[[], int]
) -> Iterator[Callable[[Report], None]]:
    """A bar over the images of a run, to be told each report.

    Args:
        total_samples: Images of the whole run.
        samples_seen: Read whenever the bar is drawn.
    """
    progress = TrainingProgress(samples_seen)
    progress.add_task("training", total=total_samples, completed=samples_seen(), scores="")
    with progress:
        yield progress.tell


class SpeedColumn(ProgressColumn):
    """Images a second over the last half minute, once there is something to go by."""

    def render(self, task: Task) -> str:
        """The speed as text."""
        return f"{task.speed:.0f} images/s" if task.speed else ""


class TrainingProgress(Progress):
    """Draws how many images a run has seen, read at each drawing, and the last report."""

    def __init__(self, samples_seen: Callable[[], int]) -> None:
        self._samples_seen = samples_seen
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            SpeedColumn(),
            TextColumn("{task.fields[scores]}"),
            TimeRemainingColumn(compact=True),
            console=CONSOLE,
            disable=not CONSOLE.is_terminal,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yields the bar at where the run is now."""
        if self.task_ids:
            self.update(self.task_ids[0], completed=self._samples_seen())
        yield from super().get_renderables()

    def tell(self, report: Report) -> None:
        """Shows a report: in the bar, and as a line that stays."""
        scores = f"loss {report['validation_loss']:.3f}  top-1 {100 * report['top1']:.1f} %"
        self.update(TaskID(0), scores=scores)
        say(f"epoch {report['epoch']:6.2f}  {score_text(report)}")
