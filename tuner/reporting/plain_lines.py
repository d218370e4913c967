"""A running stage where nothing can be redrawn: a few plain lines."""

from collections.abc import Iterator

from tuner.reporting.live_parts import (
    METRIC_NAMES,
    StageView,
    counts_text,
    failure_line,
    images_text,
    score_text,
    setting_names,
    short,
    speed_text,
    time_text,
)
from tuner.reporting.progress import Failure, Figures, Standing
from tuner.reporting.terminal import duration_text

NUM_STEPS = 20
MAX_FAILURE_LINES = 10


class PlainLines:
    """Picks what is worth a line where nothing can be redrawn.

    At most twenty lines of progress, one for each trial and eleven about failures.
    """

    def __init__(self, stage: StageView, figures: Figures) -> None:
        self._stage = stage
        self._step = _step(figures)
        self._num_failures = 0
        self._praised = {trial.trial_number for trial in figures.best[:1]}

    def news(self, figures: Figures, failure: Failure | None) -> Iterator[str]:
        """Yields the lines that an event is worth."""
        if failure is not None:
            yield from self._failure_lines(failure)
        for trial in figures.best[:1]:
            if trial.trial_number not in self._praised:
                self._praised.add(trial.trial_number)
                yield f"best so far: {self._best_text(trial)}"
        if _step(figures) > self._step:
            self._step = _step(figures)
            yield self._progress_line(figures)

    def _failure_lines(self, failure: Failure) -> Iterator[str]:
        self._num_failures += 1
        if self._num_failures <= MAX_FAILURE_LINES:
            yield failure_line(self._stage, failure)
        elif self._num_failures == MAX_FAILURE_LINES + 1:
            yield "further failures are not shown"

    def _best_text(self, trial: Standing) -> str:
        stage = self._stage
        values = (short(trial.settings.get(key)) for key in stage.parameters)
        names = setting_names(stage.parameters)
        settings = "".join(f" {k}={v}" for k, v in zip(names, values, strict=True))
        score = score_text(stage.metric, trial.score)
        return (
            f"{stage.noun} {trial.trial_number:3d}  {METRIC_NAMES[stage.metric]} {score}"
            f" at epoch {stage.epochs(trial.samples_seen)} {settings}"
        )

    def _progress_line(self, figures: Figures) -> str:
        stage = self._stage
        best = [
            f"best {score_text(stage.metric, trial.score)} ({stage.noun} {trial.trial_number})"
            for trial in figures.best[:1]
        ]
        speed, taken = speed_text(figures), time_text(figures, duration_text)
        parts = [images_text(figures), counts_text(stage, figures), *best, speed, taken]
        return ", ".join(part for part in parts if part)


def _step(figures: Figures) -> int:
    return NUM_STEPS * figures.done_samples // figures.expected_samples
