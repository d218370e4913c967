"""Which images are hard, and which an epoch on them takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tuner.data.keyed import epoch_order, stable_keys
from tuner.data.mining import hard_positions, mining_order

LABELS = np.array([0, 0, 0, 1, 1, 2, 0, 0, 0, 0])
LOSSES = np.array([9, 8, 7, 2, 3, 1, 6, 5, 4, 0], np.float32)


def keys(num_images: int) -> NDArray[np.uint64]:
    return stable_keys(f"{number}.jpg" for number in range(num_images))


def test_the_highest_losses_are_hard_the_highest_first() -> None:
    no_class = np.zeros(10, np.int64)
    assert hard_positions(LOSSES, no_class, 0.5).tolist() == [0, 1, 2, 6, 7]
    assert hard_positions(LOSSES, no_class, 1.0).tolist() == np.argsort(-LOSSES).tolist()


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.3])
def test_every_class_keeps_its_hardest_image_however_few_are_wanted(fraction: float) -> None:
    assert hard_positions(LOSSES, LABELS, fraction).tolist() == [0, 4, 5]


def test_places_beyond_one_of_each_class_go_to_the_highest_losses() -> None:
    assert hard_positions(LOSSES, LABELS, 0.5).tolist() == [0, 1, 2, 4, 5]


def test_an_image_never_trained_on_is_hard_only_where_its_class_has_no_other() -> None:
    losses = LOSSES.copy()
    losses[[0, 1, 5]] = np.nan
    assert hard_positions(losses, LABELS, 0.5).tolist() == [2, 6, 7, 4, 5]
    assert hard_positions(losses, LABELS, 1.0).tolist() == [2, 6, 7, 8, 4, 3, 5]
    assert hard_positions(np.full(10, np.nan), LABELS, 0.5).tolist() == [0, 3, 5]


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 4)), min_size=1, max_size=60),
    st.floats(0.001, 1),
)
def test_hard_images_are_as_many_as_asked_for_or_one_of_each_class(
    images: list[tuple[int, int]], fraction: float
) -> None:
    losses = np.array([loss for loss, _ in images], np.float32)
    labels = np.array([label for _, label in images])
    hard = hard_positions(losses, labels, fraction)
    num_classes = len(set(labels.tolist()))
    assert len(hard) == len(set(hard.tolist())) == max(round(fraction * len(images)), num_classes)
    assert set(labels[hard].tolist()) == set(labels.tolist())
    assert (np.diff(losses[hard]) <= 0).all()
    firsts = {
        int(np.flatnonzero(labels == each)[losses[labels == each].argmax()]) for each in labels
    }
    least = min(losses[list(set(hard.tolist()) - firsts)], default=np.inf)
    left_out = [loss for at, loss in enumerate(losses) if at not in set(hard.tolist())]
    assert max(left_out, default=0) <= least


@given(
    num_images=st.integers(1, 80),
    share=st.floats(0, 1),
    ratio=st.floats(1, 9),
    epoch=st.integers(0, 5),
)
def test_a_mining_epoch_is_all_hard_images_once_and_others_up_to_the_ratio(
    num_images: int, share: float, ratio: float, epoch: int
) -> None:
    hard = np.arange(num_images)[:: max(1, round(1 / max(share, 0.01)))]
    order = mining_order(hard, keys(num_images), ratio=ratio, seed=3, epoch=epoch)
    assert len(order) == min(num_images, round(len(hard) * ratio))
    assert len(set(order.tolist())) == len(order)
    assert set(hard.tolist()) <= set(order.tolist())


@pytest.mark.parametrize(("ratio", "num_images"), [(1, 10), (1.5, 15), (2, 20), (5, 50), (20, 100)])
def test_the_ratio_is_of_all_images_to_hard_ones(ratio: float, num_images: int) -> None:
    order = mining_order(np.arange(0, 100, 10), keys(100), ratio=ratio, seed=0, epoch=0)
    assert len(order) == num_images


def test_others_are_drawn_anew_each_epoch_from_all_of_them() -> None:
    hard = np.arange(10)
    drawn = [
        mining_order(hard, keys(100), ratio=2, seed=0, epoch=epoch).tolist() for epoch in range(60)
    ]
    assert len({tuple(sorted(each)) for each in drawn}) == 60
    assert {position for each in drawn for position in each} == set(range(100))
    again = mining_order(hard, keys(100), ratio=2, seed=0, epoch=7).tolist()
    assert again == drawn[7] != mining_order(hard, keys(100), ratio=2, seed=1, epoch=7).tolist()


def test_images_keep_the_order_that_a_whole_epoch_has() -> None:
    whole = epoch_order(keys(50), seed=0, epoch=4)
    order = mining_order(np.arange(9), keys(50), ratio=3, seed=0, epoch=4)
    assert order.tolist() == [position for position in whole if position in set(order.tolist())]
    assert sorted(order.tolist()) != order.tolist()
