"""What the search's own model proposes: where scores are high, away from trouble, always."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search_logic import rung_gp
from tuner.search_logic.cube import settings_key
from tuner.search_logic.history import Observation, State
from tuner.search_logic.rung_data import Lengths
from tuner.search_logic.sampling import START_UP_TRIALS, cube_of, propose
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec, can_take

LENGTHS = Lengths(100, 900)
SQUARE = {"x": FloatSpec(0.0, 1.0), "y": FloatSpec(0.0, 1.0)}
Specs = Mapping[str, ParameterSpec]


def points(specs: Specs, number: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    cube = cube_of(specs)
    return [cube.settings_at(rng.random(len(specs))) for _ in range(number)]


def scored(
    settings: Sequence[Mapping[str, Any]],
    score: Callable[[Mapping[str, Any]], float],
    lengths: Sequence[int] = (900,),
) -> list[Observation]:
    return [Observation(each, {length: score(each) for length in lengths}) for each in settings]


def proposed(
    specs: Specs, history: Sequence[Observation], *, seed: int = 0, number: int = 1
) -> list[dict[str, Any]]:
    """The first `number` of what is proposed."""
    rng = np.random.default_rng(seed)
    return list(islice(rung_gp.proposals(cube_of(specs), history, LENGTHS, rng), number))


def hill(settings: Mapping[str, Any]) -> float:
    return -((settings["x"] - 0.8) ** 2) - (settings["y"] - 0.3) ** 2


def test_the_top_of_a_hill_is_found_within_a_few_proposals() -> None:
    history = scored(points(SQUARE, 12), hill)
    for seed in range(8):
        history += scored(proposed(SQUARE, history, seed=seed), hill)
    best = max(history[-3:], key=lambda seen: seen.scores[900])
    assert best.settings["x"] == pytest.approx(0.8, abs=0.02)
    assert best.settings["y"] == pytest.approx(0.3, abs=0.02)


def test_short_scores_alone_show_where_long_trainings_go_well() -> None:
    history = scored(points(SQUARE, 30), hill, lengths=[100])
    (first,) = proposed(SQUARE, history)
    assert first["x"] == pytest.approx(0.8, abs=0.15)
    assert first["y"] == pytest.approx(0.3, abs=0.15)


def test_what_long_trainings_say_goes_before_what_short_ones_do() -> None:
    """At a short length the left is better, at the full one the right."""
    everywhere = points(SQUARE, 40)
    history = [
        Observation(each, {100: -each["x"], **({900: each["x"]} if number % 2 else {})})
        for number, each in enumerate(everywhere)
    ]
    assert proposed(SQUARE, history)[0]["x"] > 0.8


def test_untrained_every_setting_is_poor_whatever_it_comes_to() -> None:
    """Scores are the same at each length: they alone would say so of a training of none, too."""
    cube, history = cube_of(SQUARE), scored(points(SQUARE, 12), hill, lengths=[100, 900])
    process = rung_gp._learned(cube, history, LENGTHS).process
    good = cube.features(cube.points_of([{"x": 0.8, "y": 0.3}]))
    untrained, trained = (process.mean(np.column_stack([good, [at]])) for at in (0.0, 1.0))
    assert trained > 1
    assert untrained < -0.5


@pytest.mark.parametrize("state", ["failed", "infeasible"])
def test_settings_near_those_that_failed_are_not_proposed(state: State) -> None:
    """Scores rise towards a cliff beyond which trials fail."""
    everywhere = points(SQUARE, 40)
    fell = [Observation(each, state=state) for each in everywhere if each["x"] > 0.6]
    stood = [each for each in everywhere if each["x"] <= 0.6]
    history = scored(stood, lambda each: each["x"]) + fell
    proposals = [proposed(SQUARE, history, seed=seed)[0]["x"] for seed in range(10)]
    assert max(proposals) < 0.7
    without = [proposed(SQUARE, history[: len(stood)], seed=seed)[0]["x"] for seed in range(10)]
    assert min(without) > 0.7


def test_what_rather_does_not_fit_is_not_proposed_however_promising() -> None:
    """Scores grow tenfold towards where two trials were too large."""
    stood = [each for each in points(SQUARE, 12) if each["x"] <= 0.7]
    too_large = [{"x": 0.75, "y": 0.25}, {"x": 0.77, "y": 0.75}]
    history = scored(stood, lambda each: 10 ** (6 * each["x"]))
    history += [Observation(each, state="infeasible") for each in too_large]
    proposals = [proposed(SQUARE, history, seed=seed)[0]["x"] for seed in range(5)]
    assert max(proposals) < 0.75


def test_a_running_trial_drives_the_next_proposal_away() -> None:
    history = scored(points(SQUARE, 6), hill)
    (first,) = proposed(SQUARE, history)
    running = Observation(first, state="running")
    (second,) = proposed(SQUARE, [*history, running])
    assert abs(second["x"] - first["x"]) + abs(second["y"] - first["y"]) > 0.1


def test_a_parameter_that_few_trials_have_is_learned_beside_the_others() -> None:
    specs: Specs = {
        "optimizer": ChoiceSpec(("sgd", "adam")),
        "momentum": FloatSpec(0.0, 1.0, when=(("optimizer", "sgd"),)),
    }

    def score(settings: Mapping[str, Any]) -> float:
        return 1 - (settings["momentum"] - 0.9) ** 2 if "momentum" in settings else 0.9

    history = scored(points(specs, 20), score)
    (first,) = proposed(specs, history)
    assert first["optimizer"] == "sgd"
    assert first["momentum"] == pytest.approx(0.9, abs=0.1)


def test_the_best_of_many_choices_is_found_by_its_kind() -> None:
    specs: Specs = {"kind": ChoiceSpec(tuple("abcdef")), "x": FloatSpec(0.0, 1.0)}
    history = scored(points(specs, 30), lambda each: (each["kind"] == "d") - each["x"])
    (first,) = proposed(specs, history)
    assert first["kind"] == "d"
    assert first["x"] < 0.2


def test_every_settings_of_a_small_space_is_ranked() -> None:
    specs: Specs = {"size": ChoiceSpec((32, 64, 128, 256)), "layers": IntSpec(1, 5)}
    history = scored(points(specs, 6), lambda each: each["size"] + each["layers"])
    ranked = proposed(specs, history, number=99)
    assert len({settings_key(each) for each in ranked}) == len(ranked) == 20


def test_settings_that_vary_in_nothing_are_proposed_as_they_are() -> None:
    specs: Specs = {"fixed": FloatSpec(0.3, 0.3), "one": ChoiceSpec(("a",))}
    fixed = {"fixed": 0.3, "one": "a"}
    assert proposed(specs, scored([fixed], lambda _: 0.5), number=9) == [fixed]


PROGRAM = """
import json, sys
from tests.unit.search_logic.test_rung_gp import *

