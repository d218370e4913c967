"""From simulated searches to figures: regret, rank, time to a rival's end, differences.

Every figure is a mean over tasks, of which each is a mean over seeds; its bracket is the middle
90 % of 1,000 bootstrap samples of the tasks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.benchmarks.search.results import Case, Setting, Store, versioned
from tests.benchmarks.search.simulate import Run, Steps
from tests.benchmarks.search.tasks import Reference

Array = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.int64]]

GRID = np.linspace(0, 1, 401)  # shares of the time at which searches are compared
SHARES = {"25": 100, "50": 200, "100": 400}  # percent of the time: place in the grid
CURVE = slice(0, None, 20)
RIVAL = "ray"
NUM_SAMPLES = 1000
EQUAL = 1e-6  # of regret: below that two searches are level

DEFINITIONS = {
    "regret": "100 x (best known - best score seen) / (best known - median random full training); "
    "best known: at any epoch, of an evolution of 5,000 full trainings (optimum.py) and of every "
    "search in the store",
    "regret_full_length": "the same, with the score at full length of the trial that would be "
    "handed over (the one with the best score seen) in place of the best score seen",
    "before the first score": "a search counts as the 2 % quantile of scores after one epoch",
    "rank": "1 is best, ties are shared, among the algorithms with all seeds; one with fewer seeds "
    "is ranked beside those",
    "time_to_ray": "geometric mean over tasks of the share of the time after which the regret, "
    "mean over seeds, is that of stock Ray at its end; 1 where it never is",
    "against": "regret minus that of another algorithm at equal time, on the seeds that both have; "
    "its bracket is over tasks and, within each, over seeds",
    "tasks_better": "tasks with less regret than that algorithm, mean over seeds; half for level "
    "ones",
    "brackets": "90 % bootstrap over tasks",
    "search_s": "processor seconds of the search's own work, mean",
}


@dataclass(frozen=True, slots=True)
class Curves:
    """Regret of one algorithm at each place of the grid, by task and seed."""

    seeds: Sequence[int]
    seen: Array
    full_length: Array
    runs: Sequence[Run]


def compare(
    store: Store,
    setting: Setting,
    names: Sequence[str],
    references: Mapping[str, Reference],
    num_seeds: int,
) -> dict[str, Any]:
    """The figures of all algorithms in one setting, by name; of those that have no seed with all
    tasks yet, none.

    Args:
        references: Of each task that is compared on.
    """
    found = {name: _load(store, setting, versioned(name), references, num_seeds) for name in names}
    curves = {name: each for name, each in found.items() if each.seeds}
    rng = np.random.default_rng(0)
    samples = rng.integers(len(references), size=(NUM_SAMPLES, len(references)))
    return {
        name: {
            "version": versioned(name).partition("@")[2],
            "seeds": len(curves[name].seeds),
            **_figures(name, curves, samples),
            "per_task": dict(
                zip(references, _rounded(curves[name].seen[:, :, -1].mean(1)), strict=True)
            ),
            **_work(curves[name].runs),
        }
        for name in curves
    }


def _load(
    store: Store,
    setting: Setting,
    name: str,
    references: Mapping[str, Reference],
    num_seeds: int,
) -> Curves:
    """The curves of the seeds that have every task."""
    cases = [[Case(setting, name, task, seed) for task in references] for seed in range(num_seeds)]
    seeds = [
        seed for seed, row in enumerate(cases) if all(store.path(case).exists() for case in row)
    ]
    runs = [[store.read(case) for case in cases[seed]] for seed in seeds]
    return Curves(
        seeds,
        _regrets([[run.seen for run in row] for row in runs], references),
        _regrets([[run.handed_over for run in row] for row in runs], references),
        [run for row in runs for run in row],
    )


def _regrets(steps: Sequence[Sequence[Steps]], references: Mapping[str, Reference]) -> Array:
    """By task, seed and place of the grid, in percent of the scale."""
    scales = list(references.values())
    rows = [
        [
            100 * (scale.best - _on_grid(each, scale.floor)) / (scale.best - scale.median)
            for each, scale in zip(row, scales, strict=True)
        ]
        for row in steps
    ]
    return np.array(rows).reshape(len(steps), len(scales), len(GRID)).swapaxes(0, 1)


def _on_grid(steps: Steps, before: float) -> Array:
    """A step curve's value at each place of the grid."""
    values = np.array([before, *(value for _, value in steps)])
    return values[np.searchsorted([share for share, _ in steps], GRID, side="right")]


