"""Every shipped search space loads, and whatever it may propose is valid settings."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.settings.config import flatten
from tuner.settings.load import load_space
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec

SPACES = {
    path.stem: load_space(str(path), [])
    for path in sorted(Path(__file__).parents[2].glob("search_spaces/*"))
}


def values_of(spec: ParameterSpec) -> st.SearchStrategy[Any]:
    """Return a strategy for the values a parameter may take."""
    match spec:
        case ChoiceSpec(choices=choices):
            return st.sampled_from(choices)
        case FloatSpec(low=low, high=high):
            return st.floats(low, high)
        case IntSpec(low=low, high=high, step=step):
            return st.integers(0, (high - low) // step).map(lambda steps: low + steps * step)


def test_the_spaces_of_the_readme_are_shipped() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert SPACES.keys() == {"imagenet_small", "cifar10", "cifar10_lenet", "csv_mining"}
    assert {name for name in SPACES if f"| `{name}` |" in readme} == SPACES.keys()


@pytest.mark.parametrize("name", SPACES)
def test_a_shipped_space_searches_something_and_leaves_nothing_to_say(name: str) -> None:
    assert SPACES[name].parameters
    assert SPACES[name].notes == ()


@pytest.mark.parametrize("name", SPACES)
@given(data=st.data())
def test_every_sample_of_a_shipped_space_is_valid_settings(name: str, data: st.DataObject) -> None:
    space = SPACES[name]
    specs = space.parameters | space.throughput
    sample = {key: data.draw(values_of(spec), key) for key, spec in specs.items()}
    assert sample.items() <= flatten(space.config.with_overrides(sample)).items()
