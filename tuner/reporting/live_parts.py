"""A stage's figures as lines for people: the whole view of a terminal, and its parts as text."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Any

from rich.text import Text

from tuner.reporting.progress import NUM_BEST, NUM_FAILURES, Failure, Figures, Standing
from tuner.reporting.terminal import metric_text

STAGES = ("prepare", "measure", "search", "confirm", "hand over")
METRIC_NAMES = {
    "top1": "top-1",
    "top5": "top-5",
    "balanced_top1": "balanced top-1",
    "validation_loss": "loss",
}
NUM_HEAD = 3
FEW_SLOTS = 4
MORE_SLOTS = 4
GAP = 2
# A setting's column: most numbers fit, so that the columns stay where they are; four fit beside
# the score into 80 columns.
NARROW_WIDTH = 8
MAX_WIDTH = 20
MAX_FUNNEL_WIDTH = 60
NUM_FIXED = 4  # columns before the settings
LEFT = (0, 3)  # columns of words
STATE_STYLES = {"complete": "green", "running": "cyan", "stopped": "dim", "waiting": "yellow"}
NOTHING = "–"

Row = list[Text]


@dataclass(frozen=True, slots=True)
class StageView:
    """What stays the same while a stage runs.

    Args:
        name: One of `STAGES`.
        rungs: Lengths in images, the last one the full length.
        num_images: Training images, by which lengths are read as epochs.
        parameters: Dotted keys of the settings that are shown.
    """

    name: str
    metric: str
    rungs: Sequence[int]
    num_images: int
    num_trials: int
    num_slots: int
    parameters: Sequence[str]

    @property
    def noun(self) -> str:
        """What a training is called here."""
        return "run" if self.name == "confirm" else "trial"

    def epochs(self, samples: int) -> str:
        """A length as epochs."""
        return short(samples / self.num_images)


@dataclass(frozen=True, slots=True)
class Room:
    """How many lines each part gets, by the terminal's height alone, so that they stay."""

    best: int
    slots: int
    rungs: int
    failures: int
    gaps: int


def visible(text: str) -> str:
    """One line in which nothing can move the cursor or change a color."""
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))


def short(value: Any) -> str:
    """A setting in few characters: three digits of a float."""
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"
    return visible(str(value))


def score_text(metric: str, score: float | None) -> str:
    """A score: percent, or a loss to three decimals."""
    return NOTHING if score is None else metric_text(metric, score)


def failure_line(stage: StageView, failure: Failure) -> str:
    """A failed attempt as one line."""
    what = "failed" if failure.is_final else "tried again"
    why = f"{failure.reason}, {failure.message}" if failure.message else failure.reason
    return f"{stage.noun} {failure.trial_number:3d}  {what}: {visible(why)}"


def counts_text(stage: StageView, figures: Figures) -> str:
    """How many trials there are and what became of them."""
    counts = ", ".join(f"{count:,} {state}" for state, count in figures.counts.items())
    return f"{figures.num_begun:,} of {stage.num_trials:,} {stage.noun}s: {counts}"


def images_text(figures: Figures) -> str:
    """How far the stage is."""
    done, expected = figures.done_samples, figures.expected_samples
    return f"{100 * done // expected:3d} %  {done:,} of {expected:,} images"


def speed_text(figures: Figures) -> str:
    """The speed of all slots together; empty before it is known."""
    speed = figures.images_per_s
    return "" if speed is None else f"{speed:,.0f} images/s"


def time_text(figures: Figures, text: Callable[[float], str]) -> str:
    """The time taken and the time to go."""
    left = "" if figures.left_s is None else f", {text(figures.left_s)} left"
    return f"{text(figures.elapsed_s)}{left}"


def clock_text(seconds: float) -> str:
    """Hours, minutes and seconds, which tick in place."""
    return str(timedelta(seconds=round(seconds)))


def setting_names(parameters: Sequence[str]) -> list[str]:
    """The last parts of the dotted keys, and the whole key where two end alike."""
    lasts = [key.rpartition(".")[2] for key in parameters]
    times = Counter(lasts)
    return [last if times[last] == 1 else key for key, last in zip(parameters, lasts, strict=True)]


def draw(stage: StageView, figures: Figures, width: int, height: int) -> list[Text]:
    """The view as fewer lines than the terminal has, none of which wraps."""
    room = make_room(stage, height)
    tables = _tables(stage, figures, room)
    slots, best = _columns(stage, tables, width)
    failures = list(figures.failures)[max(0, len(figures.failures) - room.failures) :]
    parts = [
        _head(stage, figures, width),
        _funnel(stage, figures, width)[len(stage.rungs) - room.rungs :],
        slots,
        best,
        [Text(failure_line(stage, each), "red") for each in failures],
    ]
    parts = [part for part in parts if part]
    lines = [
        line
        for k, part in enumerate(parts)
        for line in ([Text(), *part] if 0 < k <= room.gaps else part)
    ]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return lines[: max(1, height - 1)]


def make_room(stage: StageView, height: int) -> Room:
    """Divides the lines below the head: best trials first, slots beyond a few and gaps last."""
    left = height - 1 - NUM_HEAD
    taken = {}
    wanted = {
        "best": 1 + min(NUM_BEST, stage.num_trials),
        "slots": 1 + min(FEW_SLOTS, stage.num_slots),
        "rungs": len(stage.rungs) if len(stage.rungs) > 1 else 0,
        "failures": NUM_FAILURES,
        "more": min(MORE_SLOTS, max(0, stage.num_slots - FEW_SLOTS)),
    }
    for part, lines in wanted.items():
        taken[part] = max(0, min(lines, left))
        left -= taken[part]
    return Room(
        best=taken["best"],
        slots=taken["slots"] + taken["more"],
        rungs=taken["rungs"],
        failures=taken["failures"],
        gaps=left,
    )


