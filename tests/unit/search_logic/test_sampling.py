"""When a sampler's model takes over from the first points, and what it is shown."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tuner.search_logic import optuna_samplers
from tuner.search_logic.cube import Settings
from tuner.search_logic.history import Observation, OneScore, at_one_length
from tuner.search_logic.rung_data import Lengths
from tuner.search_logic.sampling import START_UP_TRIALS, Sampler, propose
from tuner.settings.space import ChoiceSpec, FloatSpec, ParameterSpec

SQUARE = {"x": FloatSpec(0.0, 1.0), "y": FloatSpec(0.0, 1.0)}
FULL = 900


def propose_one(
    history: Sequence[Observation],
    sampler: Sampler,
    *,
    seed: int = 0,
    trial_number: int | None = None,
) -> Settings | None:
    return propose(
        SQUARE,
        history,
        sampler=sampler,
        seed=seed,
        trial_number=len(history) if trial_number is None else trial_number,
        tried=set(),
        lengths=Lengths(FULL, FULL),
    )


def propose_many(history: Sequence[Observation], *, num_proposals: int = 20) -> list[float]:
    """The x of what TPE proposes over several seeds."""
    proposals = [propose_one(history, "tpe", seed=seed) for seed in range(num_proposals)]
    return [settings["x"] for settings in proposals if settings is not None]


def spread(num_points: int, outcome: Any, low: float = 0.0, high: float = 1.0) -> list[Observation]:
    rng = random.Random(num_points)
    points = [(low + (high - low) * rng.random(), rng.random()) for _ in range(num_points)]
    return [
        Observation({"x": x, "y": y}, {FULL: outcome(x)})
        if callable(outcome)
        else Observation({"x": x, "y": y}, state=outcome)
        for x, y in points
    ]


@pytest.mark.parametrize("sampler", ["auto", "rung_gp", "tpe"])
def test_the_first_trials_fill_the_space_evenly(sampler: Sampler) -> None:
    points = [propose_one([], sampler, seed=7, trial_number=number) for number in range(8)]
    for key in SQUARE:
        eighths = sorted(int(8 * point[key]) for point in points if point is not None)
        assert eighths == list(range(8))


@pytest.mark.parametrize("sampler", ["auto", "rung_gp", "tpe"])
def test_the_start_up_ends_once_there_are_trials_and_scores(sampler: Sampler) -> None:
    history = spread(12, lambda x: x)
    early, late = START_UP_TRIALS - 1, START_UP_TRIALS
    assert propose_one(history, sampler, trial_number=early) == propose_one(
        [], "qmc", trial_number=early
    )
    sobol = propose_one([], "qmc", trial_number=late)
    assert propose_one(spread(12, "failed"), sampler, trial_number=late) == sobol
    assert propose_one(history[:4], sampler, trial_number=late) == sobol
    assert propose_one(history[:5], sampler, trial_number=late) != sobol


def test_auto_is_rung_gp() -> None:
    history = spread(12, lambda x: x)
    assert propose_one(history, "auto") == propose_one(history, "rung_gp")
    assert propose_one(history, "auto") != propose_one(history, "tpe")


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_trials_that_learn_nothing_are_drawn_apart(sampler: Sampler) -> None:
    points = [propose_one([], sampler, trial_number=number) for number in range(12)]
    assert len({tuple(point.values()) for point in points if point is not None}) == 12


def test_proposals_gather_where_scores_are_high() -> None:
    near = [abs(x - 0.8) < 0.2 for x in propose_many(spread(40, lambda x: -abs(x - 0.8)))]
    assert sum(near) > 0.7 * len(near)


@pytest.mark.parametrize("outcome", ["failed", "infeasible", "running"])
def test_proposals_keep_away_from_trials_without_a_score(outcome: str) -> None:
    def share_above(history: Sequence[Observation]) -> float:
        return sum(x > 0.7 for x in propose_many(history, num_proposals=60)) / 60

    scores = spread(30, lambda x: x, high=0.7)
    without = spread(15, outcome, low=0.7)
    assert share_above(scores + without) < 0.5 * share_above(scores)


def test_a_long_history_keeps_its_best_and_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optuna_samplers, "NUM_SHOWN", 6)
    monkeypatch.setattr(optuna_samplers, "NUM_BEST_SHOWN", 2)
    history = [OneScore({"x": float(i)}, float(-i)) for i in range(10)]
    history[7] = OneScore({"x": 7.0}, "running")
    shown = [seen.settings["x"] for seen in optuna_samplers._shown(history)]
    assert shown == [0, 1, 6, 7, 8, 9]


def test_trials_are_compared_at_the_longest_length_that_has_enough_scores() -> None:
    history = [Observation({"x": number}, {1: 0.1, 3: number / 10}) for number in range(4)]
    history += [
        Observation({"x": 4}, {1: 0.9}),
        Observation({"x": 5}, {1: 0.8}, "running"),
        Observation({"x": 6}, {}, "running"),
        Observation({"x": 7}, state="failed"),
        Observation({"x": 8}, state="infeasible"),
        Observation({"x": 9}, {1: 0.1, 3: 0.3, 9: 0.5}),
    ]
    without = {6: "running", 7: "failed", 8: "infeasible"}

    def outcomes(num_parameters: int) -> dict[int, Any]:
        return {seen.settings["x"]: seen.outcome for seen in at_one_length(history, num_parameters)}

    assert outcomes(2) == {0: 0.0, 1: 0.1, 2: 0.2, 3: 0.3, 9: 0.3, **without}
    assert outcomes(3) == {0: 0.1, 1: 0.1, 2: 0.1, 3: 0.1, 4: 0.9, 5: 0.8, 9: 0.1, **without}
    assert outcomes(5) == {}


def test_a_range_hidden_behind_a_rare_choice_is_still_found() -> None:
    """Forty-nine of fifty choices are used up; the last one alone has a range beside it."""
    specs: dict[str, ParameterSpec] = {
        "rate": FloatSpec(0.0, 1.0, when=(("kind", 49),)),
        "kind": ChoiceSpec(tuple(range(50))),
    }
    tried = {frozenset({("kind", kind)}) for kind in range(49)}
    for number in range(20):
        settings = propose(
            specs,
            [],
            sampler="random",
            seed=0,
            trial_number=number,
            tried=tried,
            lengths=Lengths(FULL, FULL),
        )
        assert settings is not None
        assert settings["kind"] == 49
