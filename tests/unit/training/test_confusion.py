"""Which classes were found and which were taken for others, against counts by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.unit.training.conftest import RECIPE, memory_loader, small_net
from tuner.training.checkpoint import CheckpointFolder
from tuner.training.confusion import (
    MOST_MATRIX_CLASSES,
    balanced_top1,
    confusion_matrix,
    describe_classes,
)
from tuner.training.loop import fit
from tuner.training.state import TrainState, start_state


@given(
    num_images=st.integers(1, 60),
    num_classes=st.integers(1, 9),
    num_unseen=st.integers(0, 8),  # of the last classes there is no image
    seed=st.integers(0, 99),
)
def test_every_figure_is_that_of_counting_by_hand(
    num_images: int, num_classes: int, num_unseen: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, max(1, num_classes - num_unseen), num_images)
    predictions = rng.integers(0, num_classes, num_images).astype(np.int32)
    pairs = list(zip(labels.tolist(), predictions.tolist(), strict=True))
    names = [f"class {number}" for number in range(num_classes)]
    matrix = [
        [pairs.count((true, taken)) for taken in range(num_classes)] for true in range(num_classes)
    ]
    counts = [sum(row) for row in matrix]
    shares = [matrix[k][k] / counts[k] if counts[k] else None for k in range(num_classes)]
    known = [share for share in shares if share is not None]
    num_correct = sum(true == taken for true, taken in pairs)

    described = describe_classes(names, labels, predictions)
    assert described == {
        "top1": num_correct / num_images,
        "balanced_top1": pytest.approx(sum(known) / len(known)),
        "classes": names,
        "num_images": counts,
        "share_found": shares,
        "confusion": matrix,
    }
    assert sum(described["confusion"][k][k] for k in range(num_classes)) == num_correct
    assert described["balanced_top1"] == balanced_top1(labels, predictions)


def test_a_class_counts_alike_however_many_images_it_has() -> None:
    labels, predictions = np.array([0] * 98 + [2, 2]), np.array([0] * 98 + [0, 2])
    assert (labels == predictions).mean() == 0.99
    assert balanced_top1(labels, predictions) == 0.75


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_with_as_many_images_in_each_class_it_is_top_1(
    num_classes: int, num_each: int, seed: int
) -> None:
    labels = np.arange(num_classes * num_each) % num_classes
    predictions = np.random.default_rng(seed).integers(0, num_classes, len(labels))
    top1 = (labels == predictions).mean()
    assert balanced_top1(labels, predictions) == pytest.approx(top1)


def test_small_integers_do_not_overflow_in_the_matrix() -> None:
    labels, predictions = np.full(3, 120, np.int8), np.full(3, 119, np.int8)
    assert confusion_matrix(labels, predictions, 121)[120, 119] == 3


def test_of_very_many_classes_there_are_figures_and_no_matrix() -> None:
    labels = np.arange(MOST_MATRIX_CLASSES + 1)
    classes = [str(label) for label in labels]
    described = describe_classes(classes, labels, np.zeros_like(labels))
    assert described["confusion"] is None
    assert described["share_found"] == [1.0] + [0.0] * MOST_MATRIX_CLASSES
    described = describe_classes(classes[1:], labels[:-1], labels[:-1])
    assert described["confusion"][-1] == [0] * (MOST_MATRIX_CLASSES - 1) + [1]


def test_the_checkpoint_of_a_report_tells_what_it_found_of_each_class(tmp_path: Path) -> None:
    loader, files = memory_loader(30), CheckpointFolder(tmp_path, pytest.fail)
    labels = loader.validation.labels  # 4, 4 and 3 images of the classes
    state = start_state(
        lambda: small_net(nn.BatchNorm2d(8)),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        device=torch.device("cpu"),
        precision="fp32",
        batch_size=RECIPE.batch_size,
        accumulate_steps=1,
        seed=0,
    )

    def save(state: TrainState) -> None:
        files.save(state.to_plain(), state.samples_seen)

    results = fit(
        state,
        loader=loader,
        train=loader.train,
        validation=loader.validation,
        recipe=RECIPE,
        until_samples=90,
        save=save,
        checkpoint_every_s=0.0,
    )
    is_uneven = False
    for result in results:
        is_found = files.load(result.samples_seen)["predictions"].numpy() == labels
        assert result.num_correct == is_found.sum()
        shares = [is_found[labels == label].mean() for label in range(3)]
        assert result.balanced_top1 == pytest.approx(sum(shares) / 3)
        is_uneven |= result.balanced_top1 != pytest.approx(result.top1)
    assert is_uneven
