"""What scores on a few seeds say of a seed to come, and whether two means differ by more than luck.

All from one standard deviation over seeds, pooled over the configurations: that of two or three
runs alone would be little more than a guess.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from scipy.special import stdtrit

LEVEL = 0.9  # of intervals and tests: right nine times in ten


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """How far scores of one configuration lie apart on different seeds.

    Attributes:
        deviation: The standard deviation, pooled over configurations.
        degrees_of_freedom: The runs it rests on beyond the first of each configuration.
    """

    deviation: float
    degrees_of_freedom: int

    @property
    def margin(self) -> float:
        """Student's quantile times the deviation: that of one score around a known mean."""
        return student_quantile((1 + LEVEL) / 2, self.degrees_of_freedom) * self.deviation


def student_quantile(probability: float, degrees_of_freedom: int) -> float:
    """Returns the value that Student's t stays below with that probability.

    By scipy's inverse of the distribution, https://docs.scipy.org/doc/scipy/reference/special.html.
    """
    return float(stdtrit(degrees_of_freedom, probability))


def seed_spread(scores_of_each: Iterable[Sequence[float]]) -> SeedSpread | None:
    """Returns the deviation pooled over configurations; None where none of them has two scores.

    Args:
        scores_of_each: The scores of each configuration, one a seed.
    """
    repeated = [scores for scores in scores_of_each if len(scores) > 1]
    degrees_of_freedom = sum(len(scores) - 1 for scores in repeated)
    if not degrees_of_freedom:
        return None
    squares = math.fsum(variance(scores) * (len(scores) - 1) for scores in repeated)
    return SeedSpread(math.sqrt(squares / degrees_of_freedom), degrees_of_freedom)


def prediction_interval(
    scores: Sequence[float], spread: SeedSpread, *, highest: float
) -> tuple[float, float]:
    """Returns between what the score of one more run falls, on another seed, nine times in ten.

    It is mean ± t s sqrt(1 + 1/n), for a score that is normal (Hahn and Meeker, Statistical
    Intervals), kept within what a score can be.

    Args:
        scores: Those of the configuration, n of them.
        spread: Of seeds, s.
        highest: The best that there is: 1 for a share, infinity for a loss. None is below 0.
    """
    mean, margin = fmean(scores), spread.margin * math.sqrt(1 + 1 / len(scores))
    return max(0.0, mean - margin), min(highest, mean + margin)


def are_told_apart(first: Sequence[float], second: Sequence[float], spread: SeedSpread) -> bool:
    """Says whether the means differ by more than luck does nine times in ten.

    Student's test of two means with the pooled deviation, two-sided.
    """
    margin = spread.margin * math.sqrt(1 / len(first) + 1 / len(second))
    return abs(fmean(first) - fmean(second)) > margin
