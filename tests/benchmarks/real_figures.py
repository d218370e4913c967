"""From the reports of searches of equal wall time to figures: curves, times to a level, gains."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, geometric_mean
from typing import Any, TypeAlias

Report: TypeAlias = Mapping[str, Any]
Curve: TypeAlias = Sequence[Sequence[float]]  # (seconds, best top-1 so far), each better
Run: TypeAlias = Mapping[str, Any]

SHARES = (25, 50, 75, 100)  # percent of the time
ROUNDING = 1e-9  # a mean of equal scores is not above them

DEFINITIONS = {
    "git_commit": "of the whole file: when it was last written; each run has that of its own code",
    "curve": "[seconds since the start of the command, best top-1 so far], a pair for each report "
    "that is better than all before; top-1 is on all validation images, of reports within the time",
    "trials": "with a report within the time; full_trainings: those of them that reached full "
    "length; images_trained: up to their last reports",
    "first_step_s": "from the start of the command to the first training step of a job that has "
    "reported within the time; null without one",
    "comparisons": "stock: ray and optuna read images by ImageFolder and DataLoader; ours: by this "
    "program's cache, loader and augmentation, made within the time. The runs of tuner, which "
    "always has its own, are the same in both. Only seeds that all systems have",
    "best_top1": "by percent of the time: mean, lowest and highest over seeds; null where a seed "
    "has no report yet",
    "seconds_to_ray": "of each seed, the first second at which the best so far is ray_top1 (the "
    "mean over seeds of the final best of ray in the same comparison) or more; null: never",
    "share_of_time_to_ray": "geometric mean over seeds of those seconds over the whole time; never "
    "counts as the whole time",
    "split": "of what tuner gains on ray on the stock path: data_path is ray stock -> ray ours, "
    "search is ray ours -> tuner (all that is not the data path: proposals, stopping, starts of "
    "trials, training step). top1: differences of the mean best at the end, which add up; time: "
    "ratios of the geometric mean seconds to ray_top1 of the stock comparison, of which "
    "data_path's is over the whole time, and which multiply to whole; never counts as there",
}


def curve_of(reports: Iterable[Report], began: float, seconds: float) -> list[tuple[float, float]]:
    """The best top-1 so far at each time it rose, up to `seconds` after `began` (Unix seconds)."""
    curve: list[tuple[float, float]] = []
    for report in sorted(reports, key=lambda each: each["reported_at"]):
        at, top1 = report["reported_at"] - began, report["top1"]
        if at <= seconds and top1 is not None and (not curve or top1 > curve[-1][1]):
            curve.append((round(at, 2), top1))
    return curve


def best_at(curve: Curve, seconds: float) -> float | None:
    """The best top-1 by then; None before the first report."""
    return max((top1 for at, top1 in curve if at <= seconds), default=None)


def seconds_to(curve: Curve, level: float) -> float | None:
    """When the best top-1 first was `level` or more; None: never."""
    return next((at for at, top1 in curve if top1 >= level - ROUNDING), None)


def run_figures(
    histories: Iterable[tuple[Sequence[Report], bool]], began: float, seconds: float
) -> dict[str, Any]:
    """The figures of one search.

    Args:
        histories: Of each trial the reports, in order, and whether it was trained in full.
        began: Start of the command, in Unix seconds.
        seconds: The time that it had.
    """
    within = []
    for reports, is_complete in histories:
        seen = [each for each in reports if each["reported_at"] - began <= seconds]
        if seen:
            within.append((seen, is_complete and len(seen) == len(reports)))
    everything = [report for reports, _ in within for report in reports]
    first_steps = [each["started_at"] + each["setup_s"] - began for each in everything]
    curve = curve_of(everything, began, seconds)
    return {
        "best_top1": best_at(curve, seconds),
        "first_step_s": round(min(first_steps), 2) if first_steps else None,
        "trials": len(within),
        "full_trainings": sum(is_complete for _, is_complete in within),
        "images_trained": sum(reports[-1]["samples_seen"] for reports, _ in within),
        "curve": curve,
    }


def compare(runs: Sequence[Run], data_path: str, seconds: float) -> dict[str, Any] | None:
    """The figures of one comparison; None as long as no seed has a run of every system."""
    by_system = {
        "ray": curves_of(runs, "ray", data_path),
        "optuna": curves_of(runs, "optuna", data_path),
        "tuner": curves_of(runs, "tuner", "ours"),
    }
    seeds = sorted(set.intersection(*map(set, by_system.values())))
    if not seeds:
        return None
    curves = {name: {seed: found[seed] for seed in seeds} for name, found in by_system.items()}
    level = final_mean(curves["ray"].values(), seconds)
    return {
        "seeds": seeds,
        "ray_top1": level,
        "systems": {name: system_figures(found, level, seconds) for name, found in curves.items()},
    }


def split(runs: Sequence[Run], seconds: float) -> dict[str, Any] | None:
    """What the data path and what the search gain; None where a seed or a final score lacks."""
    stock, ours, tuner = (
        curves_of(runs, *each) for each in (("ray", "stock"), ("ray", "ours"), ("tuner", "ours"))
    )
    seeds = sorted({*stock} & {*ours} & {*tuner})
    sides = [[found[seed] for seed in seeds] for found in (stock, ours, tuner)]
    before, with_path, with_all = (final_mean(side, seconds) for side in sides)
    if before is None or with_path is None or with_all is None:
        return None
    path_s, all_s = (geometric_mean(times_to(side, before, seconds)) for side in sides[1:])
    return {
        "seeds": seeds,
        "ray_top1": before,
        "top1": {
            "data_path": round(with_path - before, 4),
            "search": round(with_all - with_path, 4),
            "whole": round(with_all - before, 4),
        },
        "time": {
            "data_path": round(path_s / seconds, 3),
            "search": round(all_s / path_s, 3),
            "whole": round(all_s / seconds, 3),
        },
    }


def curves_of(runs: Sequence[Run], system: str, data_path: str) -> dict[int, Curve]:
    """The curves of a system on a data path, by seed."""
    wanted = (system, data_path)
    return {
        run["seed"]: run["curve"] for run in runs if (run["system"], run["data_path"]) == wanted
    }


def final_mean(curves: Iterable[Curve], seconds: float) -> float | None:
    """The mean best top-1 at the end; None without curves, or where one is empty."""
    finals = [best_at(curve, seconds) for curve in curves]
    known = [each for each in finals if each is not None]
    return fmean(known) if known and len(known) == len(finals) else None


def system_figures(
    curves: Mapping[int, Curve], level: float | None, seconds: float
) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "best_top1": {
            str(share): mean_and_range(
                [best_at(curve, seconds * share / 100) for curve in curves.values()]
            )
            for share in SHARES
        }
    }
    if level is None:
        return {**figures, "seconds_to_ray": None, "share_of_time_to_ray": None}
    times = times_to(curves.values(), level, seconds)
    return {
        **figures,
        "seconds_to_ray": {str(seed): seconds_to(curve, level) for seed, curve in curves.items()},
        "share_of_time_to_ray": round(geometric_mean(times) / seconds, 3),
    }


def times_to(curves: Iterable[Curve], level: float, seconds: float) -> list[float]:
    """Seconds to the level of each curve; the whole time where it is never reached."""
    found = [seconds_to(curve, level) for curve in curves]
    return [seconds if each is None else each for each in found]


def mean_and_range(values: Sequence[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return {"mean": round(fmean(known), 4), "low": min(known), "high": max(known)}
