"""What fresh seeds say of the configurations, and which of them is chosen."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from tests.unit.study.conftest import open_record
from tuner.study.confirmed import confirmed, confirmed_trials, describe_confirmed, rival
from tuner.study.interval import prediction_interval
from tuner.study.record import EndState, Record

RATES = (0.1, 0.2, 0.3)


class Search:
    """Three finished trials and their confirm runs.

    Args:
        scores: Of the trials, by number.
    """

    def __init__(
        self,
        folder: Path,
        scores: tuple[float, ...] = (0.5, 0.7, 0.6),
        direction: str = "maximize",
        metric: str = "top1",
    ) -> None:
        self.record = open_record(folder, direction=direction, metric=metric)
        for rate, score in zip(RATES, scores, strict=True):
            number = self.record.add_trial({"optim.lr": rate}).number
            self.train(self.record, number, score)
        self.runs = self.record.open_confirm()

    def train(
        self, record: Record, number: int, score: float | None, state: EndState | None = "complete"
    ) -> None:
        if score is not None:
            record.add_report(number, {"samples_seen": 10, record.metric: score})
        if state is not None:
            record.end(number, state)

    def run(self, trial: int, seed: int, score: float | None, **how: Any) -> None:
        """Adds the run of a trial on a seed, with that score and that end."""
        number = self.runs.add_trial({"optim.lr": RATES[trial], "train.seed": seed}).number
        self.train(self.runs, number, score, **how)

    def order(self) -> list[int]:
        """The confirmed trials, the one to choose first."""
        return [each.trial_number for each in confirmed(self.record, self.runs)]


def test_mean_and_sample_deviation_are_those_of_the_complete_runs(tmp_path: Path) -> None:
    search = Search(tmp_path)
    for seed, score in ((1, 0.5), (2, 0.75), (3, 0.625)):
        search.run(1, seed, score)
    (found,) = confirmed(search.record, search.runs)
    assert found.trial_number == 1
    assert found.scores == (0.5, 0.75, 0.625)
    assert [run.settings["train.seed"] for run in found.runs] == [1, 2, 3]
    assert found.mean == mean(found.scores) == 0.625
    assert found.spread == stdev(found.scores) == 0.125
    assert found.num_failed == 0


def test_one_run_has_no_spread(tmp_path: Path) -> None:
    search = Search(tmp_path)
    search.run(0, 1, 0.5)
    (found,) = confirmed(search.record, search.runs)
    assert (found.mean, found.spread) == (0.5, None)


def test_a_run_counts_with_its_best_report(tmp_path: Path) -> None:
    search = Search(tmp_path)
    number = search.runs.add_trial({"optim.lr": 0.1, "train.seed": 1}).number
    for samples_seen, score in ((10, 0.5), (20, 0.75), (30, 0.25)):
        search.runs.add_report(number, {"samples_seen": samples_seen, "top1": score})
    search.runs.end(number, "complete")
    assert confirmed(search.record, search.runs)[0].scores == (0.75,)


@pytest.mark.parametrize(("direction", "order"), [("maximize", [2, 0, 1]), ("minimize", [1, 0, 2])])
def test_the_mean_over_the_seeds_decides_and_not_the_search(
    tmp_path: Path, direction: str, order: list[int]
) -> None:
    search = Search(tmp_path, direction=direction)
    for seed, scores in ((1, (0.5, 0.2, 0.9)), (2, (0.5, 0.6, 0.3))):
        for trial, score in enumerate(scores):
            search.run(trial, seed, score)
    assert search.order() == order


@pytest.mark.parametrize("state", ["failed", "infeasible"])
def test_one_failed_seed_puts_it_behind_all_that_did_not_fail(
    tmp_path: Path, state: EndState
) -> None:
    search = Search(tmp_path)
    search.run(1, 1, 0.9)
    search.run(0, 1, 0.2)
    search.run(2, 1, 0.8)
    search.run(1, 2, 0.9, state=state)
    search.run(0, 2, 0.1)
    search.run(2, 2, None, state=state)
    assert search.order() == [0, 1, 2]
    found = confirmed(search.record, search.runs)
    assert [each.num_failed for each in found] == [0, 1, 1]
    assert [each.scores for each in found] == [(0.2, 0.1), (0.9,), (0.8,)]


def test_one_that_failed_on_every_seed_is_not_confirmed(tmp_path: Path) -> None:
    search = Search(tmp_path)
    search.run(1, 1, None, state="failed")
    search.run(0, 1, 0.1)
    assert search.order() == [0]


@pytest.mark.parametrize(
    ("direction", "scores", "order"),
    [
        ("maximize", (0.5, 0.7, 0.6), [1, 2, 0]),
        ("minimize", (0.5, 0.7, 0.6), [0, 2, 1]),
        ("maximize", (0.5, 0.5, 0.5), [0, 1, 2]),
    ],
)
def test_of_equal_means_the_better_trial_of_the_search_comes_first(
    tmp_path: Path, direction: str, scores: tuple[float, ...], order: list[int]
) -> None:
    search = Search(tmp_path, scores, direction)
    for trial in (2, 1, 0):
        search.run(trial, 1, 0.5)
    assert search.order() == order


def test_runs_that_have_not_ended_do_not_count(tmp_path: Path) -> None:
    search = Search(tmp_path)
    search.run(0, 1, 0.9, state=None)
    search.run(1, 1, 0.2)
    search.run(1, 2, 0.9, state=None)
    search.run(2, 1, None, state=None)
    (found,) = confirmed(search.record, search.runs)
    assert (found.trial_number, found.scores, found.num_failed) == (1, (0.2,), 0)


def test_without_runs_nothing_is_confirmed(tmp_path: Path) -> None:
    assert Search(tmp_path).order() == []


def test_each_run_knows_its_trial(tmp_path: Path) -> None:
    search = Search(tmp_path)
    for trial in (2, 0, 2):
        search.run(trial, 1, 0.5)
    assert confirmed_trials(search.record, search.runs) == [2, 0, 2]


@pytest.mark.parametrize(("direction", "seed"), [("maximize", 2), ("minimize", 1)])
def test_the_best_run_is_the_earliest_of_the_best(
    tmp_path: Path, direction: str, seed: int
) -> None:
    search = Search(tmp_path, direction=direction)
    for each, score in ((1, 0.2), (2, 0.9), (3, 0.2), (4, 0.9)):
        search.run(0, each, score)
    (found,) = confirmed(search.record, search.runs)
    assert found.best_first(direction)[0].settings["train.seed"] == seed


def test_each_has_the_interval_of_its_mean_by_the_spread_of_all(tmp_path: Path) -> None:
    search = Search(tmp_path)
    for seed, (first, second) in enumerate(((0.50, 0.55), (0.52, 0.59)), start=1):
        search.run(0, seed, first)
        search.run(1, seed, second)
    search.run(2, 1, 0.1)
    found = confirmed(search.record, search.runs)
    assert [each.trial_number for each in found] == [1, 0, 2]
    deviation = ((0.02**2 / 2 + 0.04**2 / 2) / 2) ** 0.5
    for each in found:
        assert each.seed_spread is not None
        assert each.seed_spread.deviation == pytest.approx(deviation)
        assert each.seed_spread.degrees_of_freedom == 2
        assert each.interval == prediction_interval(each.scores, each.seed_spread, highest=1.0)


@pytest.mark.parametrize(("metric", "highest"), [("top5", 1.0), ("validation_loss", None)])
def test_a_share_stays_below_one_and_a_loss_may_rise(
    tmp_path: Path, metric: str, highest: float | None
) -> None:
    search = Search(tmp_path, metric=metric)
    search.run(0, 1, 0.9)
    search.run(0, 2, 0.8)
    (found,) = confirmed(search.record, search.runs)
    assert found.interval is not None
    low, high = found.interval
    assert low > 0
    assert (high == 1.0) if highest else (high > 1.0)


def test_one_seed_each_gives_no_interval(tmp_path: Path) -> None:
    search = Search(tmp_path)
    search.run(0, 1, 0.5)
    search.run(1, 1, 0.75)
    found = confirmed(search.record, search.runs)
    assert [(each.seed_spread, each.interval) for each in found] == [(None, None)] * 2
    assert rival(found) is None


@pytest.mark.parametrize(("second", "told_apart"), [((0.74, 0.78), False), ((0.50, 0.54), True)])
def test_the_second_is_named_where_the_runs_do_not_tell_it_apart(
    tmp_path: Path, second: tuple[float, float], told_apart: bool
) -> None:
    search = Search(tmp_path)
    for seed in (1, 2):
        search.run(2, seed, (0.75, 0.79)[seed - 1])
        search.run(0, seed, second[seed - 1])
    found = confirmed(search.record, search.runs)
    beside = rival(found)
    assert (beside and beside.trial_number) == (None if told_apart else 0)
    assert rival(found[:1]) is None


def test_one_that_is_second_because_it_failed_is_not_named(tmp_path: Path) -> None:
    search = Search(tmp_path)
    for seed, score in ((1, 0.5), (2, 0.6)):
        search.run(0, seed, score)
        search.run(1, seed, score)
    search.run(1, 3, None, state="failed")
    assert rival(confirmed(search.record, search.runs)) is None


@pytest.mark.parametrize(
    ("direction", "shrinkage"), [("maximize", 0.7 - 0.625), ("minimize", 0.625 - 0.7)]
)
def test_it_is_described_in_plain_values(tmp_path: Path, direction: str, shrinkage: float) -> None:
    search = Search(tmp_path, direction=direction)
    search.run(1, 4, 0.5)
    search.run(1, 5, 0.75)
    search.run(0, 4, 0.5)
    found = next(each for each in confirmed(search.record, search.runs) if each.trial_number == 1)
    assert found.interval is not None
    assert describe_confirmed(search.record, found) == {
        "metric": "top1",
        "mean": 0.625,
        "spread": stdev([0.5, 0.75]),
        "interval": list(found.interval),
        "interval_level": 0.9,
        "pooled_spread": stdev([0.5, 0.75]),
        "degrees_of_freedom": 1,
        "scores": [0.5, 0.75],
        "seeds": [4, 5],
        "score_in_search": 0.7,
        "shrinkage": pytest.approx(shrinkage),
        "not_told_apart_from": None,
    }
    (_, other) = sorted(confirmed(search.record, search.runs), key=lambda each: each.trial_number)
    assert describe_confirmed(search.record, found, other)["not_told_apart_from"] == 1


def test_of_one_seed_no_interval_is_described(tmp_path: Path) -> None:
    search = Search(tmp_path)
    search.run(1, 4, 0.5)
    (found,) = confirmed(search.record, search.runs)
    described = describe_confirmed(search.record, found)
    assert (described["interval"], described["pooled_spread"]) == (None, None)
    assert described["degrees_of_freedom"] == 0
