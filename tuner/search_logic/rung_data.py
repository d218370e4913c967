"""What of a history a model sees, and as what: a few scores of each length, made alike."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tuner.search_logic.cube import Floats
from tuner.search_logic.history import Observation

# How far above the best one a score is out of reach, in gaps between the best and the median one.
HEADROOM = 0.4
# How far below the best one a score is as poor as can be, in such gaps.
LOWEST = 200.0
# A gap that may be rounding, in shares of the largest score.
TINY = 1e-15


@dataclass(frozen=True, slots=True)
class Lengths:
    """The shortest length at which trials are compared, and the full one, in images."""

    shortest: int
    full: int

    def place(self, length: float) -> float:
        """Where a length lies: evenly in its logarithm, and at 1 for the full one."""
        return math.log1p(length / self.shortest) / math.log1p(self.full / self.shortest)


class Score(NamedTuple):
    """The score that a trial had at a length; the trial by its place in the history."""

    score: float
    trial: int
    length: int


def chosen(history: Sequence[Observation], most: int) -> list[Score]:
    """The scores of the longest lengths, and for a third of the room those of the shortest.

    The long ones alone would all lie where the search has been, and leave a model blind elsewhere.
    """
    by_length: defaultdict[int, list[Score]] = defaultdict(list)
    for trial, seen in enumerate(history):
        for length, score in seen.scores.items():
            by_length[length].append(Score(score, trial, length))
    ranked = [
        sorted(by_length[length], key=lambda each: (-each.score, each.trial))
        for length in sorted(by_length, reverse=True)
    ]
    found = spread(ranked[-1], most // 3)
    taken = set(found)
    for scores in ranked:
        found += spread([each for each in scores if each not in taken], most - len(found))
    return found


def spread(ranked: Sequence[Any], room: int) -> list[Any]:
    """All that are ranked; where there is not room for all, the best and others evenly."""
    if len(ranked) <= room:
        return list(ranked)
    num_best = room // 3
    rest = np.linspace(num_best, len(ranked) - 1, room - num_best).astype(int)
    return [*ranked[:num_best], *(ranked[i] for i in rest)]


def as_targets(scores: Floats) -> Floats:
    """Scores as a model takes them, of mean 0 and variance 1; all 0 where all are alike.

    Differences near the best one count in full, those far below it by their logarithm: how bad a
    poor score is says little of good ones.
    """
    largest = np.abs(scores).max()
    scaled = scores / largest if largest > 0 else scores  # differences stay finite
    below = scaled.max() - scaled
    gap = next((each for each in np.quantile(below, (0.5, 0.75, 1.0)) if each > TINY), None)
    if gap is None:
        return np.zeros(len(scores))
    targets = -np.log(np.minimum(below / gap, LOWEST) + HEADROOM)
    return (targets - targets.mean()) / targets.std()
