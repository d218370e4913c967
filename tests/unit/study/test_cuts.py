"""What a kill at any moment leaves of a search and its confirm runs, however they took turns."""

import os
import tempfile
from pathlib import Path
from typing import NamedTuple, get_args

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.study.conftest import SETTINGS, open_record, plain_trials
from tuner.study.record import JOURNAL_NAME, EndState, Record, TrialRecord

SCORES = (0.5, 0.25, float("nan"))


class Event(NamedTuple):
    """Something that happens to a running trial, chosen by `number`, or to a new one."""

    kind: str
    is_confirm: bool
    number: int


ENDS: dict[str, EndState] = {state: state for state in get_args(EndState)}
EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from(["trial", "report", "failure", "end all", *ENDS]),
        st.booleans(),
        st.integers(0, 5),
    ),
    max_size=15,
)
Trials = list[TrialRecord]


def play(record: Record, event: Event) -> None:
    """Record an event of any kind; a new trial where none is running."""
    running = [trial.number for trial in record.trials if trial.state == "running"]
    if event.kind == "trial" or not running:
        record.add_trial(SETTINGS)
        return
    number = running[event.number % len(running)]
    if event.kind == "report":
        samples_seen = record.trials[number].samples_seen + 10
        score = SCORES[event.number % len(SCORES)]
        record.add_report(number, {"samples_seen": samples_seen, "top1": score})
    elif event.kind == "failure":
        record.add_failure(number, "killed", "gone")
    elif event.kind == "end all":
        record.end_all(running, "stopped")
    else:
        record.end(number, ENDS[event.kind], "diverged", "training loss is nan")


def moments(folder: Path, events: list[Event]) -> list[tuple[int, Trials, Trials]]:
    """Return the journal's length after each event, with the trials and runs that it then holds."""
    record = open_record(folder)
    runs: Record | None = None
    found: list[tuple[int, Trials, Trials]] = [(0, [], [])]
    for event in events:
        if event.is_confirm:
            runs = runs or record.open_confirm()
        play(runs if runs and event.is_confirm else record, event)
        size_bytes = (folder / JOURNAL_NAME).stat().st_size
        found.append((size_bytes, list(record.trials), list(runs.trials if runs else ())))
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=EVENTS, part=st.floats(0, 1))
def test_a_cut_loses_at_most_the_event_that_was_being_written(
    quick_path: Path, events: list[Event], part: float
) -> None:
    with tempfile.TemporaryDirectory(dir=quick_path) as name:
        folder = Path(name)
        found = moments(folder, events)
        cut_bytes = round(part * (folder / JOURNAL_NAME).stat().st_size)
        os.truncate(folder / JOURNAL_NAME, cut_bytes)
        _, trials, run_trials = next(each for each in reversed(found) if each[0] <= cut_bytes)
        record = open_record(folder)
        runs = record.open_confirm()
        assert (record.trials, runs.trials) == (trials, run_trials)
        for each in (record, runs):
            play(each, Event("trial", False, 0))
            play(each, Event("report", False, 0))
        again = open_record(folder)
        assert again.trials == record.trials
        assert again.open_confirm().trials == runs.trials
        assert len(plain_trials(folder)) == len(trials) + 1
        assert len(plain_trials(folder, "small.confirm")) == len(run_trials) + 1