def _head(stage: StageView, figures: Figures, width: int) -> list[Text]:
    """Three lines: the stages and the time, the bar, the counts and the speed."""
    now = STAGES.index(stage.name)
    stages = Text("  ").join(
        Text(f"✓ {name}", "green")
        if k < now
        else Text(f"● {name}", "bold cyan")
        if k == now
        else Text(f"○ {name}", "dim")
        for k, name in enumerate(STAGES)
    )
    images = Text(" " * GAP + images_text(figures))
    share = figures.done_samples / figures.expected_samples
    bar = _bar(share, max(0, width - images.cell_len), "━", "─")
    return [
        _spread(stages, Text(time_text(figures, clock_text)), width),
        bar.append_text(images),
        _spread(Text(counts_text(stage, figures)), Text(speed_text(figures)), width),
    ]


def _funnel(stage: StageView, figures: Figures, width: int) -> list[Text]:
    """A line for each rung: its length, the trials that reached it, and a bar of them."""
    names = [f"epoch {stage.epochs(rung)}" for rung in stage.rungs]
    counts = [f"{count:,}" for count in figures.reached]
    names_width, counts_width = max(map(len, names)), max(map(len, counts))
    heads = [
        f"{name:{names_width}}  {count:>{counts_width}} {'trial ' if count == '1' else 'trials'}  "
        for name, count in zip(names, counts, strict=True)
    ]
    bar_width = min(MAX_FUNNEL_WIDTH, max(0, width - len(heads[0])))
    most = max(*figures.reached, 1)
    return [
        Text(head).append_text(_bar(count / most, bar_width, "█", " "))
        for head, count in zip(heads, figures.reached, strict=True)
    ]


def _bar(share: float, width: int, full: str, rest: str) -> Text:
    num_full = int(share * width)
    return Text(full * num_full, "cyan").append(rest * (width - num_full), "dim")


def _spread(left: Text, right: Text, width: int) -> Text:
    """One line that ends with `right`; `left` is cut to what remains."""
    left.truncate(max(0, width - right.cell_len - GAP), overflow="ellipsis", pad=True)
    return left.append(" " * GAP).append_text(right) if left else right


def _tables(stage: StageView, figures: Figures, room: Room) -> tuple[list[Row], list[Row]]:
    """What runs in the slots, and the best trials, each with a header."""
    num_busy = sum(each is not None for each in figures.slots)
    slots = figures.slots
    if len(slots) >= room.slots:
        slots = sorted(slots, key=lambda each: each is None)
    full = stage.epochs(stage.rungs[-1])
    running = [
        _row(stage, each, f"{each.samples_seen / stage.num_images:.1f} of {full}")
        if each
        else [Text("idle", "dim")]
        for each in slots
    ]
    best = [_row(stage, each, stage.epochs(each.samples_seen)) for each in figures.best]
    return (
        [_header(stage, f"{num_busy} of {stage.num_slots} slots"), *running][: room.slots],
        [_header(stage, "best"), *best][: room.best],
    )


def _header(stage: StageView, title: str) -> Row:
    names = [METRIC_NAMES[stage.metric], "epoch", "state", *setting_names(stage.parameters)]
    return [Text(title, "bold"), *(Text(name, "dim") for name in names)]


def _row(stage: StageView, trial: Standing, epoch: str) -> Row:
    cells = [
        f"{stage.noun} {trial.trial_number}",
        score_text(stage.metric, trial.score),
        epoch,
        trial.state,
        *(short(trial.settings.get(key)) for key in stage.parameters),
    ]
    styles = {1: "green", 3: STATE_STYLES.get(trial.state, "")}
    return [Text(cell, styles.get(k, "")) for k, cell in enumerate(cells)]


def _columns(stage: StageView, tables: Sequence[Sequence[Row]], width: int) -> list[list[Text]]:
    """The tables as lines, their columns one below the other; what does not fit is left out."""
    widths = _widths(stage, tables, width)
    ends = list(accumulate(widths, lambda end, each: end + GAP + each))
    fitting = sum(end + (0 if end == ends[-1] else GAP + 1) <= width for end in ends)
    left_out = Text(" " * GAP + "…", "dim") if fitting < len(ends) else Text()
    return [
        [
            _line(row[:fitting], widths).append_text(left_out if row is table[0] else Text())
            for row in table
        ]
        for table in tables
    ]


def _widths(stage: StageView, tables: Sequence[Sequence[Row]], width: int) -> list[int]:
    """Each column's width: of its name and values, or of its values where that is too wide."""
    epochs = f"0.0 of {stage.epochs(stage.rungs[-1])}"
    least = [len(text) for text in ("0 of 0 slots", "99.9 %", epochs, "complete")]
    least += [NARROW_WIDTH] * len(stage.parameters)
    narrow, wide = list(least), list(least)
    for table in tables:
        for row in table:
            for k, cell in enumerate(row):
                is_name = row is table[0] and k >= NUM_FIXED
                wide[k] = max(wide[k], cell.cell_len if is_name else min(cell.cell_len, MAX_WIDTH))
                if not is_name:
                    narrow[k] = max(narrow[k], min(cell.cell_len, MAX_WIDTH))
    return wide if sum(wide) + GAP * (len(wide) - 1) <= width else narrow


def _line(row: Row, widths: Sequence[int]) -> Text:
    """A row, its numbers to the right."""
    for k, cell in enumerate(row):
        cell.truncate(widths[k], overflow="ellipsis")
        cell.align("left" if k in LEFT else "right", widths[k])
    return Text(" " * GAP).join(row)
