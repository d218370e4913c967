"""What the model makes of a history, and the start-up before it."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tuner.search_logic import sampling
from tuner.search_logic.sampling import START_UP_TRIALS, Observation, propose
from tuner.settings.space import ChoiceSpec, FloatSpec, ParameterSpec

SQUARE = {"x": FloatSpec(0.0, 1.0), "y": FloatSpec(0.0, 1.0)}


def propose_many(history: Sequence[Observation], *, num_proposals: int = 20) -> list[float]:
    """The x of what TPE proposes over several seeds."""
    proposals = [
        propose(SQUARE, history, sampler="tpe", seed=seed, trial_number=len(history), tried=set())
        for seed in range(num_proposals)
    ]
    return [settings["x"] for settings in proposals if settings is not None]


def spread(num_points: int, outcome: Any, low: float = 0.0, high: float = 1.0) -> list[Observation]:
    rng = random.Random(num_points)
    points = [(low + (high - low) * rng.random(), rng.random()) for _ in range(num_points)]
    return [
        Observation({"x": x, "y": y}, outcome(x) if callable(outcome) else outcome)
        for x, y in points
    ]


def test_the_first_trials_fill_the_space_evenly() -> None:
    points = [
        propose(SQUARE, [], sampler="auto", seed=7, trial_number=number, tried=set())
        for number in range(8)
    ]
    for key in SQUARE:
        eighths = sorted(int(8 * point[key]) for point in points if point is not None)
        assert eighths == list(range(8))


def test_the_start_up_ends_once_there_are_trials_and_scores() -> None:
    history = spread(12, lambda x: x)
    early = propose(SQUARE, history, sampler="tpe", seed=0, trial_number=9, tried=set())
    sobol = propose(SQUARE, [], sampler="qmc", seed=0, trial_number=9, tried=set())
    assert early == sobol
    unscored = propose(
        SQUARE,
        spread(12, "failed"),
        sampler="tpe",
        seed=0,
        trial_number=START_UP_TRIALS,
        tried=set(),
    )
    assert unscored == propose(
        SQUARE, [], sampler="qmc", seed=0, trial_number=START_UP_TRIALS, tried=set()
    )


def test_random_trials_are_drawn_apart() -> None:
    first, second = (
        propose(SQUARE, [], sampler="random", seed=0, trial_number=number, tried=set())
        for number in range(2)
    )
    assert first != second


def test_proposals_gather_where_scores_are_high() -> None:
    near = [abs(x - 0.8) < 0.2 for x in propose_many(spread(40, lambda x: -abs(x - 0.8)))]
    assert sum(near) > 0.7 * len(near)


@pytest.mark.parametrize("outcome", ["failed", "infeasible", "running"])
def test_proposals_keep_away_from_trials_without_a_score(outcome: str) -> None:
    def share_above(history: Sequence[Observation]) -> float:
        return sum(x > 0.7 for x in propose_many(history, num_proposals=60)) / 60

    scored = spread(30, lambda x: x, high=0.7)
    without = spread(15, outcome, low=0.7)
    assert share_above(scored + without) < 0.5 * share_above(scored)


def test_a_long_history_keeps_its_best_and_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "NUM_SHOWN", 6)
    monkeypatch.setattr(sampling, "NUM_BEST_SHOWN", 2)
    history = [Observation({"x": float(i)}, float(-i)) for i in range(10)]
    history[7] = Observation({"x": 7.0}, "running")
    shown = [seen.settings["x"] for seen in sampling._shown(history)]
    assert shown == [0, 1, 6, 7, 8, 9]


def test_a_range_hidden_behind_a_rare_choice_is_still_found() -> None:
    """Forty-nine of fifty choices are used up; the last one alone has a range beside it."""
    specs: dict[str, ParameterSpec] = {
        "rate": FloatSpec(0.0, 1.0, when=(("kind", 49),)),
        "kind": ChoiceSpec(tuple(range(50))),
    }
    tried = {frozenset({("kind", kind)}) for kind in range(49)}
    for number in range(20):
        settings = propose(specs, [], sampler="random", seed=0, trial_number=number, tried=tried)
        assert settings is not None
        assert settings["kind"] == 49
