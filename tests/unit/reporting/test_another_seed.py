"""One more run is told by the interval that was stated for it."""

from statistics import fmean
from typing import Any

import pytest

from tuner.reporting.another_seed import another_seed_text

CONFIRMED: dict[str, Any] = {"metric": "top1", "seeds": [1, 2], "interval": [0.55, 0.702]}


@pytest.mark.parametrize(
    ("score", "told"),
    [
        (0.61, "61.0 %, inside"),
        (0.55, "55.0 %, inside"),
        (0.702, "70.2 %, inside"),
        (0.549, "54.9 %, outside"),
        (0.703, "70.3 %, outside"),
    ],
)
def test_a_fresh_seed_is_inside_or_outside(score: float, told: str) -> None:
    assert another_seed_text(CONFIRMED, score, 7) == (
        f"seed 7: {told} the interval stated for one more run (55.0 to 70.2 %, 9 times in 10)"
    )


def test_a_loss_is_told_as_it_is() -> None:
    confirmed = {"metric": "validation_loss", "seeds": [1, 2], "interval": [1.2, 1.4567]}
    assert another_seed_text(confirmed, 1.5, 7) == (
        "seed 7: 1.500, outside the interval stated for one more run (1.200 to 1.457, 9 times in "
        "10)"
    )


def test_a_seed_that_was_confirmed_on_is_no_news() -> None:
    assert another_seed_text(CONFIRMED, 0.61, 2) == (
        "seed 2: 61.0 %, inside the interval stated for one more run (55.0 to 70.2 %, 9 times in "
        "10); it is no fresh seed, but one that was confirmed on"
    )


def test_where_all_seeds_had_one_score_that_score_is_inside() -> None:
    mean = fmean([0.1, 0.1, 0.1])
    confirmed = {**CONFIRMED, "interval": [mean + 1e-16, mean + 1e-16]}
    assert "inside" in another_seed_text(confirmed, 0.1, 7)
