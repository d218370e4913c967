"""People are told where some classes are found and others are not."""

from typing import Any

import pytest

from tuner.reporting.classes import uneven_text


def evaluation(top1: float, balanced_top1: float, **changes: Any) -> dict[str, Any]:
    return {
        "top1": top1,
        "balanced_top1": balanced_top1,
        "classes": ["cat", "lynx", "dog", "owl"],
        "num_images": [2000, 30, 1500, 0],
        "share_found": [0.9, 0.0667, 0.8, None],
        **changes,
    }


def test_the_class_found_least_is_named_where_classes_fare_unlike() -> None:
    assert uneven_text(evaluation(0.848, 0.5889)) == (
        "top-1 84.8 %, balanced top-1 58.9 %; class 'lynx' is found least: 6.7 % of "
        "30 validation images"
    )


def test_of_classes_found_alike_the_one_with_most_images_is_named() -> None:
    told = uneven_text(evaluation(0.5, 0.3, share_found=[0.9, 0.0, 0.0, None]))
    assert told.endswith("class 'dog' is found least: 0.0 % of 1,500 validation images")
    alone = evaluation(0.5, 0.3, num_images=[9, 1, 9, 0])
    assert uneven_text(alone).endswith("6.7 % of 1 validation image")


@pytest.mark.parametrize("balanced_top1", [0.5, 0.495, 0.505])
def test_nothing_is_said_within_a_point(balanced_top1: float) -> None:
    assert uneven_text(evaluation(0.5, balanced_top1)) == ""


def test_classes_that_are_found_better_than_the_large_ones_are_told_too() -> None:
    assert uneven_text(evaluation(0.5, 0.52)).startswith("top-1 50.0 %, balanced top-1 52.0 %; ")
