"""Settings of an earlier search become points of another space, or are left out."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.search_logic.cube import settings_key
from tuner.search_logic.points import Points, map_points
from tuner.search_logic.sampling import Specs, cube_of
from tuner.settings.config import Config, flatten
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, can_take
from tuner.study.record import Record

SPACE: Specs = {
    "optim.lr": FloatSpec(1e-2, 1.0, log=True),
    "train.batch_size": ChoiceSpec((32, 64)),
}
FIXED = flatten(Config())


def points_of(
    *earlier: Mapping[str, Any], specs: Specs = SPACE, most: int = 9, seed: int = 7
) -> Points:
    return map_points(earlier, specs, FIXED, most=most, seed=seed)


def trial(lr: float, batch_size: int = 32, **more: Any) -> dict[str, Any]:
    return {"optim.lr": lr, "train.batch_size": batch_size, **more}


def test_settings_that_fit_are_taken_as_they_are_and_in_their_order() -> None:
    earlier = [trial(0.5), trial(0.1, 64), trial(0.2)]
    assert points_of(*earlier) == Points(tuple(earlier))
    assert points_of(*earlier, most=2) == Points(tuple(earlier[:2]))
    assert points_of() == Points()


def test_a_value_outside_the_space_leaves_its_settings_out_and_the_next_are_taken() -> None:
    outside = [trial(0.001), trial(0.5, 128), trial(2.0)]
    assert points_of(*outside, trial(0.5)) == Points((trial(0.5),), num_outside=3)
    assert points_of(*outside) == Points((), num_outside=3)
    # Those behind the last that is taken are nobody's business.
    assert points_of(trial(0.5), *outside, most=1) == Points((trial(0.5),))


def test_keys_that_are_not_searched_any_more_are_dropped_and_what_is_then_equal_taken_once() -> (
    None
):
    earlier = [{**trial(0.5), "model.name": name} for name in ("lenet", "resnet8")]
    taken = (trial(0.5), trial(0.1))
    assert points_of(*earlier, trial(0.1), most=2) == Points(taken, num_repeated=1)


def test_a_key_that_is_new_gets_its_own_fixed_value() -> None:
    specs = {**SPACE, "optim.momentum": FloatSpec(0.0, 0.95)}
    assert FIXED["optim.momentum"] == 0.9
    filled = {**trial(0.5), "optim.momentum": 0.9}
    assert points_of(trial(0.5), specs=specs) == Points((filled,), filled=("optim.momentum",))


def test_a_new_key_whose_fixed_value_lies_outside_is_drawn_for_each_point() -> None:
    specs: Specs = {
        **SPACE,
        "optim.momentum": ChoiceSpec((0.5, 0.8)),
        "train.label_smoothing": FloatSpec(0.1, 0.2),
    }
    given = [trial(0.1 + k / 100) for k in range(20)]
    points = points_of(*given, trial(2.0), specs=specs, most=99)
    assert points.drawn == ("optim.momentum", "train.label_smoothing")
    assert points.filled == ()
    assert points.num_outside == 1
    for before, point in zip(given, points.settings, strict=True):
        assert {key: point[key] for key in SPACE} == before
        assert all(can_take(spec, point[key]) for key, spec in specs.items())
    assert {point["optim.momentum"] for point in points.settings} == {0.5, 0.8}
    assert len({point["train.label_smoothing"] for point in points.settings}) == 20
    assert points_of(*given, specs=specs, most=99).settings == points.settings
    assert points_of(*given, specs=specs, most=99, seed=8).settings != points.settings
    whole = {**trial(0.1), "optim.momentum": 0.5, "train.label_smoothing": 0.15}
    assert points_of(whole, specs=specs) == Points((whole,))


def test_a_key_is_set_where_its_condition_holds_and_nowhere_else() -> None:
    specs: Specs = {
        "optim.momentum": FloatSpec(0.5, 0.95, when=(("optim.name", "sgd"),)),
        "optim.name": ChoiceSpec(("sgd", "adam")),
    }
    earlier: list[dict[str, Any]] = [
        {"optim.name": "adam", "optim.momentum": 0.6},
        {"optim.name": "sgd", "optim.momentum": 0.7},
        {"optim.name": "sgd"},
        {"optim.momentum": 0.8},  # sgd is the fixed value
    ]
    assert points_of(*earlier, specs=specs).settings == (
        {"optim.name": "adam"},
        {"optim.name": "sgd", "optim.momentum": 0.7},
        {"optim.name": "sgd", "optim.momentum": 0.9},
        {"optim.name": "sgd", "optim.momentum": 0.8},
    )


def test_a_value_is_taken_in_the_type_of_the_space() -> None:
    specs: Specs = {
        "optim.lr": FloatSpec(0.0, 2.0),
        "train.batch_size": IntSpec(1, 99),
        "train.clip_norm": ChoiceSpec((None, 1)),
    }
    taken = points_of(
        {"optim.lr": 1, "train.batch_size": 32.0, "train.clip_norm": 1.0}, specs=specs
    )
    assert [type(value) for value in taken.settings[0].values()] == [float, int, int]
    absent = points_of({"optim.lr": 1, "train.batch_size": 2, "train.clip_norm": None}, specs=specs)
    assert absent.settings[0]["train.clip_norm"] is None


SPACES: st.SearchStrategy[Specs] = st.fixed_dictionaries(
    {},
    optional={
        "optim.lr": st.builds(FloatSpec, st.floats(1e-4, 0.1), st.floats(0.1, 1.0), st.booleans()),
        "train.batch_size": st.sampled_from([IntSpec(8, 256, 8), ChoiceSpec((16, 128))]),
        "optim.name": st.sampled_from([ChoiceSpec(("sgd", "adam")), ChoiceSpec(("sgd",))]),
        "optim.weight_decay": st.sampled_from([FloatSpec(0.0, 0.1), FloatSpec(1e-5, 1e-2, True)]),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=SPACES, now=SPACES, seed=st.integers(0, 999), most=st.integers(1, 6))
def test_every_point_is_a_new_point_of_the_space_that_a_record_takes(
    quick_path: Path, before: Specs, now: Specs, seed: int, most: int
) -> None:
    earlier: list[dict[str, Any]] = []
    for number in range(8):
        cube = cube_of(before)
        earlier.append(cube.settings_at(cube.sobol_point(seed, number)))
    points = map_points(earlier, now, FIXED, most=most, seed=seed)
    assert len(points.settings) <= most
    assert len({settings_key(each) for each in points.settings}) == len(points.settings)
    assert len(points.settings) + points.num_outside + points.num_repeated <= len(earlier)
    with tempfile.TemporaryDirectory(dir=quick_path) as folder:
        record = Record.open(
            Path(folder),
            name="s",
            metric="top1",
            direction="maximize",
            parameters=now,
            data_fingerprint="",
            settings_plain={},
        )
        for point in points.settings:
            assert point.keys() == now.keys()
            assert all(can_take(spec, point[key]) for key, spec in now.items())
            assert record.add_trial(point).settings == point
