"""Which configurations are trained again on fresh seeds: they follow from the search's record."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tuner.search_logic.cube import Settings, settings_key
from tuner.search_logic.jobs import Jobs
from tuner.search_logic.keeping import Held
from tuner.study.confirmed import Confirmed, confirmed
from tuner.study.record import SEED_KEY, Record


def confirm_points(record: Record, *, top: int, num_seeds: int, seed: int) -> list[Settings]:
    """The settings of the confirm runs: the best `top` trials on each of the seeds after `seed`.

    Seed by seed, so that whatever has been trained compares all of them.
    """
    best = [trial for trial in record.ranked()[:top] if record.best_score(trial.number) is not None]
    return [
        {**trial.settings, SEED_KEY: seed + 1 + offset}
        for offset in range(num_seeds)
        for trial in best
    ]


def confirm_jobs(
    runs: Record, points: Sequence[Settings], *, total_samples: int, max_failures: int
) -> Jobs:
    """Hands out the confirm runs that the record `runs` does not have yet, each in full."""
    wanted = {settings_key(point) for point in points}
    others = sum(settings_key(run.settings) not in wanted for run in runs.trials)
    return Jobs(
        runs,
        {},
        points=points,
        trials=len(points) + others,
        sampler="random",
        scheduler="none",
        rungs=[total_samples],
        reduction_factor=2,
        max_failures=max_failures,
        seed=0,
    )


@dataclass(frozen=True, slots=True)
class BestRuns:
    """The choice among the confirm runs: of a configuration one alone is handed over.

    That is its best one, or the best of those that have their checkpoint.

    Attributes:
        record: Of the trials.
        runs: Of the confirm runs.
        top: As for `confirm_points`, and so on.
    """

    record: Record
    runs: Record
    top: int
    num_seeds: int
    seed: int

    def ranked(self, ended: Collection[Held]) -> list[Held]:
        """The best run of each configuration, that of the best mean first."""
        return self._best_of_each(confirmed(self.record, self.runs), ended)

    def firm(self, ended: Collection[Held], waiting: Collection[Held]) -> set[int]:
        """The best run of each configuration that may win, whatever the runs to come score.

        Those are the best of the configurations that have no run to come, and those that have.
        Runs to come are those of `confirm_points`, and those that wait from an earlier start, whose
        configurations better trials have pushed from the points since. With these more may win
        than `confirm_points` has: of that many the best are taken, and one that wins after all
        has the checkpoint of the run that made it win.
        """
        points = confirm_points(self.record, top=self.top, num_seeds=self.num_seeds, seed=self.seed)
        if not points:  # the best trial is handed over
            return set()
        begun = {settings_key(run.settings) for run in self.runs.trials}
        open_runs = [run.settings for run in self.runs.trials if run.state == "running"]
        to_come = {
            settings_key({key: value for key, value in each.items() if key != SEED_KEY})
            for each in [*open_runs, *(each for each in points if settings_key(each) not in begun)]
        }
        ranking = confirmed(self.record, self.runs)
        trials = self.record.trials
        settled = [
            each
            for each in ranking
            if settings_key(trials[each.trial_number].settings) not in to_come
        ]
        may_win = [*settled[:1], *(each for each in ranking if each not in settled)]
        return {each.trial_number for each in self._best_of_each(may_win[: len(points)], ended)}

    def _best_of_each(self, found: Iterable[Confirmed], ended: Iterable[Held]) -> list[Held]:
        held = {each.trial_number: each for each in ended}
        theirs = (
            [held[run.number] for run in each.best_first(self.runs.direction) if run.number in held]
            for each in found
        )
        return [best for each in theirs for best in each[:1]]
