"""What the confirm runs say of each configuration: mean and spread over fresh seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from tuner.study.record import SEED_KEY, Record, TrialRecord


@dataclass(frozen=True, slots=True)
class Confirmed:
    """One configuration and its confirm runs that have ended.

    Args:
        trial_number: The trial of the search that it was.
        runs: Those that are complete, by number.
        scores: Theirs, the best of each run, as it is for a trial.
        num_failed: Runs that failed.
    """

    trial_number: int
    runs: tuple[TrialRecord, ...]
    scores: tuple[float, ...]
    num_failed: int

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
    return sorted(
        (each for each in found if each.runs),
        key=lambda each: (each.num_failed > 0, sign * each.mean, places[each.trial_number]),
    )


def _confirmed(runs: Record, trial_number: int, its_runs: Sequence[TrialRecord]) -> Confirmed:
    complete = tuple(run for run in its_runs if run.state == "complete")
    scores = (runs.best_score(run.number) for run in complete)
    return Confirmed(
        trial_number=trial_number,
        runs=complete,
        scores=tuple(score for score in scores if score is not None),
        num_failed=sum(run.state in ("failed", "infeasible") for run in its_runs),
    )


def describe_confirmed(record: Record, found: Confirmed) -> dict[str, Any]:
    """What `best.yaml` says of it, as plain values."""
    return {
        "metric": record.metric,
        "mean": found.mean,
        "spread": found.spread,
        "scores": list(found.scores),
        "seeds": [run.settings[SEED_KEY] for run in found.runs],
        "score_in_search": record.best_score(found.trial_number),
    }
