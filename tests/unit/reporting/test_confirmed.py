"""What confirm runs say is told in words that hold."""

from pathlib import Path

import pytest

from tests.unit.study.conftest import SETTINGS, open_record
from tuner.reporting.confirmed import luck_text, search_text
from tuner.study.confirmed import confirmed, describe_confirmed
from tuner.study.record import Direction, EndState, Record


def searched(
    folder: Path,
    score: float,
    mean: float,
    *,
    metric: str = "top1",
    direction: Direction = "maximize",
    end: EndState | None = "complete",
) -> tuple[str, float | None]:
    """Return what is said of a trial with that score whose confirm runs have that mean.

    Beside it is its shrinkage.
    """
    record: Record = open_record(folder, metric=metric, direction=direction)
    number = record.add_trial(SETTINGS).number
    record.add_report(number, {"samples_seen": 10, "epoch": 1.5, metric: score})
    if end:
        record.end(number, end)
    runs = record.open_confirm()
    for seed, away in ((1, -0.01), (2, 0.01)):
        run = runs.add_trial({**SETTINGS, "train.seed": seed}).number
        runs.add_report(run, {"samples_seen": 10, metric: mean + away})
        runs.end(run, "complete")
    (found,) = confirmed(record, runs)
    described = describe_confirmed(record, found)
    return search_text(record, found), described["shrinkage"]


@pytest.mark.parametrize(
    ("score", "mean", "told", "shrinkage"),
    [
        (0.75, 0.625, "12.5 points less than its 75.0 % in the search", 0.125),
        (0.6, 0.603, "0.3 points more than its 60.0 % in the search", -0.003),
        (0.6, 0.6004, "60.0 % in the search", -0.0004),
    ],
)
def test_a_share_is_compared_in_points(
    tmp_path: Path, score: float, mean: float, told: str, shrinkage: float
) -> None:
    said, difference = searched(tmp_path, score, mean)
    assert said == told
    assert difference == pytest.approx(shrinkage)


def test_a_loss_that_rose_has_shrunk(tmp_path: Path) -> None:
    told, shrinkage = searched(tmp_path, 1.25, 1.5, metric="validation_loss", direction="minimize")
    assert told == "0.250 more than its 1.250 in the search"
    assert shrinkage == pytest.approx(0.25)


@pytest.mark.parametrize("end", ["stopped", None])
def test_a_score_of_no_whole_training_is_not_compared(tmp_path: Path, end: EndState | None) -> None:
    assert searched(tmp_path, 0.1, 0.6, end=end) == (
        "10.0 % in the search, which left it at epoch 1.5",
        None,
    )


@pytest.mark.parametrize(
    ("is_confirmed", "has_test", "told"),
    [
        (
            True,
            False,
            "fresh seeds correct the luck of the seed; that of the validation images only a test "
            "split corrects (data.test_root)",
        ),
        (
            True,
            True,
            "fresh seeds correct the luck of the seed, the test split that of the validation "
            "images",
        ),
        (
            False,
            False,
            "the best of many trials was also the luckiest: fresh seeds correct the luck of the "
            "seed (search.confirm_top=2), a test split that of the validation images "
            "(data.test_root)",
        ),
        (
            False,
            True,
            "the best of many trials was also the luckiest: its score on the test split is "
            "without that luck",
        ),
    ],
)
def test_the_luck_that_is_left_is_named(is_confirmed: bool, has_test: bool, told: str) -> None:
    assert luck_text(is_confirmed=is_confirmed, has_test=has_test) == told
