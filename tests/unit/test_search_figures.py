"""The figures of a comparison of searches, on searches whose outcome is known."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.search.figures import compare
from tests.benchmarks.search.goals import goals
from tests.benchmarks.search.results import Case, Setting, Store, versioned
from tests.benchmarks.search.simulate import Run, Steps
from tests.benchmarks.search.table import markdown
from tests.benchmarks.search.tasks import Reference

SETTING = Setting(slots=4, full_trainings=12)
# Regret is 100 at a score of 0.6, 0 at 1.0, and 150 before the first score.
SCALE = Reference(best=1.0, median=0.6, floor=0.4, full_s=1.0)
RIVALS: Mapping[str, Steps] = {
    "ray": [(0.1, 0.6), (0.8, 0.8)],
    "one-epoch-top10": [(0.4, 0.7)],
    "one-epoch-top25": [(0.4, 0.8)],
}


def compared(
    folder: Path,
    searches: Mapping[str, Steps],
    *,
    tasks: Sequence[str] = ("a", "b"),
    seeds: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The figures of searches that go alike on every task and seed, two seeds where not said."""
    store = Store(folder)
    for name, steps in searches.items():
        for task in tasks:
            for seed in range((seeds or {}).get(name, 2)):
                run = Run(seen=steps, handed_over=[(at, score - 0.1) for at, score in steps])
                store.write(Case(SETTING, versioned(name), task, seed), run)
    return compare(store, SETTING, list(searches), dict.fromkeys(tasks, SCALE), num_seeds=2)


def means(figures: Mapping[str, Any]) -> list[float]:
    return [figures[share]["mean"] for share in ("25", "50", "100")]


def test_regret_is_from_the_best_known_on_the_scale_of_random_trainings(tmp_path: Path) -> None:
    figures = compared(tmp_path, {"random": [(0.25, 0.6), (0.5025, 0.9), (1.0, 1.0)]})["random"]
    assert means(figures["regret"]) == [100, 100, 0]
    assert means(figures["regret_full_length"]) == [125, 125, 25]
    assert figures["regret_curve"][0] == 150
    assert figures["regret_curve"][11] == 25
    assert figures["per_task"] == {"a": 0, "b": 0}


def test_ranks_share_ties_and_set_algorithms_of_fewer_seeds_beside_the_rest(
    tmp_path: Path,
) -> None:
    searches = {**RIVALS, "random": [(0.1, 0.6)], "optuna-gp": [(0.2, 0.75)]}
    figures = compared(tmp_path, searches, seeds={"optuna-gp": 1})
    ranks = {name: means(each["rank"]) for name, each in figures.items()}
    assert ranks == {
        "ray": [1.5, 3.5, 1.5],
        "random": [1.5, 3.5, 4],
        "one-epoch-top10": [3.5, 2, 3],
        "one-epoch-top25": [3.5, 1, 1.5],
        "optuna-gp": [1, 2, 3],
    }
    assert figures["optuna-gp"]["seeds"] == 1


def test_the_time_to_stock_ray_is_when_its_last_regret_is_reached(tmp_path: Path) -> None:
    searches = {**RIVALS, "random": [(0.2, 0.8)]}
    figures = compared(tmp_path, searches)
    assert figures["random"]["time_to_ray"] == {
        "mean": 0.2,
        "low": 0.2,
        "high": 0.2,
        "tasks_not_reached": 0,
    }
    assert figures["ray"]["time_to_ray"]["mean"] == 0.8
    assert figures["one-epoch-top10"]["time_to_ray"]["mean"] == 1
    assert figures["one-epoch-top10"]["time_to_ray"]["tasks_not_reached"] == 2


def test_two_searches_are_compared_at_equal_time_and_level_tasks_count_half(
    tmp_path: Path,
) -> None:
    against = compared(tmp_path, RIVALS)["ray"]["against"]
    assert set(against) == {"one-epoch-top10", "one-epoch-top25"}
    assert means(against["one-epoch-top10"]) == [-50, 25, -25]
    assert [each["tasks_better"] for each in against["one-epoch-top10"].values()] == [2, 0, 2]
    assert means(against["one-epoch-top25"]) == [-50, 50, 0]
    assert [each["tasks_better"] for each in against["one-epoch-top25"].values()] == [2, 0, 1]


