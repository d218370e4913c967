"""A model's best classes and features: ranked as an evaluation ranks, whatever fits in memory."""

import pytest
import torch
from torch import Tensor, nn

from tests.unit.training.conftest import small_net
from tuner.data.augment import evaluation_batch
from tuner.errors import SettingsError
from tuner.training.evaluate import label_ranks
from tuner.training.ghost_norm import GhostBatchNorm2d
from tuner.training.predict import Predictor

CPU = torch.device("cpu")
SIZE_PX = 8


def predictor(model: nn.Module, *, has_features: bool = False) -> Predictor:
    return Predictor(
        model,
        device=CPU,
        autocast_dtype=None,
        image_size_px=SIZE_PX,
        has_features=has_features,
    )


def noise(num_images: int, size_px: int = SIZE_PX) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (num_images, size_px, size_px, 3), generator=draw)
    return pixels.to(torch.uint8)


def test_the_best_classes_are_those_of_an_evaluation() -> None:
    model = small_net(GhostBatchNorm2d(8, ghost_batch_size=4, eps=1e-5, momentum=0.1), dropout=0.5)
    images = noise(9, SIZE_PX + 2)
    found = predictor(model).predict(images)
    with torch.inference_mode():
        logits = model.eval()(evaluation_batch(images, image_size_px=SIZE_PX))
    assert found.classes.shape == (9, 3)
    assert label_ranks(logits, found.classes[:, 0]).tolist() == [0] * 9
    torch.testing.assert_close(found.probabilities.sum(1), torch.ones(9))
    torch.testing.assert_close(found.probabilities[:, 0], logits.softmax(1).max(1).values)
    assert found.is_finite.all()
    assert found.features is None


class Fixed(nn.Module):
    """Gives the same logits to every image."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, images: Tensor) -> Tensor:
        """Return them, (n, classes)."""
        return self.logits.expand(len(images), -1)


def test_equal_scores_rank_by_class_and_five_are_named() -> None:
    found = predictor(Fixed([0.0, 1.0, 1.0, -1.0, 0.0, 1.0, 0.0])).predict(noise(2))
    assert found.classes.tolist() == [[1, 2, 5, 0, 4]] * 2


def test_scores_that_are_no_numbers_are_told() -> None:
    assert predictor(Fixed([0.0, float("nan")])).predict(noise(2)).is_finite.tolist() == [False] * 2


class Small(nn.Module):
    """A model whose memory holds three images."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.first, self.last = nn.Linear(3 * SIZE_PX**2, 5), nn.Linear(5, 2)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, (n, 2)."""
        if len(images) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self.sizes.append(len(images))
        return self.last(torch.relu(self.first(images.flatten(1))))


def test_batches_are_halved_where_memory_runs_out_and_nothing_is_lost() -> None:
    model = Small()
    images = noise(10)
    found = predictor(model, has_features=True).predict(images)
    assert max(model.sizes) <= 3
    one_by_one = [predictor(model, has_features=True).predict(image[None]) for image in images]
    assert torch.equal(found.classes, torch.cat([each.classes for each in one_by_one]))
    assert found.features is not None
    with torch.inference_mode():
        normal = evaluation_batch(images, image_size_px=SIZE_PX).flatten(1)
        torch.testing.assert_close(found.features, torch.relu(model.first(normal)))
    assert predictor(model, has_features=True).num_features() == 5


def test_features_need_a_linear_layer() -> None:
    with pytest.raises(SettingsError) as caught:
        predictor(Fixed([0.0, 1.0]), has_features=True).num_features()
    assert str(caught.value) == (
        "features: this model has no linear layer to take them from; use features=false"
    )
