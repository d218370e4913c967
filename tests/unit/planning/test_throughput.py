"""The search for speed: cheap settings win unless others are faster, within the time given."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import RunError
from tuner.planning.throughput import (
    CHEAPEST_FIRST,
    MIN_WINDOW_S,
    MOST_CANDIDATES,
    WITHIN,
    Choice,
    Settings,
    candidates,
    choose,
    throughput_csv,
    what_limits,
)
from tuner.settings.space import ChoiceSpec, IntSpec, ParameterSpec, parse_spec

WORKERS, PREFETCH, SLICES = CHEAPEST_FIRST
FIXED = {WORKERS: 0, PREFETCH: 2, SLICES: 1, "optim.lr": 0.1}
SPACE: Mapping[str, ParameterSpec] = {
    SLICES: ChoiceSpec((4, 1, 2)),
    WORKERS: ChoiceSpec((2, 0)),
    PREFETCH: ChoiceSpec((4, 2)),
}


def combinations(specs: Mapping[str, Any], **fixed: Any) -> list[Settings]:
    """Return the candidates of specs as a space file writes them; nothing is said of them."""
    parsed = {key: parse_spec(key, raw) for key, raw in specs.items()}
    found, notes = candidates(parsed, FIXED | fixed)
    assert notes == ()
    return found


def costs(found: Sequence[Settings]) -> list[tuple[Any, ...]]:
    return [tuple(settings.get(key) for key in CHEAPEST_FIRST) for settings in found]


def test_every_combination_is_there_once_the_cheapest_first() -> None:
    found, notes = candidates(SPACE, FIXED)

    assert costs(found) == [
        (0, 2, 1), (0, 2, 2), (0, 2, 4),  # nothing is read ahead without workers
        (2, 2, 1), (2, 2, 2), (2, 2, 4),
        (2, 4, 1), (2, 4, 2), (2, 4, 4),
    ]  # fmt: skip
    assert notes == ()


def test_workers_that_are_not_searched_decide_whether_reading_ahead_counts() -> None:
    specs = {PREFETCH: [1, 2, 8]}

    assert costs(combinations(specs)) == [(None, 1, None)]
    assert costs(combinations(specs, **{WORKERS: 2})) == [
        (None, 1, None),
        (None, 2, None),
        (None, 8, None),
    ]


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ({"int": [0, 3]}, [0, 1, 2, 3]),
        ({"int": [2, 8], "step": 3}, [2, 5, 8]),
        ({"log_int": [1, 8]}, [1, 2, 4, 8]),
        ({"log_int": [3, 20]}, [3, 6, 12, 20]),
        ({"log_int": [5, 5]}, [5]),
        ([3], [3]),
    ],
)
def test_a_range_gives_all_its_values_or_their_doublings(spec: Any, values: list[int]) -> None:
    assert [settings[SLICES] for settings in combinations({SLICES: spec})] == values


def test_a_key_whose_condition_does_not_hold_is_left_out() -> None:
    found = combinations(
        {WORKERS: [0, 1], PREFETCH: {"choices": [2, 4], "when": {WORKERS: 1}}, SLICES: [1]}
    )

    assert costs(found) == [(0, None, 1), (1, 2, 1), (1, 4, 1)]


@pytest.mark.parametrize(
    "specs",
    [
        {WORKERS: IntSpec(0, 40), SLICES: IntSpec(1, 8)},
        {SLICES: IntSpec(1, 10**9)},
        {WORKERS: IntSpec(0, 10**9), PREFETCH: IntSpec(1, 10**9), SLICES: IntSpec(1, 10**9)},
    ],
)
def test_too_many_combinations_are_thinned_evenly_and_that_is_said(
    specs: Mapping[str, ParameterSpec],
) -> None:
    found, notes = candidates(specs, FIXED)

    assert notes == ("throughput: more than 64 combinations; 64 evenly spread ones are measured",)
    assert len(found) == MOST_CANDIDATES
    assert costs(found) == sorted(set(costs(found)))
    for key, spec in specs.items():
        assert isinstance(spec, IntSpec)
        assert (found[0][key], found[-1][key]) == (spec.low, spec.high)


class Machine:
    """Trains at given speeds, exactly, on a clock of its own.

    Args:
        speeds: Images per second of one process, by the number of the candidate.
        step_s: A window lasts whole steps.
        faults: What the second process says instead, by the number of the candidate.
    """

    def __init__(
        self,
        speeds: Sequence[float],
        *,
        step_s: float = 0.01,
        faults: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self.settings: list[Settings] = [
            {WORKERS: number // 3, SLICES: 2 ** (number % 3)} for number in range(len(speeds))
        ]
        self.speeds, self.step_s, self.faults = speeds, step_s, faults or {}
        self.now = 50.0
        self.windows: list[tuple[int, float]] = []  # number of the candidate, seconds asked
        self.ended_at: list[float] = []
        self.settled: list[int] = []

    def clock(self) -> float:
        return self.now

    def measure(self, settings: Settings, seconds: float) -> list[Mapping[str, Any]]:
        number = self.settings.index(settings)
        if seconds == 0:
            self.settled.append(number)
            return []
        lasted = self.step_s * math.ceil(seconds / self.step_s)
        speed = self.speeds[number]
        self.now += lasted
        self.windows.append((number, seconds))
        self.ended_at.append(self.now)
        result = {
            "num_images": speed * lasted,
            "seconds": lasted,
            "data_wait_share": 0.25,
            "peak_memory_bytes": 1000 + number,
            "micro_batch_size": 8,
        }
        other = result | {"num_images": 2 * speed * lasted, "peak_memory_bytes": 5}
        return [result, self.faults.get(number, other)]

    def choose(self, budget_s: float) -> Choice:
        return choose(self.settings, self.measure, budget_s=budget_s, clock=self.clock)

    def number(self, choice: Choice) -> int:
        """Return the number of the candidate that is pinned."""
        return self.settings.index(choice.pinned.settings)


SPEEDS = st.lists(st.floats(1.0, 1e5) | st.sampled_from([100.0, 98.0, 97.0, 96.9]), min_size=1,
                  max_size=20)  # fmt: skip
KILLED = {"reason": "killed", "message": "its process died"}
TOO_LARGE = {"reason": "out_of_memory", "message": "one slice of 8 images"}


@given(SPEEDS, st.data())
def test_the_cheapest_within_three_percent_of_the_fastest_is_pinned(
    speeds: list[float], data: st.DataObject
) -> None:
    numbers = st.integers(0, len(speeds) - 1)
    failed = data.draw(st.sets(numbers, max_size=len(speeds) - 1))
    machine = Machine(speeds, faults=dict.fromkeys(failed, KILLED))

    choice = machine.choose(budget_s=60.0)

    left = {number: speed for number, speed in enumerate(speeds) if number not in failed}
    border = (1 - WITHIN) * max(left.values())
    pinned = machine.number(choice)
    assert pinned not in failed
    assert left[pinned] >= border * (1 - 1e-9)
    assert all(left[number] <= border * (1 + 1e-9) for number in left if number < pinned)
    assert choice.images_per_s == pytest.approx(3 * speeds[pinned])
    assert choice.images_per_s_each == pytest.approx(1.5 * speeds[pinned])
    assert choice.num_processes == 2


@given(SPEEDS, st.floats(0.0, 30.0), st.floats(0.01, 5.0))
def test_no_window_but_the_first_begins_after_the_time_is_over(
    speeds: list[float], budget_s: float, step_s: float
) -> None:
    machine = Machine(speeds, step_s=step_s)

    choice = machine.choose(budget_s)

    begun_at = [50.0, *machine.ended_at[:-1]]
    assert all(begin - 50.0 < budget_s for begin in begun_at[1:])
    assert all(seconds >= MIN_WINDOW_S for _, seconds in machine.windows)
    states = [row.state for row in choice.rows]
    assert states == sorted(states)  # what was not measured is the dearest
    assert [row.rounds > 0 for row in choice.rows] == [state == "measured" for state in states]
    assert choice.pinned.state == "measured"


@given(SPEEDS, st.floats(5.0, 60.0))
def test_rows_add_up_all_rounds(speeds: list[float], budget_s: float) -> None:
    machine = Machine(speeds)

    choice = machine.choose(budget_s)

    assert [row.settings for row in choice.rows] == machine.settings
    for number, row in enumerate(choice.rows):
        windows = [seconds for of, seconds in machine.windows if of == number]
        assert row.rounds == len(windows)
        assert row.seconds == pytest.approx(sum(windows), abs=0.01 * len(windows))
        if windows:
            assert row.images_per_s == pytest.approx(3 * speeds[number])
            assert row.data_wait_share == pytest.approx(0.25)
            assert row.peak_memory_bytes == 1000 + number
            assert row.micro_batch_size == 8
        else:
            assert (row.images_per_s, row.data_wait_share) == (None, None)
            assert (row.peak_memory_bytes, row.micro_batch_size) == (None, None)


def test_the_best_third_goes_on_to_longer_windows_there_and_back() -> None:
    machine = Machine([100.0 + 10 * number for number in range(9)])

    machine.choose(budget_s=40.0)

    order = [number for number, _ in machine.windows]
    lengths = sorted({seconds for _, seconds in machine.windows})
    assert order == [*range(9), 8, 7, 6, 7, 8]
    assert len(lengths) == 3
    assert lengths[1] >= 2 * lengths[0]
    assert lengths[2] >= 2 * lengths[1]
    assert 35.0 < machine.now - 50.0 <= 41.0


def test_one_that_would_be_pinned_goes_on_though_it_is_not_among_the_fastest() -> None:
    machine = Machine([98.0, *[100.0 + number / 10 for number in range(8)]])

    assert machine.number(machine.choose(budget_s=40.0)) == 0
    assert [number for number, _ in machine.windows].count(0) == 3


def test_a_lucky_first_window_does_not_decide() -> None:
    machine = Machine([50.0, 100.0, 120.0, 60.0, 60.0, 60.0])

    def lucky(settings: Settings, seconds: float) -> list[Mapping[str, Any]]:
        luck = 1 if machine.windows else 3
        results = machine.measure(settings, seconds)
        return [{**each, "num_images": luck * each["num_images"]} for each in results]

    choice = choose(machine.settings, lucky, budget_s=60.0, clock=machine.clock)

    assert machine.number(choice) == 2


def test_equals_go_to_the_cheapest() -> None:
    machine = Machine([100.0] * 12)

    assert machine.number(machine.choose(budget_s=10.0)) == 0


def test_a_single_candidate_is_measured_once_for_its_speed() -> None:
    machine = Machine([100.0])

    choice = machine.choose(budget_s=10.0)

    assert len(machine.windows) == 1
    assert choice.images_per_s == pytest.approx(300.0)


@pytest.mark.parametrize("budget_s", [0.0, 1.0])
def test_a_budget_too_small_for_a_round_measures_the_cheapest(budget_s: float) -> None:
    machine = Machine([100.0] * 6, step_s=0.8)

    choice = machine.choose(budget_s)

    measured = 1 + int(budget_s)
    assert [row.state for row in choice.rows] == (
        ["measured"] * measured + ["not measured"] * (6 - measured)
    )
    assert machine.number(choice) == 0


def test_processes_settle_wherever_another_loader_is_due() -> None:
    machine = Machine([100.0] * 9)

    machine.choose(budget_s=MIN_WINDOW_S * 9 - 0.1)

    assert [number for number, _ in machine.windows] == [*range(9)]
    assert machine.settled == [0, 3, 6]


def test_processes_settle_again_after_a_failure() -> None:
    machine = Machine([100.0] * 3, faults={1: KILLED})

    machine.choose(budget_s=MIN_WINDOW_S * 3 - 0.1)

    assert [number for number, _ in machine.windows] == [0, 1, 2]
    assert machine.settled == [0, 2]


def test_a_failure_is_told_with_its_reason_and_is_out() -> None:
    machine = Machine([100.0, 200.0, 300.0], faults={2: KILLED, 0: TOO_LARGE})

    choice = machine.choose(budget_s=10.0)

    assert [row.state for row in choice.rows] == ["failed", "measured", "failed"]
    assert [(row.reason, row.message) for row in choice.rows] == [
        ("out_of_memory", "one slice of 8 images"),
        ("", ""),
        ("killed", "its process died"),
    ]
    assert [number for number, _ in machine.windows] == [0, 1, 2]
    assert machine.number(choice) == 1


def test_what_fails_in_a_later_round_is_not_pinned_either() -> None:
    machine = Machine([100.0, 200.0, 300.0])

    def fail_later(settings: Settings, seconds: float) -> list[Mapping[str, Any]]:
        if len(machine.windows) == 3:
            machine.faults = {1: KILLED, 2: KILLED}
        return machine.measure(settings, seconds)

    choice = choose(machine.settings, fail_later, budget_s=20.0, clock=machine.clock)

    assert [row.state for row in choice.rows] == ["measured", "failed", "failed"]
    assert machine.number(choice) == 0


def test_nothing_measured_is_an_error_that_names_the_first_reason() -> None:
    machine = Machine([100.0] * 3, faults={0: TOO_LARGE, 1: KILLED, 2: KILLED})

    with pytest.raises(RunError) as caught:
        machine.choose(budget_s=10.0)

    assert str(caught.value) == (
        "throughput: nothing could be measured: out_of_memory (one slice of 8 images)"
    )


def test_the_table_holds_a_row_for_each_candidate() -> None:
    machine = Machine([100.0, 200.0, 150.0, 170.0], faults={2: KILLED}, step_s=0.5)

    text = throughput_csv(machine.choose(budget_s=1.4))

    assert "\r" not in text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == [
        WORKERS, SLICES, "state", "images_per_s", "seconds", "data_wait_share",
        "peak_memory_bytes", "micro_batch_size", "rounds", "reason", "message", "is_pinned",
    ]  # fmt: skip
    assert [list(row.values()) for row in rows] == [
        ["0", "1", "measured", "300.0", "0.5", "0.25", "1000", "8", "1", "", "", "False"],
        ["0", "2", "measured", "600.0", "0.5", "0.25", "1001", "8", "1", "", "", "True"],
        ["0", "4", "failed", "", "0.0", "", "", "", "0", "killed", "its process died", "False"],
        ["1", "1", "not measured", "", "0.0", "", "", "", "0", "", "", "False"],
    ]


@pytest.mark.parametrize(
    ("read", "held", "on_device", "limit"),
    [
        (100, 100, 100, "compute"),
        (96, 100, 100, "compute"),
        (90, 100, 100, "images"),
        (100, 100, 120, "copy"),
        (50, 80, 100, "images"),
        (70, 75, 100, "copy"),
        (105, 100, 98, "compute"),
    ],
)
def test_what_limits_is_what_costs_most(
    read: float, held: float, on_device: float, limit: str
) -> None:
    assert what_limits(read=read, held=held, on_device=on_device) == limit
