"""Which trial of a record is better than which."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.study.conftest import SETTINGS, open_record
from tuner.study.record import EndState, Record

SCORES = (0.0, 0.25, 0.5)  # few, so that ties are common
ENDS: tuple[EndState | None, ...] = (None, "complete", "stopped", "failed", "infeasible")


def add(record: Record, *scores: float, state: EndState | None = None) -> int:
    """The number of a new trial with a report for each score, and that end where one is given."""
    number = record.add_trial(SETTINGS).number
    for place, score in enumerate(scores, start=1):
        record.add_report(number, {"samples_seen": 10 * place, "top1": score})
    if state is not None:
        record.end(number, state)
    return number


@pytest.mark.parametrize(
    ("direction", "ranking"),
    [("maximize", [1, 4, 0, 2, 3, 5, 6]), ("minimize", [2, 0, 1, 4, 3, 5, 6])],
)
def test_the_best_report_ranks_of_equals_the_earlier_trial_and_no_score_last(
    tmp_path: Path, direction: str, ranking: list[int]
) -> None:
    record = open_record(tmp_path, direction=direction)
    add(record, 0.5, 0.3, 0.4, state="complete")
    add(record, 0.6, 0.7, state="stopped")
    add(record, 0.2)
    add(record)
    add(record, 0.7, 0.6)
    add(record, 0.9, 0.1, state="failed")
    add(record, 0.1, 0.9, state="infeasible")
    assert [trial.number for trial in record.ranked()] == ranking


@pytest.mark.parametrize("state", ["failed", "infeasible"])
def test_a_trial_that_failed_has_no_score_though_it_had_reports(
    tmp_path: Path, state: EndState
) -> None:
    record = open_record(tmp_path)
    number = add(record, 0.5)
    assert record.best_score(number) == 0.5
    record.end(number, state, "diverged", "training loss is nan")
    assert record.best_score(number) is None
    assert record.best_report(number) == {"samples_seen": 10, "top1": 0.5}


def test_a_trial_without_a_finite_score_has_none(tmp_path: Path) -> None:
    record = open_record(tmp_path)
    assert record.best_score(add(record)) is None
    assert record.best_score(add(record, float("nan"))) is None


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    trials=st.lists(
        st.tuples(st.lists(st.sampled_from(SCORES), max_size=2), st.sampled_from(ENDS)), max_size=7
    ),
    direction=st.sampled_from(["maximize", "minimize"]),
)
def test_every_trial_has_one_place_and_none_is_before_a_better_one(
    quick_path: Path, trials: list[tuple[list[float], EndState | None]], direction: str
) -> None:
    with tempfile.TemporaryDirectory(dir=quick_path) as folder:
        record = open_record(Path(folder), direction=direction)
        for scores, state in trials:
            add(record, *scores, state=state)
        places = [trial.number for trial in record.ranked()]
        best = max if direction == "maximize" else min
        values = [
            None if not scores or state in ("failed", "infeasible") else best(scores)
            for scores, state in trials
        ]
        assert [record.best_score(number) for number in range(len(trials))] == values
        assert sorted(places) == list(range(len(trials)))
        for i, first in enumerate(places):
            for second in places[i + 1 :]:
                a, b = values[first], values[second]
                assert b is None or a is not None
                if a == b:
                    assert first < second
                elif a is not None and b is not None:
                    assert best(a, b) == a
