"""Which parameters a sampler can propose, and which packages it needs."""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from math import isinf, prod

from tuner.settings.checks import Problem
from tuner.settings.space import ParameterSpec, num_values, spec_to_plain

SAMPLER_KEY = "search.sampler"
# Optuna lists every combination of a grid beforehand.
LARGEST_GRID = 100_000


def find_sampler_problems(sampler: str, parameters: Mapping[str, ParameterSpec]) -> list[Problem]:
    """Why a sampler cannot propose these parameters, if it cannot; without importing it."""
    if sampler == "cmaes" and find_spec("cmaes") is None:
        line = f"{SAMPLER_KEY}: cmaes is not installed; pip install -e '.[cmaes]'"
        return [Problem((SAMPLER_KEY,), line)]
    return _grid_problems(parameters) if sampler == "grid" else []


def _grid_problems(parameters: Mapping[str, ParameterSpec]) -> list[Problem]:
    ranges = {key: spec for key, spec in parameters.items() if isinf(num_values(spec))}
    if ranges:
        return [
            Problem(
                (SAMPLER_KEY, f"parameters.{key}"),
                f"{SAMPLER_KEY}: grid tries every value, and parameters.{key} is a range "
                f"({json.dumps(spec_to_plain(spec))}); list choices or use another sampler",
            )
            for key, spec in ranges.items()
        ]
    size = prod(int(num_values(spec)) for spec in parameters.values())
    if size <= LARGEST_GRID:
        return []
    line = (
        f"{SAMPLER_KEY}: grid has too many combinations ({size}); use at most {LARGEST_GRID}, "
        "or another sampler"
    )
    return [Problem((SAMPLER_KEY,), line)]
