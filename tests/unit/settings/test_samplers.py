"""A sampler that cannot propose the parameters is refused before anything starts."""

import pytest

from tuner.settings import samplers
from tuner.settings.samplers import find_sampler_problems
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec

LISTED = {
    "optim.lr": ChoiceSpec((0.1, 1.0)),
    "train.batch_size": IntSpec(32, 256, step=32),
    "optim.momentum": FloatSpec(0.9, 0.9),
}


def lines(*arguments: object) -> list[str]:
    return [problem.line for problem in find_sampler_problems(*arguments)]  # type: ignore[arg-type]


def test_a_grid_takes_whatever_has_values_to_list() -> None:
    assert lines("grid", LISTED) == []
    assert lines("grid", {}) == []


def test_a_grid_refuses_every_range_of_numbers_by_name() -> None:
    ranges = {
        "optim.lr": FloatSpec(1e-3, 1.0, log=True),
        "optim.weight_decay": FloatSpec(0.0, 0.1, when=(("optim.name", "sgd"),)),
    }
    assert lines("grid", LISTED | ranges) == [
        "search.sampler: grid tries every value, and parameters.optim.lr is a range "
        '({"log": [0.001, 1.0]}); list choices or use another sampler',
        "search.sampler: grid tries every value, and parameters.optim.weight_decay is a range "
        '({"float": [0.0, 0.1], "when": {"optim.name": "sgd"}}); list choices or use another '
        "sampler",
    ]
    assert lines("rung_gp", LISTED | ranges) == []


def test_a_grid_refuses_more_combinations_than_it_can_list() -> None:
    wide = {"model.width": IntSpec(1, 10_000), "train.batch_size": IntSpec(1, 11)}
    assert lines("grid", wide) == [
        "search.sampler: grid has too many combinations (110000); use at most 100000, or another "
        "sampler"
    ]


@pytest.mark.parametrize(("is_there", "told"), [(True, []), (False, ["cmaes"])])
def test_cmaes_without_its_package_says_how_to_get_it(
    is_there: bool, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samplers, "find_spec", lambda name: name if is_there else None)
    assert lines("cmaes", LISTED) == [
        f"search.sampler: {name} is not installed; pip install -e '.[cmaes]'" for name in told
    ]
    assert lines("tpe", LISTED) == []
