"""Settings to try first, of an earlier search, a list or none at all, as points of a space."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.search_logic.cube import Settings, settings_key
from tuner.search_logic.sampling import Specs, cube_of
from tuner.settings.space import as_taken, can_take, holds, parents_first


@dataclass(frozen=True, slots=True)
class Points:
    """Settings to try before any that are proposed.

    Attributes:
        settings: In this order, each once.
        num_outside: How many others were left out, having a value outside the space.
        num_repeated: How many others were left out, being there already.
        filled: Keys that some did not set, which have their value of the space there.
        drawn: Keys that some did not set and whose value of the space lies outside of the range:
            drawn there, each time anew.
        source: Where they are from, seen from this search's folder: both may be moved together.
    """

    settings: tuple[Settings, ...] = ()
    num_outside: int = 0
    num_repeated: int = 0
    filled: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    source: str | None = None


def map_points(
    given: Iterable[Mapping[str, Any]],
    specs: Specs,
    fixed: Mapping[str, Any],
    *,
    most: int,
    seed: int,
) -> Points:
    """The first of the given settings that this space holds.

    Keys that are not searched now are dropped. One that is and is not set gets its fixed value, or
    where that lies outside of the range one that is drawn.

    Args:
        given: Settings, the first to try first.
        specs: What is searched now.
        fixed: The value that each key has where it is not searched.
        most: How many to take.
        seed: Of the draws, that follow from it and from a point's place.
    """
    points: dict[frozenset[tuple[str, Any]], Settings] = {}
    num_outside = num_repeated = 0
    missing: set[str] = set()
    for settings in given:
        if len(points) == most:
            break
        own = {**fixed, **_drawn(specs, fixed, seed, len(points))}
        point = _mapped(settings, specs, own)
        if point is None:
            num_outside += 1
        elif settings_key(point) in points:
            num_repeated += 1
        else:
            points[settings_key(point)] = point
            missing |= point.keys() - settings.keys()
    in_order = [key for key in specs if key in missing]
    return Points(
        tuple(points.values()),
        num_outside,
        num_repeated,
        filled=tuple(key for key in in_order if can_take(specs[key], fixed[key])),
        drawn=tuple(key for key in in_order if not can_take(specs[key], fixed[key])),
    )


def _drawn(specs: Specs, fixed: Mapping[str, Any], seed: int, place: int) -> Settings:
    """A value in place of each fixed one that lies outside of its range."""
    without = {
        key: replace(spec, when=()) for key, spec in specs.items() if not can_take(spec, fixed[key])
    }
    cube = cube_of(without)
    return cube.settings_at(cube.sobol_point(seed, place)) if without else {}


def _mapped(settings: Mapping[str, Any], specs: Specs, own: Mapping[str, Any]) -> Settings | None:
    """The settings as a point; None where a value lies outside of the space."""
    point: Settings = {}
    for key, spec in parents_first(specs).items():
        if not holds(spec.when, point):
            continue
        value = settings.get(key, own[key])
        if not can_take(spec, value):
            return None
        point[key] = as_taken(spec, value)
    return point