history = scored(points(EVERY_KIND, 60), awkward, lengths=[100, 300])
print(json.dumps(proposed(EVERY_KIND, history, number=5)))
print("torch" in sys.modules)
"""
EVERY_KIND: Specs = {
    "optimizer": ChoiceSpec(("sgd", "adam")),
    "momentum": FloatSpec(0.5, 0.99, when=(("optimizer", "sgd"),)),
    "lr": FloatSpec(1e-4, 1.0, log=True),
    "layers": IntSpec(2, 9, step=3),
    "width": IntSpec(1, 1000, log=True),
    "fixed": FloatSpec(0.3, 0.3),
}


def awkward(settings: Mapping[str, Any]) -> float:
    return float(np.sin(20 * settings["lr"]) + np.log(settings["width"]) / settings["layers"])


def test_another_process_proposes_the_same_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    there, has_torch = done.stdout.splitlines()
    history = scored(points(EVERY_KIND, 60), awkward, lengths=[100, 300])
    assert json.loads(there) == proposed(EVERY_KIND, history, number=5)
    assert has_torch == "False"


SCORES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 1.0, 1e-300, -1e308, 1e308]),
)
KINDS: dict[str, Any] = {
    "kind": st.sampled_from([ChoiceSpec(("a",)), ChoiceSpec(("a", "b")), ChoiceSpec((1, 2, 4))])
}
OTHERS: dict[str, Any] = {
    "fixed": st.just(FloatSpec(0.3, 0.3)),
    "rate": st.just(FloatSpec(1e-9, 1e9, log=True)),
    "wide": st.just(FloatSpec(-1e308, 1e308)),
    "layers": st.sampled_from([IntSpec(3, 3), IntSpec(1, 7, step=3), IntSpec(0, 10**9)]),
    "width": st.just(IntSpec(1, 1000, log=True)),
    "beside": st.just(FloatSpec(0.0, 1.0, when=(("kind", "a"),))),
}
SPACES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(KINDS, optional=OTHERS).filter(
    lambda specs: "beside" not in specs or "a" in specs["kind"].choices
)


@given(
    specs=SPACES,
    seed=st.integers(0, 2**31 - 1),
    outcomes=st.lists(
        st.one_of(
            st.dictionaries(st.sampled_from([100, 300, 900]), SCORES, max_size=3),
            st.sampled_from(["failed", "infeasible", "running"]),
        ),
        max_size=30,
    ),
)
def test_any_history_gives_a_new_setting_of_the_space(
    specs: Specs, seed: int, outcomes: list[Any]
) -> None:
    settings = points(specs, len(outcomes), seed % 3)
    history = [
        Observation(each, outcome) if isinstance(outcome, dict) else Observation(each, {}, outcome)
        for each, outcome in zip(settings, outcomes, strict=True)
    ]
    tried = {settings_key(each) for each in settings}
    found = propose(
        specs,
        history,
        sampler="rung_gp",
        seed=seed,
        trial_number=START_UP_TRIALS + len(outcomes),
        tried=tried,
        lengths=LENGTHS,
    )
    cube = cube_of(specs)
    if found is None:
        assert cube.num_settings <= len(tried)
    else:
        assert settings_key(found) not in tried
        assert found == cube.searched(found)
        assert all(can_take(specs[key], value) for key, value in found.items())
