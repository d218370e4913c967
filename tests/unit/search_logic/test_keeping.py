"""What may go is decided from the record: losers, then older copies, then who hardly goes on."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.search_logic.conftest import SPACE
from tuner.search_logic.keeping import BestTrials, Held, best_first, hold, missed, spare
from tuner.study.record import Direction, EndState, Record


def held(number: int, samples: Iterable[int], *, score: float, has_ended: bool = False) -> Held:
    """A trial whose checkpoints have ten bytes each, the first of them its best."""
    sizes = dict.fromkeys(samples, 10)
    return Held(number, sizes, min(sizes), score, has_ended)


def record_of(folder: Path, direction: Direction = "maximize") -> Record:
    """A record with one trial, that was best at 2000 of 3000 images."""
    record = Record.open(
        folder,
        name="s",
        metric="top1",
        direction=direction,
        parameters=SPACE,
        data_fingerprint="",
        settings_plain={},
    )
    record.add_trial({"optim.lr": 0.1, "train.batch_size": 32})
    for samples_seen, top1 in ((1000, 0.2), (2000, 0.5), (3000, 0.4)):
        record.add_report(0, {"samples_seen": samples_seen, "top1": top1})
    return record


def test_a_trial_that_waits_needs_its_best_and_the_newest_two(tmp_path: Path) -> None:
    found = hold(record_of(tmp_path), 0, dict.fromkeys((1000, 2000, 2500, 3000), 10))
    assert (found.best, found.score, found.has_ended, found.num_bytes) == (2000, 0.5, False, 40)
    assert found.needed() == {2000, 2500, 3000}
    assert found.older() == {1000, 2500}


@pytest.mark.parametrize("state", ["complete", "stopped"])
def test_a_trial_that_has_ended_needs_its_best_alone(tmp_path: Path, state: EndState) -> None:
    record = record_of(tmp_path)
    record.end(0, state)
    assert hold(record, 0, {2000: 10, 2500: 10, 3000: 10}).needed() == {2000}
    assert hold(record, 0, {2500: 10, 3000: 10}).needed() == set()


@pytest.mark.parametrize("state", ["failed", "infeasible"])
def test_a_trial_that_has_failed_needs_none(tmp_path: Path, state: EndState) -> None:
    record = record_of(tmp_path)
    record.end(0, state, "error", "")
    assert hold(record, 0, {2000: 10, 3000: 10}).needed() == set()


def test_a_trial_without_a_report_needs_the_newest_two(tmp_path: Path) -> None:
    record = record_of(tmp_path)
    record.add_trial({"optim.lr": 0.1, "train.batch_size": 64})
    found = hold(record, 1, {100: 10, 200: 10, 300: 10})
    assert (found.needed(), found.best) == ({200, 300}, None)
    assert best_first([found]) == []


def test_a_lower_loss_ranks_first(tmp_path: Path) -> None:
    found = hold(record_of(tmp_path, "minimize"), 0, {1000: 10})
    assert (found.best, found.score) == (1000, -0.2)


def test_the_best_come_first_and_of_equals_the_earliest() -> None:
    trials = [held(number, [1], score=score) for number, score in ((3, 0.5), (1, 0.5), (2, 0.7))]
    without = replace(held(4, [2], score=0.9), best=1)
    assert [each.trial_number for each in best_first([*trials, without])] == [2, 1, 3]


def test_losers_go_first_the_worst_of_them_before_the_others_and_never_the_best() -> None:
    ended = [
        held(number, [9], score=score, has_ended=True)
        for number, score in ((0, 0.5), (1, 0.9), (2, 0.7))
    ]
    firm = BestTrials(3).firm(ended, [])
    assert list(spare(BestTrials(3).ranked(ended), firm, {}, list)) == [(0, 9), (2, 9)]
    assert BestTrials(2).ranked(ended) == [ended[1], ended[2]]
    assert list(missed(firm, {}, list)) == []


def test_older_copies_go_next_those_of_the_least_likely_first() -> None:
    ended = [held(0, [9], score=0.9, has_ended=True), held(1, [9], score=0.8, has_ended=True)]
    waiting = {2: held(2, [1, 2, 3], score=0.1), 3: held(3, [1, 2, 3], score=0.2)}
    firm = BestTrials(2).firm(ended, waiting.values())
    assert list(spare(ended, firm, waiting, sorted)) == [(1, 9), (3, 2), (2, 2)]


def test_the_least_likely_go_last_of_all_the_later_before_the_earlier() -> None:
    ended = [held(0, [9], score=0.9, has_ended=True)]
    waiting = {2: held(2, [1, 3], score=0.1), 3: held(3, [1, 3], score=0.2)}
    firm = BestTrials(1).firm(ended, waiting.values())
    assert list(missed(firm, waiting, sorted)) == [(3, 3), (3, 1), (2, 3), (2, 1)]


def test_where_the_best_of_all_waits_its_best_stays() -> None:
    ended = [held(0, [9], score=0.1, has_ended=True)]
    waiting = {2: held(2, [1, 3], score=0.1), 3: held(3, [1, 3], score=0.2)}
    firm = BestTrials(1).firm(ended, waiting.values())
    assert firm == {0, 3}  # the one that waits may fail
    assert list(missed(firm, waiting, sorted)) == [(3, 3), (2, 3), (2, 1)]


def test_one_less_leaves_the_others() -> None:
    assert held(0, [1, 2], score=0.5).without(1).sizes == {2: 10}
