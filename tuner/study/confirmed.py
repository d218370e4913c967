"""What the confirm runs say of each configuration: mean and spread over fresh seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from tuner.study.interval import (
    LEVEL,
    SeedSpread,
    are_told_apart,
    prediction_interval,
    seed_spread,
)
from tuner.study.record import SEED_KEY, Record, TrialRecord


@dataclass(frozen=True, slots=True)
class Confirmed:
    """One configuration and its confirm runs that have ended.

    Args:
        trial_number: The trial of the search that it was.
        runs: Those that are complete, by number.
        scores: Theirs, the best of each run, as it is for a trial.
        num_failed: Runs that failed.
        seed_spread: Of all configurations together; None where each has one run.
        interval: What one more run scores, on another seed, nine times in ten.
    """

    trial_number: int
    runs: tuple[TrialRecord, ...]
    scores: tuple[float, ...]
    num_failed: int
    seed_spread: SeedSpread | None = None
    interval: tuple[float, float] | None = None

    @property
    def mean(self) -> float:
        """Mean score over the seeds."""
        return fmean(self.scores)

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over the seeds; None for a single one."""
        return stdev(self.scores) if len(self.scores) > 1 else None

    def best_first(self, direction: str) -> list[TrialRecord]:
        """The runs, the one with the best score first, of equals the earliest."""
        sign = -1 if direction == "maximize" else 1
        places = sorted(range(len(self.runs)), key=lambda place: sign * self.scores[place])
        return [self.runs[place] for place in places]


def confirmed_trials(record: Record, runs: Record) -> list[int]:
    """The trial of the search that each confirm run repeats, in the order of the runs."""
    numbers = {frozenset(trial.settings.items()): trial.number for trial in record.trials}
    return [
        numbers[frozenset((key, run.settings[key]) for key in run.settings if key != SEED_KEY)]
        for run in runs.trials
    ]


def confirmed(record: Record, runs: Record) -> list[Confirmed]:
    """The configurations with a complete confirm run, the one to choose first.

    One that failed on a seed comes behind all that did not; then the mean decides, and of equal
    ones the better trial of the search.

    Args:
        record: The trials of the search.
        runs: The confirm runs.
    """
    of_trial: dict[int, list[TrialRecord]] = {}
    for number, run in zip(confirmed_trials(record, runs), runs.trials, strict=True):
        of_trial.setdefault(number, []).append(run)
    found = [_confirmed(runs, number, each) for number, each in of_trial.items()]
    places = {trial.number: place for place, trial in enumerate(record.ranked())}
    sign = -1 if record.direction == "maximize" else 1
    ranking = sorted(
        (each for each in found if each.runs),
        key=lambda each: (each.num_failed > 0, sign * each.mean, places[each.trial_number]),
    )
    spread = seed_spread(each.scores for each in ranking)
    return [_with_interval(each, spread, record.metric) for each in ranking]


def rival(ranking: Sequence[Confirmed]) -> Confirmed | None:
    """The second configuration, where its runs do not tell it apart from the first; else None.

    Of one that comes second because a run of it failed, the scores tell nothing.
    """
    if len(ranking) < 2:
        return None
    first, second = ranking[:2]
    spread = first.seed_spread
    if spread is None or (first.num_failed > 0) != (second.num_failed > 0):
        return None
    return None if are_told_apart(first.scores, second.scores, spread) else second


def _with_interval(found: Confirmed, spread: SeedSpread | None, metric: str) -> Confirmed:
    if spread is None:
        return found
    highest = math.inf if metric.endswith("loss") else 1.0
    interval = prediction_interval(found.scores, spread, highest=highest)
    return replace(found, seed_spread=spread, interval=interval)


def _confirmed(runs: Record, trial_number: int, its_runs: Sequence[TrialRecord]) -> Confirmed:
    complete = tuple(run for run in its_runs if run.state == "complete")
    scores = (runs.best_score(run.number) for run in complete)
    return Confirmed(
        trial_number=trial_number,
        runs=complete,
        scores=tuple(score for score in scores if score is not None),
        num_failed=sum(run.state in ("failed", "infeasible") for run in its_runs),
    )


def shrinkage(record: Record, found: Confirmed) -> float | None:
    """How much worse the mean is than the score in the search.

    None where that was of no whole training: a trial that was stopped early has not shown its best.
    """
    in_search = record.best_score(found.trial_number)
    if in_search is None or record.trials[found.trial_number].state != "complete":
        return None
    return in_search - found.mean if record.direction == "maximize" else found.mean - in_search


def describe_confirmed(
    record: Record, found: Confirmed, not_told_apart: Confirmed | None = None
) -> dict[str, Any]:
    """What `best.yaml` says of it, as plain values.

    Args:
        record: The trials of the search.
        found: The configuration.
        not_told_apart: The next one, where the runs do not tell the two apart.
    """
    spread = found.seed_spread
    return {
        "metric": record.metric,
        "mean": found.mean,
        "spread": found.spread,
        "interval": list(found.interval) if found.interval else None,
        "interval_level": LEVEL,
        "pooled_spread": spread.deviation if spread else None,
        "degrees_of_freedom": spread.degrees_of_freedom if spread else 0,
        "scores": list(found.scores),
        "seeds": [run.settings[SEED_KEY] for run in found.runs],
        "score_in_search": record.best_score(found.trial_number),
        "shrinkage": shrinkage(record, found),
        "not_told_apart_from": not_told_apart.trial_number if not_told_apart else None,
    }
