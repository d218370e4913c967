"""The best score that a task holds, so that regret does not depend on which searches were run."""

import numpy as np

from tests.benchmarks.search.tasks import Task, settings_at

SEED = 1
NUM_RANDOM = 2000
NUM_ROUNDS = 30
NUM_CHILDREN = 100
NUM_KEPT = 20
FIRST_STEP = 0.2  # standard deviation of a coordinate's move in the unit cube
STEP_FACTOR = 0.85


def climb(task: Task) -> float:
    """The best score of any epoch that an evolution of 5,000 full trainings finds.

    From random settings it goes on with children of the best: half of the coordinates of each are
    moved, by ever smaller steps.
    """
    rng = np.random.default_rng(SEED)
    num_dimensions = len(task.specs)

    def scores(points: np.ndarray) -> np.ndarray:
        return np.array([max(task.curve(settings_at(task.specs, p)).scores) for p in points])

    points = rng.random((NUM_RANDOM, num_dimensions))
    found = scores(points)
    for number in range(NUM_ROUNDS):
        kept = np.argsort(-found)[:NUM_KEPT]
        points, found = points[kept], found[kept]
        shape = (NUM_CHILDREN, num_dimensions)
        moves = rng.standard_normal(shape) * (rng.random(shape) < 0.5)
        parents = points[rng.integers(NUM_KEPT, size=NUM_CHILDREN)]
        children = np.clip(parents + FIRST_STEP * STEP_FACTOR**number * moves, 0, 1)
        points = np.concatenate([points, children])
        found = np.concatenate([found, scores(children)])
    return float(found.max())
