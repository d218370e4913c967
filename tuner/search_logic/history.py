"""What a sampler is told of a search: how far each trial got, and how well it did on the way."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["seen", "running", "failed", "infeasible"]
Outcome = float | Literal["running", "failed", "infeasible"]

# Below this many scores beyond the number of parameters a model knows nothing (BOHB's rule).
ENOUGH_BEYOND_PARAMETERS = 3


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one trial.

    Attributes:
        scores: The finite score at each length that it reached; the higher is better.
        state: ``failed`` where its settings made it fail, ``infeasible`` where they do not fit into
            memory: neither has scores.
    """

    settings: Mapping[str, Any]
    scores: Mapping[int, float] = field(default_factory=dict)
    state: State = "seen"


@dataclass(frozen=True, slots=True)
class OneScore:
    """What is known of one trial where trials are compared at one length alone."""

    settings: Mapping[str, Any]
    outcome: Outcome


def has_enough(history: Sequence[Observation], num_parameters: int) -> bool:
    """Whether there are enough scores, of all lengths together, for a model."""
    num_scores = sum(len(seen.scores) for seen in history)
    return num_scores >= num_parameters + ENOUGH_BEYOND_PARAMETERS


def at_one_length(history: Sequence[Observation], num_parameters: int) -> list[OneScore]:
    """The history at the longest length that has enough scores for a model; [] without one.

    Trials that stay below it are left out: told with their early score, or ranked behind, they
    would make a model worse than random proposals. One that runs and has no score yet remains.
    """
    counted = Counter(length for seen in history for length in seen.scores)
    enough = num_parameters + ENOUGH_BEYOND_PARAMETERS
    length = max((each for each, number in counted.items() if number >= enough), default=None)
    if length is None:
        return []
    return [
        OneScore(seen.settings, outcome)
        for seen in history
        if (outcome := _outcome(seen, length)) is not None
    ]


def _outcome(seen: Observation, length: int) -> Outcome | None:
    match seen.state:
        case "failed" | "infeasible" as state:
            return state
        case "running" if not seen.scores:
            return "running"
    return seen.scores.get(length)