def _figures(name: str, curves: Mapping[str, Curves], samples: Places) -> dict[str, Any]:
    mine = curves[name]
    ranks = _ranks(name, curves)
    return {
        "regret": _by_share(mine.seen.mean(1), samples),
        "regret_full_length": _by_share(mine.full_length.mean(1), samples),
        "regret_curve": _rounded(mine.seen.mean((0, 1))[CURVE]),
        "rank": _by_share(ranks, samples),
        "time_to_ray": _time_to_rival(mine, curves[RIVAL], samples) if RIVAL in curves else None,
        "against": {
            other: comparison
            for other in curves
            if _is_compared(name, other) and (comparison := _against(mine, curves[other]))
        },
    }


def _is_compared(name: str, other: str) -> bool:
    """This program with all others, these with the few that stand for a user's other choices."""
    rivals = name.startswith("tuner-") or other == RIVAL or other.startswith("one-epoch")
    return name != other and rivals


def _by_share(values: Array, samples: Places) -> dict[str, Any]:
    """Figures at the shares of the time; `values` by task and place of the grid."""
    return {share: _figure(values[:, place], samples) for share, place in SHARES.items()}


def _against(mine: Curves, other: Curves) -> dict[str, Any]:
    """The difference to another algorithm at the shares of the time; {} without a common seed."""
    differences = np.subtract(*_common(mine, other))
    num_tasks, num_seeds, _ = differences.shape
    if not num_seeds:
        return {}
    rng = np.random.default_rng(0)
    tasks = rng.integers(num_tasks, size=(NUM_SAMPLES, num_tasks, 1))
    seeds = rng.integers(num_seeds, size=(NUM_SAMPLES, num_tasks, num_seeds))
    at_shares = {share: differences[:, :, place] for share, place in SHARES.items()}
    return {
        share: {
            **_bracketed(each.mean(), each[tasks, seeds].mean((1, 2))),
            "tasks_better": float(_better(each.mean(1)).sum()),
        }
        for share, each in at_shares.items()
    }


def _better(differences: Array) -> Array:
    """1 where less, 0.5 where level."""
    better: Array = (differences < -EQUAL) + 0.5 * (np.abs(differences) <= EQUAL)
    return better


def _figure(values: Array, samples: Places) -> dict[str, float]:
    """The mean over tasks and its bracket."""
    return _bracketed(values.mean(), values[samples].mean(1))


def _bracketed(mean: float, means: Array) -> dict[str, float]:
    mean, low, high = _rounded([mean, *np.quantile(means, [0.05, 0.95])])
    return {"mean": mean, "low": low, "high": high}


def _common(one: Curves, two: Curves) -> tuple[Array, Array]:
    """The regrets of both on the seeds that both have."""
    seeds = sorted({*one.seeds} & {*two.seeds})
    first, second = (
        each.seen[:, [list(each.seeds).index(seed) for seed in seeds]] for each in (one, two)
    )
    return first, second


def _ranks(name: str, curves: Mapping[str, Curves]) -> Array:
    """By task and place of the grid, mean over seeds."""
    most = max(len(each.seeds) for each in curves.values())
    others = [each for key, each in curves.items() if key != name and len(each.seeds) == most]
    pairs = [_common(curves[name], other) for other in others]
    lost = [1 - _better(own - theirs).mean(1) for own, theirs in pairs]
    alone = np.ones((len(curves[name].seen), len(GRID)))
    return sum(lost, start=alone)


def _time_to_rival(mine: Curves, rival: Curves, samples: Places) -> dict[str, Any]:
    """As a share of the whole time, on the seeds that both have."""
    own, levels = _common(mine, rival)
    reached = own.mean(1) <= levels[:, :, -1].mean(1)[:, None] + EQUAL
    first = np.where(reached.any(1), GRID[reached.argmax(1)], 1.0)
    logs = np.log(np.maximum(first, GRID[1]))
    figure = {key: round(float(np.exp(log)), 3) for key, log in _exact(logs, samples).items()}
    return {**figure, "tasks_not_reached": int((~reached.any(1)).sum())}


def _exact(values: Array, samples: Places) -> dict[str, float]:
    low, high = np.quantile(values[samples].mean(1), [0.05, 0.95])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}


def _work(runs: Sequence[Run]) -> dict[str, float]:
    return {
        "trials": round(float(np.mean([run.trials for run in runs])), 1),
        "full_trainings": round(float(np.mean([run.full_trainings for run in runs])), 1),
        "busy_share": round(float(np.mean([run.busy_share for run in runs])), 4),
        "search_s": round(float(np.mean([run.search_s for run in runs])), 2),
    }


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 2) for value in values]
