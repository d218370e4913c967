"""The figures of searches of equal wall time, on searches whose outcome is known."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.benchmarks.real_figures import best_at, compare, curve_of, run_figures, seconds_to, split

SECONDS = 100.0
BEGAN = 1000.0


def report(at: float, top1: float | None, samples_seen: int = 10) -> dict[str, Any]:
    """A report `at` seconds after the start of the command, of a job that began 8 s before it."""
    stamps = {"started_at": BEGAN + at - 8, "setup_s": 2.0, "reported_at": BEGAN + at}
    return {**stamps, "top1": top1, "samples_seen": samples_seen}


def run(
    system: str, data_path: str, seed: int, curve: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    return {"system": system, "data_path": data_path, "seed": seed, "curve": curve}


RUNS = [
    run("ray", "stock", 0, [(20, 0.3), (90, 0.6)]),
    run("ray", "stock", 1, [(30, 0.5), (60, 0.7), (80, 0.8)]),
    run("optuna", "stock", 0, [(40, 0.5)]),
    run("optuna", "stock", 1, [(10, 0.2), (50, 0.7)]),
    run("ray", "ours", 0, [(25, 0.7), (80, 0.75)]),
    run("ray", "ours", 1, [(40, 0.6), (100, 0.85)]),
    run("tuner", "ours", 0, [(10, 0.7), (50, 0.8)]),
    run("tuner", "ours", 1, [(40, 0.9)]),
]


def test_a_curve_rises_in_time_and_ends_with_the_time() -> None:
    reports = [report(30, 0.4), report(10, 0.2), report(20, 0.2), report(25, None)]
    late = report(100.5, 0.9)
    assert curve_of([*reports, late], BEGAN, SECONDS) == [(10, 0.2), (30, 0.4)]


def test_the_best_is_none_before_the_first_report_and_a_level_is_reached_or_never() -> None:
    curve = [(10.0, 0.2), (30.0, 0.4)]
    assert [best_at(curve, at) for at in (9.9, 10, 29, 30)] == [None, 0.2, 0.2, 0.4]
    assert [seconds_to(curve, level) for level in (0.1, 0.2, 0.3, 0.41)] == [10, 10, 30, None]


def test_what_is_reported_after_the_time_counts_nowhere() -> None:
    in_time = [report(10, 0.2, 10), report(20, 0.5, 20)]
    halved = [report(90, 0.4, 10), report(101, 0.9, 20)]
    too_late = [report(102, 0.95, 10)]
    histories = [(in_time, True), (halved, True), (too_late, False)]
    assert run_figures(histories, BEGAN, SECONDS) == {
        "best_top1": 0.5,
        "first_step_s": 4.0,
        "trials": 2,
        "full_trainings": 1,
        "images_trained": 30,
        "curve": [(10, 0.2), (20, 0.5)],
    }


def test_a_search_without_a_report_has_no_score() -> None:
    figures = run_figures([([], False), ([report(101, 0.9)], False)], BEGAN, SECONDS)
    assert (figures["best_top1"], figures["first_step_s"], figures["curve"]) == (None, None, [])


def test_time_to_ray_is_to_the_mean_of_its_last_scores_and_never_counts_as_the_whole_time() -> None:
    found = compare(RUNS, "stock", SECONDS)
    assert found is not None
    assert found["seeds"] == [0, 1]
    assert found["ray_top1"] == pytest.approx(0.7)
    systems = found["systems"]
    assert systems["ray"]["seconds_to_ray"] == {"0": None, "1": 60}
    assert systems["optuna"]["seconds_to_ray"] == {"0": None, "1": 50}
    assert systems["tuner"]["seconds_to_ray"] == {"0": 10, "1": 40}
    shares = {name: each["share_of_time_to_ray"] for name, each in systems.items()}
    assert shares == {"ray": 0.775, "optuna": 0.707, "tuner": 0.2}


def test_scores_over_time_have_mean_and_range_where_every_seed_has_one() -> None:
    found = compare(RUNS, "stock", SECONDS)
    assert found is not None
    assert found["systems"]["ray"]["best_top1"] == {
        "25": None,
        "50": {"mean": 0.4, "low": 0.3, "high": 0.5},
        "75": {"mean": 0.5, "low": 0.3, "high": 0.7},
        "100": {"mean": 0.7, "low": 0.6, "high": 0.8},
    }


def test_the_comparison_on_our_data_path_shares_the_runs_of_this_program() -> None:
    ours = [*RUNS, run("optuna", "ours", 0, [(5, 0.1)])]
    found = compare(ours, "ours", SECONDS)
    assert found is not None
    assert found["seeds"] == [0]  # the only one that all have
    assert found["ray_top1"] == 0.75
    assert found["systems"]["tuner"]["seconds_to_ray"] == {"0": 50}


def test_there_is_no_comparison_before_all_systems_have_run() -> None:
    assert compare(RUNS, "ours", SECONDS) is None
    assert split(RUNS[:2], SECONDS) is None


def test_the_gains_of_data_path_and_search_make_up_the_whole() -> None:
    assert split(RUNS, SECONDS) == {
        "seeds": [0, 1],
        "ray_top1": pytest.approx(0.7),
        "top1": {"data_path": 0.1, "search": 0.05, "whole": 0.15},
        "time": {"data_path": 0.5, "search": 0.4, "whole": 0.2},
    }
