"""A running stage for people: a view at the bottom of a terminal, a few lines in a pipe."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from threading import RLock
from types import TracebackType
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live

from tuner.reporting.live_parts import (
    StageView,
    draw,
    visible,
)
from tuner.reporting.plain_lines import PlainLines
from tuner.reporting.progress import Failure, Figures, StageProgress
from tuner.reporting.terminal import CONSOLE, HEAD_COLUMNS
from tuner.study.record import Record, Report

REFRESH_PER_S = 2


class LiveView:
    """Shows a stage from `__enter__` to `__exit__`, told of what happens by the main thread.

    In a terminal it is redrawn twice a second, leaves nothing behind, and lets lines that are
    printed meanwhile scroll by above it. Elsewhere it prints a line at each further twentieth of
    the stage, for each trial that becomes the best, and for the first failures.

    Args:
        record: The stage's trials, those of earlier starts too.
        stage: ``search`` or ``confirm``.
        rungs: Lengths in images, the last one the full length.
        num_images: Training images.
        expected_samples: Images that the stage will train, a guess.
        parameters: Dotted keys of the settings that are shown.
        images_per_s: Measured speed of one slot; None where unknown.
        seconds_left: Until the stage ends with whatever is done by then.
    """

    def __init__(
        self,
        record: Record,
        *,
        stage: str,
        rungs: Sequence[int],
        num_images: int,
        expected_samples: int,
        num_trials: int,
        slots: int,
        parameters: Sequence[str],
        images_per_s: float | None,
        seconds_left: float = inf,
        console: Console = CONSOLE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage = StageView(
            name=stage,
            metric=record.metric,
            rungs=tuple(rungs),
            num_images=num_images,
            num_trials=num_trials,
            num_slots=slots,
            parameters=tuple(parameters),
        )
        self._progress = StageProgress(
            record,
            rungs=rungs,
            expected_samples=expected_samples,
            slots=slots,
            images_per_s=images_per_s,
            seconds_left=seconds_left,
            clock=clock,
        )
        self._console = console
        # Rich draws from its own thread, and from this one with every line printed: that may be a
        # signal handler's, while the lock is held here.
        self._lock = RLock()
        self._live: Live | None = None
        self._lines: PlainLines | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        console = self._console
        # A dumb terminal cannot move its cursor, another encoding has no bars.
        if console.is_terminal and not console.is_dumb_terminal and not console.options.ascii_only:
            self._live = Live(
                self, console=console, refresh_per_second=REFRESH_PER_S, transient=True
            )
            self._live.start(refresh=True)
        else:
            self._lines = PlainLines(self._stage, self._progress.figures())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = self._lines = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the view's lines, to the terminal's size."""
        yield from draw(self._stage, self._figures(), options.max_width, options.size.height)

    def begin(self, trial_number: int, settings: Mapping[str, Any], samples_seen: int) -> None:
        """Tells that a job began in a free slot."""
        with self._lock:
            self._progress.begin(trial_number, settings, samples_seen)

    def report(self, trial_number: int, result: Report, *, goes_on: bool) -> None:
        """Tells that a report has been recorded; without `goes_on` its job left its slot."""
        with self._lock:
            failure = self._progress.report(trial_number, result, goes_on=goes_on)
        if result.get("message"):
            self._say(f"{self._stage.noun} {trial_number:3d}  {visible(result['message'])}")
        self._say_news(failure)

    def fail(self, trial_number: int, reason: str, message: str, *, is_final: bool) -> None:
        """Tells that a job failed; unless it `is_final`, the trial will be tried again."""
        failure = Failure(trial_number, reason, message, is_final)
        with self._lock:
            self._progress.fail(failure)
        self._say_news(failure)

    def lost(self, trial_numbers: Iterable[int]) -> None:
        """Tells that jobs were taken back because the engine was lost."""
        with self._lock:
            self._progress.lost(trial_numbers)

    def _figures(self) -> Figures:
        with self._lock:
            return self._progress.figures()

    def _say_news(self, failure: Failure | None) -> None:
        if self._lines is not None:
            for line in self._lines.news(self._figures(), failure):
                self._say(line)

    def _say(self, line: str) -> None:
        encoding = self._console.encoding
        headed = f"{self._stage.name:<{HEAD_COLUMNS}}{line}"
        sayable = headed.encode(encoding, "replace").decode(encoding)
        self._console.print(sayable, markup=False, highlight=False, emoji=False, soft_wrap=True)
