"""What fresh seeds say of the configurations, and which of them is chosen."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from tests.unit.study.conftest import open_record
from tuner.study.confirmed import confirmed, confirmed_trials, describe_confirmed
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
    ) -> None:
        self.record = open_record(folder, direction=direction)
        for rate, score in zip(RATES, scores, strict=True):
            number = self.record.add_trial({"optim.lr": rate}).number
            self.train(self.record, number, score)
        self.runs = self.record.open_confirm()

    def train(
        self, record: Record, number: int, score: float | None, state: EndState | None = "complete"
    ) -> None:
        if score is not None:
            record.add_report(number, {"samples_seen": 10, "top1": score})
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


def test_it_is_described_in_plain_values(tmp_path: Path) -> None:
    search = Search(tmp_path)
    search.run(1, 4, 0.5)
    search.run(1, 5, 0.75)
    (found,) = confirmed(search.record, search.runs)
    assert describe_confirmed(search.record, found) == {
        "metric": "top1",
        "mean": 0.625,
        "spread": stdev([0.5, 0.75]),
        "scores": [0.5, 0.75],
        "seeds": [4, 5],
        "score_in_search": 0.7,
    }
