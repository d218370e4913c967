"""What a search will cost: images and seconds, before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt

# A forward pass beside a whole training step, forward and backward.
EVALUATION_SHARE = 1 / 3
# Two cores, 2026-11: Ray's start, then a process with torch for each slot, once a stage.
START_S = 6.0
MEASURE_SHARE = 0.1  # of the search that follows
LONGEST_MEASURE_S = 60.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the stages are expected to take whose work is known beforehand.

    Attributes:
        measure_s: Seconds of the stage of that name, and so on.
    """

    measure_s: float
    search_s: float
    confirm_s: float

    @property
    def seconds(self) -> float:
        """All of them together."""
        return self.measure_s + self.search_s + self.confirm_s


@dataclass(frozen=True, slots=True)
class Work:
    """The training that a search asks for.

    Attributes:
        num_images: Training images, one epoch.
        num_validation: Images of one evaluation.
        report_samples: Images between two evaluations.
        rungs: Lengths in images at which trials are compared, the last one the full length.
        reduction_factor: One in this many goes on from each rung.
        trials: Configurations tried.
        confirm_runs: Full trainings of the confirm stage.
        checkpoint_bytes: What one checkpoint has at most.
        search_budget_s: Seconds that the search stage may take.
        chance: Scores up to this one may come from guessing; -inf where that is not asked.
    """

    num_images: int
    num_validation: int
    report_samples: int
    rungs: Sequence[int]
    reduction_factor: int
    trials: int
    confirm_runs: int
    checkpoint_bytes: int
    search_budget_s: float = inf
    chance: float = -inf

    @property
    def search_samples(self) -> int:
        """Images that the trials train in all.

        One in `reduction_factor` goes on from each rung, and some more that were among the best
        only when they came: about half the square root of the former (`Jobs` with random scores,
        4 to 200 trials, factors 2 to 4, 2026-11: the mean of a dozen searches within a fifth).
        """
        trials, samples = float(self.trials), 0.0
        for before, length in pairwise((0, *self.rungs)):
            samples += trials * (length - before)
            top = trials / self.reduction_factor
            trials = max(1.0, top + sqrt(top) / 2)
        return round(samples)

    def search_s(self, images_per_s: float, slots: int) -> float:
        """Seconds of the search stage, at most its budget.

        Args:
            images_per_s: Of one trial, beside the others.
            slots: Trials side by side.
        """
        return min(self._all_trials_s(images_per_s, slots), self.search_budget_s)

    def confirm_s(self, images_per_s: float, slots: int) -> float:
        """Seconds of the confirm stage, which trains `slots` runs side by side."""
        if not self.confirm_runs:
            return 0.0
        return self._full_trainings_s(self.confirm_runs, images_per_s, slots)

    def seconds_per_image(self, images_per_s: float) -> float:
        """Seconds of training that a trial takes for an image, its share of evaluations with it."""
        return self._with_evaluations(1) / images_per_s

    def estimate(self, images_per_s: float, slots: int, *, has_to_measure: bool) -> Estimate:
        """What the search will take, with or without the measure stage."""
        search_s = self.search_s(images_per_s, slots)
        return Estimate(
            measure_s=START_S + measure_budget_s(search_s) if has_to_measure else 0.0,
            search_s=search_s,
            confirm_s=self.confirm_s(images_per_s, slots),
        )

    def _all_trials_s(self, images_per_s: float, slots: int) -> float:
        """Seconds of all trials; where they are promoted, one trains alone at the end."""
        *early, full_length = self.rungs
        if not early:
            return self._full_trainings_s(self.trials, images_per_s, slots)
        alone = (full_length - early[-1]) * (1 - 1 / slots)
        samples = max(self.search_samples / slots + alone, full_length)
        return START_S + self._with_evaluations(samples) / images_per_s

    def _full_trainings_s(self, trainings: int, images_per_s: float, slots: int) -> float:
        rounds = -(-trainings // slots)
        return START_S + self._with_evaluations(rounds * self.rungs[-1]) / images_per_s

    def _with_evaluations(self, samples: float) -> float:
        """Training images that take as long as these with the evaluations between them."""
        return samples * (1 + EVALUATION_SHARE * self.num_validation / self.report_samples)


def measure_budget_s(search_s: float) -> float:
    """The seconds that measuring may take before a search of `search_s`."""
    return min(MEASURE_SHARE * search_s, LONGEST_MEASURE_S)
