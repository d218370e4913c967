"""What this program's search is meant to reach, against what was measured."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

OURS = "tuner-auto"
LONG = 12  # full trainings of time a slot
LARGEST_REGRET = {4: 15.0}  # by slots
LARGEST_SHARE = {4: 0.15, 1: 0.3}
LEAST_TASKS = 14
END = "100"
SHOWN = ("where", "what", "goal", "measured")

Goal = dict[str, Any]
Figures = Mapping[str, Any]


def goals(comparisons: Sequence[Figures]) -> list[Goal]:
    """Each goal that the comparisons tell of, what was measured, and whether it is met.

    Args:
        comparisons: As the JSON file has them.
    """
    return [goal for each in comparisons if OURS in each["algorithms"] for goal in _goals(each)]


def _goals(comparison: Figures) -> Iterator[Goal]:
    algorithms, setting = comparison["algorithms"], comparison["setting"]
    slots = setting["slots"]
    ours = algorithms[OURS]
    peers = [name for name in algorithms if not name.startswith("tuner-")]
    where = f"{comparison['tasks']}, {slots} slots, {setting['full_trainings']:g} full trainings"
    if comparison["tasks"] == "DeepOBS":
        worse = [name for name in peers if ours["against"][name][END]["low"] > 0]
        yield _goal(where, "peers that are better beyond the interval at the end", "none", worse)
    elif setting["full_trainings"] == LONG:
        ahead = [name for name in peers if _rank(algorithms[name]) <= _rank(ours)]
        yield _goal(where, "peers of no higher mean rank at the end", "none", ahead)
        if slots in LARGEST_REGRET:
            regret = ours["regret"][END]["mean"]
            yield _at_most(where, "regret at the end", LARGEST_REGRET[slots], regret)
        if slots in LARGEST_SHARE and ours["time_to_ray"]:
            share = ours["time_to_ray"]["mean"]
            what = "share of the time to stock Ray's end"
            yield _at_most(where, what, LARGEST_SHARE[slots], share)
        for name in (name for name in peers if name.startswith("one-epoch")):
            tasks = ours["against"][name][END]["tasks_better"]
            what = f"tasks with less regret than {name} at the end"
            yield _goal(where, what, f"{LEAST_TASKS} or more", tasks, tasks >= LEAST_TASKS)


def _rank(figures: Figures) -> float:
    return float(figures["rank"][END]["mean"])


def _at_most(where: str, what: str, most: float, measured: float) -> Goal:
    return _goal(where, what, f"{most:g} or less", measured, measured <= most)


def _goal(where: str, what: str, goal: str, measured: Any, is_met: bool | None = None) -> Goal:
    """One goal; a list of what should not be is met while it is empty."""
    is_met = not measured if is_met is None else is_met
    return {"where": where, "what": what, "goal": goal, "measured": measured, "met": is_met}
