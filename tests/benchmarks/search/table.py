"""The figures as a table to read."""

from collections.abc import Mapping
from typing import Any

SHARES = ("25", "50", "100")
HEADS = (
    "algorithm",
    "seeds",
    "regret at 25 %",
    "50 %",
    "100 % of time",
    "at full length",
    "rank at 25 %",
    "50 %",
    "100 %",
    "share of time to stock Ray's end",
    "tasks better than one epoch, best K: 25 %",
    "50 %",
    "100 %",
    "search s",
)


def markdown(algorithms: Mapping[str, Any]) -> str:
    """One row an algorithm, the lowest regret at the end first."""
    rows = sorted(algorithms, key=lambda name: algorithms[name]["regret"]["100"]["mean"])
    best = {share: _hardest(algorithms, share) for share in SHARES}
    lines = [_line(HEADS), "|" + "---|" * len(HEADS)]
    return "\n".join([*lines, *(_line(_cells(name, algorithms[name], best)) for name in rows)])


def _hardest(algorithms: Mapping[str, Any], share: str) -> str | None:
    """The one-epoch rival with the least regret at a share of the time."""
    rivals = [name for name in algorithms if name.startswith("one-epoch")]
    return min(rivals, key=lambda name: algorithms[name]["regret"][share]["mean"], default=None)


def _cells(name: str, figures: Mapping[str, Any], best: Mapping[str, str | None]) -> list[str]:
    time = figures["time_to_ray"]
    against = figures["against"]
    return [
        name,
        str(figures["seeds"]),
        *(f"{figures['regret'][share]['mean']:.1f}" for share in ("25", "50")),
        _bracketed(figures["regret"]["100"], 1),
        _bracketed(figures["regret_full_length"]["100"], 1),
        *(f"{figures['rank'][share]['mean']:.1f}" for share in SHARES),
        _bracketed(time, 2) if time else "",
        *(
            f"{against[rival][share]['tasks_better']:g}"
            if (rival := best[share]) in against
            else ""
            for share in SHARES
        ),
        f"{figures['search_s']:.1f}",
    ]


def _bracketed(figure: Mapping[str, float], digits: int) -> str:
    mean, low, high = (f"{figure[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} [{low}–{high}]"


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"
