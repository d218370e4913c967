"""The best settings of an earlier search as points of this one's space."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import StudyError
from tuner.search_logic.cube import Settings, holds, settings_key
from tuner.search_logic.sampling import Specs, parents_first
from tuner.settings.space import as_taken, can_take, spec_to_plain
from tuner.settings.wording import shown


@dataclass(frozen=True, slots=True)
class Points:
    """Settings to try before any that are proposed.

    Attributes:
        settings: In this order, each once.
        num_outside: How many others were left out, having a value outside the space.
        source: The earlier search's folder, seen from this one's: both may be moved together.
    """

    settings: tuple[Settings, ...] = ()
    num_outside: int = 0
    source: str | None = None


def map_points(
    earlier: Iterable[Mapping[str, Any]], specs: Specs, fixed: Mapping[str, Any], *, most: int
) -> Points:
    """The first of the earlier settings that this space holds.

    Keys that are not searched now are dropped; one that is and was not gets its fixed value.

    Args:
        earlier: Settings of the earlier search, the best first.
        specs: What is searched now.
        fixed: The value that each key has where it is not searched.
        most: How many to take.

    Raises:
        StudyError: The fixed value of such a key lies outside the space; a line for each.
    """
    points: dict[frozenset[tuple[str, Any]], Settings] = {}
    num_outside = 0
    for settings in earlier:
        if len(points) == most:
            break
        point = _mapped(settings, specs, fixed)
        if point is None:
            num_outside += 1
        else:
            points.setdefault(settings_key(point), point)
    return Points(tuple(points.values()), num_outside)


def _mapped(settings: Mapping[str, Any], specs: Specs, fixed: Mapping[str, Any]) -> Settings | None:
    point: Settings = {}
    problems = []
    for key, spec in parents_first(specs).items():
        if not holds(spec.when, point):
            continue
        value = settings[key] if key in settings else fixed[key]
        if can_take(spec, value):
            point[key] = as_taken(spec, value)
        elif key in settings:
            return None
        else:
            problems.append(
                f"search.points: {key} is not set there, and its own value ({shown(value)}) is "
                f"not in {json.dumps(spec_to_plain(spec))}; write one that is into the space file, "
                "or leave search.points out"
            )
    if problems:
        raise StudyError(*problems)
    return point