def test_a_difference_has_the_luck_of_seeds_in_its_bracket(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name, scores in (("random", (0.6, 0.6)), ("ray", (0.8, 0.6))):
        for seed, score in enumerate(scores):
            store.write(Case(SETTING, versioned(name), "a", seed), Run(seen=[(0.1, score)]))
    figures = compare(store, SETTING, ["random", "ray"], {"a": SCALE}, num_seeds=2)
    assert figures["random"]["against"]["ray"]["100"] == {
        "mean": 25,
        "low": 0,
        "high": 50,
        "tasks_better": 0,
    }


def test_brackets_come_from_the_tasks(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for task, score in (("a", 0.6), ("b", 1.0)):
        store.write(Case(SETTING, versioned("random"), task, 0), Run(seen=[(0.1, score)]))
    figures = compare(store, SETTING, ["random"], {"a": SCALE, "b": SCALE}, num_seeds=1)
    assert figures["random"]["regret"]["100"] == {"mean": 50, "low": 0, "high": 100}


def test_only_seeds_with_every_task_count_and_only_of_the_version_asked_for(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    run = Run(seen=[(0.1, 0.8)])
    for task, seed in (("a", 0), ("b", 0), ("a", 1)):
        store.write(Case(SETTING, versioned("random"), task, seed), run)
    store.write(Case(SETTING, "random@older", "a", 0), run)
    names = ["random", "random@older", "ray"]
    figures = compare(store, SETTING, names, {"a": SCALE, "b": SCALE}, num_seeds=2)
    assert list(figures) == ["random"]
    assert figures["random"]["seeds"] == 1
    assert store.best_seen("a") == 0.8


def test_the_table_has_the_least_regret_first(tmp_path: Path) -> None:
    rows = markdown(compared(tmp_path, RIVALS)).splitlines()
    assert [row.split(" | ")[0] for row in rows[2:]] == [
        "| ray",
        "| one-epoch-top25",
        "| one-epoch-top10",
    ]
    assert rows[2] == (
        "| ray | 2 | 100.0 | 100.0 | 50.0 [50.0–50.0] | 75.0 [75.0–75.0] | 1.0 | 3.0 | 1.5 "
        "| 0.80 [0.80–0.80] | 2 | 0 | 1 | 0.0 |"
    )


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    case = Case(SETTING, "random@1", "a", 0)
    run = Run([(0.1, 0.5)], [(0.1, 0.6), (0.2, 0.7)], 3, 4, 50, 2, 0.99, 1.25)
    store.write(case, run)
    assert store.read(case) == run
    with pytest.raises(FileNotFoundError):
        store.read(Case(SETTING, "random@1", "a", 1))


def test_the_time_to_a_rival_is_told_on_the_seeds_that_both_have(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name, seed, score in (("random", 0, 0.8), ("random", 1, 0.7), ("ray", 0, 0.8)):
        store.write(Case(SETTING, versioned(name), "a", seed), Run(seen=[(0.5, score)]))
    figures = compare(store, SETTING, ["random", "ray"], {"a": SCALE}, num_seeds=2)
    assert figures["random"]["time_to_ray"]["mean"] == 0.5
    assert figures["random"]["against"]["ray"]["100"]["mean"] == 0


def comparison(ours: Mapping[str, Any], slots: int = 4, tasks: str = "LCBench") -> dict[str, Any]:
    """One in which this program meets every goal, but for what is given."""
    end = {"tasks_better": 14.0, "low": -3.0}
    figures: dict[str, Any] = {
        "rank": {"100": {"mean": 2.0}},
        "regret": {"100": {"mean": 15.0}},
        "time_to_ray": {"mean": 0.15},
        "against": {name: {"100": end} for name in ("ray", "one-epoch-top25")},
    }
    others = {"rank": {"100": {"mean": 2.1}}}
    return {
        "tasks": tasks,
        "setting": {"slots": slots, "full_trainings": 12.0},
        "algorithms": {
            "tuner-auto": {**figures, **ours},
            "tuner-random": {"rank": {"100": {"mean": 1.0}}},
            "ray": others,
            "one-epoch-top25": others,
        },
    }


def missed(*comparisons: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(each["what"], each["measured"]) for each in goals(comparisons) if not each["met"]]


def test_goals_are_met_up_to_their_bounds() -> None:
    assert missed(*(comparison({}, slots) for slots in (1, 4, 8))) == []
    assert missed(comparison({}, tasks="DeepOBS")) == []
    told = [(each["where"], each["goal"]) for each in goals([comparison({})])]
    assert told == [
        ("LCBench, 4 slots, 12 full trainings", goal)
        for goal in ("none", "15 or less", "0.15 or less", "14 or more")
    ]


@pytest.mark.parametrize(
    ("ours", "what", "measured"),
    [
        (
            {"rank": {"100": {"mean": 2.1}}},
            "peers of no higher mean rank at the end",
            ["ray", "one-epoch-top25"],
        ),
        ({"regret": {"100": {"mean": 15.1}}}, "regret at the end", 15.1),
        ({"time_to_ray": {"mean": 0.16}}, "share of the time to stock Ray's end", 0.16),
        (
            {"against": {"one-epoch-top25": {"100": {"tasks_better": 13.5}}}},
            "tasks with less regret than one-epoch-top25 at the end",
            13.5,
        ),
    ],
)
def test_a_missed_goal_says_by_how_much(ours: dict[str, Any], what: str, measured: Any) -> None:
    assert missed(comparison(ours)) == [(what, measured)]


def test_a_peer_is_better_only_beyond_the_interval() -> None:
    against = {"ray": {"100": {"low": 0.1}}, "one-epoch-top25": {"100": {"low": 0.0}}}
    found = missed(comparison({"against": against}, tasks="DeepOBS"))
    assert found == [("peers that are better beyond the interval at the end", ["ray"])]
