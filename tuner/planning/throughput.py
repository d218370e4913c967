"""The search for speed: what is measured for how long, and which settings are pinned.

Pure: what measures, and the clock, are given.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from math import ceil
from typing import Any, Literal

from tuner.errors import RunError
from tuner.settings.space import IntSpec, ParameterSpec, edge_values

Settings = Mapping[str, Any]
# Given settings and seconds, one plain result for each process that measured beside the others:
# that of `tuner.probe.measure_speed`, or a `reason` and a `message`.
Measure = Callable[[Settings, float], Sequence[Mapping[str, Any]]]

NUM_WORKERS, PREFETCH_FACTOR = "loader.num_workers", "loader.prefetch_factor"
CHEAPEST_FIRST = (NUM_WORKERS, PREFETCH_FACTOR, "train.accumulate_steps")
IMAGES_FROM = "images_from"  # no setting: beside them it says whence a measurement has its images
MOST_CANDIDATES = 64
NO_LIMIT = 0.05  # of the speed may be lost to the images before they are said to limit it
WITHIN = 0.03  # of the best is as good as the best: less than that a short window cannot tell
WINDOWS = (1, 2, 4)  # how long those of each round are, as against each other
MIN_WINDOW_S = 0.3


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one candidate.

    Attributes:
        settings: The candidate.
        state: How it ended; ``not measured`` where the time was over first.
        images_per_s: Of all processes together, over all rounds; None if not measured.
        seconds: Measured by each process, on the mean.
        data_wait_share: Of the time, 0 to 1; None if not measured.
        peak_memory_bytes: Of the process that took most, in any round; None if not measured.
        micro_batch_size: Images of a slice, as memory allowed; None if not measured.
        rounds: Rounds it was measured in.
        reason: Of a failure: ``error``, ``out_of_memory`` or ``killed``.
        message: What the first process that failed said.
    """

    settings: Settings
    state: Literal["measured", "failed", "not measured"]
    images_per_s: float | None
    seconds: float
    data_wait_share: float | None
    peak_memory_bytes: int | None
    micro_batch_size: int | None
    rounds: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What came of the measurements: a row for each candidate, and the one that is pinned."""

    rows: tuple[Row, ...]
    pinned: Row
    images_per_s: float  # of the pinned settings, all processes together
    num_processes: int  # side by side

    @property
    def images_per_s_each(self) -> float:
        """Images per second of one process beside the others."""
        return self.images_per_s / self.num_processes


def candidates(
    specs: Mapping[str, ParameterSpec], fixed: Settings
) -> tuple[list[Settings], tuple[str, ...]]:
    """Returns the combinations to measure, the cheapest first, and what there is to say of them.

    Cheap is: few workers, then a small `prefetch_factor`, then few slices; so those of one loader
    come after each other. Without workers nothing is read ahead: only the smallest
    `prefetch_factor` is in. A key whose condition does not hold is left out. Above
    `MOST_CANDIDATES` combinations, so many evenly spread ones are in, and that is said.

    Args:
        specs: What is searched.
        fixed: The other settings, by dotted key.
    """
    values = {key: values_of(spec) for key, spec in specs.items()}
    found: dict[tuple[int, ...], Settings] = {}
    spread = {key: evenly_spread(each) for key, each in values.items()}
    for combination in product(*spread.values()):
        settings = _where_conditions_hold(dict(zip(specs, combination, strict=True)), specs)
        if not {**fixed, **settings}[NUM_WORKERS] and PREFETCH_FACTOR in settings:
            settings[PREFETCH_FACTOR] = min(spread[PREFETCH_FACTOR])
        found[_cost({**fixed, **settings})] = settings
    ordered = [found[cost] for cost in sorted(found)]
    if all(len(each) <= MOST_CANDIDATES for each in (ordered, *values.values())):
        return ordered, ()
    chosen = list(evenly_spread(ordered))
    note = (
        f"throughput: more than {MOST_CANDIDATES} combinations; "
        f"{len(chosen)} evenly spread ones are measured"
    )
    return chosen, (note,)


def values_of(spec: ParameterSpec) -> Sequence[Any]:
    """Returns the values of a spec: all of a range, of one over orders of magnitude doublings."""
    if not isinstance(spec, IntSpec):
        return edge_values(spec)  # every choice; a range of fractions is no number of processes
    if not spec.log:
        return range(spec.low, spec.high + 1, spec.step)
    doublings = [spec.low << times for times in range((spec.high // spec.low).bit_length())]
    return sorted({*doublings, spec.high})


def evenly_spread(values: Sequence[Any]) -> Sequence[Any]:
    """Returns `MOST_CANDIDATES` of the values, the first and the last in; all if there are less."""
    if len(values) <= MOST_CANDIDATES:
        return values
    last = MOST_CANDIDATES - 1
    return [values[place * (len(values) - 1) // last] for place in range(MOST_CANDIDATES)]


def choose(
    candidates: Sequence[Settings],
    measure: Measure,
    *,
    budget_s: float,
    clock: Callable[[], float],
) -> Choice:
    """Returns the cheapest settings within `WITHIN` of the fastest, found by successive halving.

    Every candidate gets a short window, the best third longer ones. What counts is the images per
    second of all processes together, over all windows. Where another loader is due, a call of 0 s
    comes before the window: the processes build and warm up what they keep, each in a time of its
    own, and begin the window together. The first such call is not charged to the budget.

    Args:
        candidates: The cheapest first, those of one loader together; at least one.
        measure: Measures settings for so many seconds.
        budget_s: No window but the first begins later.
        clock: Gives seconds, as `time.monotonic`.

    Raises:
        RunError: None could be measured.
    """
    tallies = [_Tally(settings) for settings in candidates]
    racing, measure_in_step = tallies, _in_step(measure)
    measure_in_step(candidates[0], 0.0)
    end = clock() + budget_s
    for number in range(len(WINDOWS)):
        if number and (clock() >= end or len(racing := _going_on(racing)) < 2):
            break
        seconds = _window_s(number, len(racing), end - clock())
        # There and back again, so that a machine that slows down favours nobody.
        for place, tally in enumerate(racing if number % 2 == 0 else racing[::-1]):
            if clock() < end or (number, place) == (0, 0):
                tally.add(measure_in_step(tally.settings, seconds))
    # The last round's alone: whoever left before was measured for a fraction of their time, in
    # another stretch of it. One that could be pinned is never left behind (see _going_on).
    finalists = _unfailed(racing) or _unfailed(tallies)
    if not finalists:
        failed = next(tally for tally in tallies if tally.reason)
        raise RunError(f"throughput: nothing could be measured: {failed.reason} ({failed.message})")
    pinned = _cheapest_of_the_best(finalists)
    rows = tuple(tally.row() for tally in tallies)
    return Choice(
        rows=rows,
        pinned=next(row for row in rows if row.settings is pinned.settings),
        images_per_s=pinned.images_per_s,
        num_processes=len(pinned.num_images),
    )


def what_limits(*, read: float, held: float, on_device: float) -> str:
    """Returns what to speed up first: ``compute``, ``copy`` or ``images``.

    Args:
        read: Images per second as in training.
        held: Where the images are in the host's memory already.
        on_device: Where they are on the device; `held` again where that is the host itself.
    """
    losses = {"copy": 1 - held / on_device, "images": 1 - read / held}
    worst = max(losses, key=lambda name: losses[name])
    return worst if losses[worst] > NO_LIMIT else "compute"


def throughput_csv(choice: Choice) -> str:
    """Returns the rows as a CSV text, the keys first; what was not measured is an empty cell."""
    keys = {key: None for row in choice.rows for key in row.settings}
    names = [*keys, *(each.name for each in fields(Row) if each.name != "settings"), "is_pinned"]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    for row in choice.rows:
        found = {name: getattr(row, name) for name in names[len(keys) : -1]}
        rounded = {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in found.items()
        }
        writer.writerow({**row.settings, **rounded, "is_pinned": row is choice.pinned})
    return text.getvalue()


@dataclass(slots=True)
class _Tally:
    """What has been measured of one candidate, process by process."""

    settings: Settings
    num_images: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    waited_s: float = 0.0
    peak_memory_bytes: int | None = None
    micro_batch_size: int | None = None
    rounds: int = 0
    reason: str = ""
    message: str = ""

    @property
    def images_per_s(self) -> float:
        """Of all processes together; each one's images are divided once, by its own time."""
        return sum(n / s for n, s in zip(self.num_images, self.seconds, strict=True))

    def add(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Adds one window, or why there is none."""
        failed = next((result for result in results if "reason" in result), None)
        if failed is not None:
            self.reason, self.message = failed["reason"], failed["message"]
            return
        nothing = [0] * len(results)
        self.num_images = [
            before + result["num_images"]
            for before, result in zip(self.num_images or nothing, results, strict=True)
        ]
        self.seconds = [
            before + result["seconds"]
            for before, result in zip(self.seconds or nothing, results, strict=True)
        ]
        self.waited_s += sum(result["data_wait_share"] * result["seconds"] for result in results)
        peaks = [result["peak_memory_bytes"] for result in results]
        self.peak_memory_bytes = max(peaks + [self.peak_memory_bytes or 0])
        self.micro_batch_size = min(result["micro_batch_size"] for result in results)
        self.rounds += 1

    def row(self) -> Row:
        """Returns it for people and files."""
        is_measured = self.rounds > 0
        return Row(
            settings=self.settings,
            state="failed" if self.reason else "measured" if is_measured else "not measured",
            images_per_s=self.images_per_s if is_measured else None,
            seconds=sum(self.seconds) / max(1, len(self.seconds)),
            data_wait_share=self.waited_s / sum(self.seconds) if is_measured else None,
            peak_memory_bytes=self.peak_memory_bytes,
            micro_batch_size=self.micro_batch_size,
            rounds=self.rounds,
            reason=self.reason,
            message=self.message,
        )


def _cost(settings: Settings) -> tuple[int, ...]:
    values = (settings[key] for key in CHEAPEST_FIRST)
    return tuple(1 if value == "auto" else value for value in values)


def _where_conditions_hold(
    settings: Mapping[str, Any], specs: Mapping[str, ParameterSpec]
) -> dict[str, Any]:
    """Leaves out what is searched only where another key has another value, or is left out."""
    kept = dict(settings)
    while without := {
        key for key in kept for other, value in specs[key].when if kept.get(other) != value
    }:
        kept = {key: value for key, value in kept.items() if key not in without}
    return kept


def _in_step(measure: Measure) -> Measure:
    """Returns `measure` with a call of 0 s before it where the processes have to build something.

    Otherwise one of them would measure alone while another still starts its workers, and tell up
    to a third too much (4 workers each on 2 cores, 2026-11).
    """
    ready_for: object = None

    def measure_in_step(settings: Settings, seconds: float) -> Sequence[Mapping[str, Any]]:
        nonlocal ready_for
        loader = {key: value for key, value in settings.items() if key.startswith("loader.")}
        if seconds and loader != ready_for:
            measure(settings, 0.0)
        results = measure(settings, seconds)
        is_as_before = not any("reason" in result for result in results)
        ready_for = loader if is_as_before else None  # one of them starts again from nothing
        return results

    return measure_in_step


def _going_on(racing: Sequence[_Tally]) -> list[_Tally]:
    """Returns the best third, at least two, and the one that would be pinned now.

    The latter is seldom among the fastest where many are nearly equal, and would be chosen by the
    luck of the first windows if those alone went on.
    """
    unfailed = _unfailed(racing)
    if not unfailed:
        return []
    by_speed = sorted(unfailed, key=lambda tally: -tally.images_per_s)
    best = by_speed[: max(2, ceil(len(unfailed) / 3))]
    pinned = _cheapest_of_the_best(unfailed)
    return [tally for tally in unfailed if tally is pinned or any(tally is each for each in best)]


def _unfailed(tallies: Sequence[_Tally]) -> list[_Tally]:
    return [tally for tally in tallies if tally.rounds and not tally.reason]


def _cheapest_of_the_best(measured: Sequence[_Tally]) -> _Tally:
    enough = (1 - WITHIN) * max(tally.images_per_s for tally in measured)
    return next(tally for tally in measured if tally.images_per_s >= enough)


def _window_s(number: int, num_racing: int, left_s: float) -> float:
    """Returns the length of this round's windows, if the rest is to last to the end of the last."""
    units = 0
    for length in WINDOWS[number:]:
        units += length * num_racing
        num_racing = min(num_racing, max(2, ceil(num_racing / 3)) + 1)
    return max(MIN_WINDOW_S, WINDOWS[number] * left_s / units)
