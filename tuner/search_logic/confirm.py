"""Which configurations are trained again on fresh seeds: they follow from the search's record."""

from collections.abc import Sequence

from tuner.search_logic.jobs import Jobs
from tuner.search_logic.sampling import Settings, settings_key
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
