"""The best classes of images by a trained model, and the features that it decides by."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuner.data.augment import evaluation_batch
from tuner.errors import SettingsError
from tuner.training.evaluate import half_of
from tuner.training.memory import is_out_of_memory, release_memory

NUM_TOP = 5


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a model says of n images, on the CPU.

    Attributes:
        classes: The best min(5, classes) of each, the best first, int64 (n, top). Equal scores
            rank by class number, as in an evaluation.
        probabilities: Of these, float32 (n, top).
        is_finite: Whether all scores of an image are numbers, (n,); the others mean nothing.
        features: The input of the last linear layer, float32 (n, d); None where not asked for.
    """

    classes: Tensor
    probabilities: Tensor
    is_finite: Tensor
    features: Tensor | None


class Predictor:
    """A model that is shown decoded images as in an evaluation, and never trained.

    Args:
        model: Maps normalised (n, 3, image_size_px, image_size_px) to logits.
        device: Where it runs.
        autocast_dtype: As it was evaluated with; None is fp32.
        image_size_px: Side of the centre that it sees.
        has_features: Whether features are wanted.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        device: torch.device,
        autocast_dtype: torch.dtype | None,
        image_size_px: int,
        has_features: bool,
    ) -> None:
        self._model = model.eval().to(device).to(memory_format=torch.channels_last)
        self._device = device
        self._autocast_dtype = autocast_dtype
        self._image_size_px = image_size_px
        self._has_features = has_features

    def num_features(self) -> int:
        """Return d, the number of features of one image.

        Raises:
            SettingsError: The model has no linear layer.
        """
        size_px = self._image_size_px
        black = torch.zeros(1, size_px, size_px, 3, dtype=torch.uint8)
        features = self.predict(black).features
        assert features is not None
        return features.shape[1]

    def predict(self, images: Tensor) -> Predictions:
        """Return what the model says of uint8 images (n, stored, stored, 3).

        Where the device's memory runs out, it is asked for half of them at a time.

        Raises:
            torch.OutOfMemoryError: One image alone does not fit.
            SettingsError: Features are wanted and the model has no linear layer.
        """
        try:
            return self._predict(images)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        most = half_of(len(images))
        release_memory(self._device)
        return _joined([self.predict(part) for part in images.split(most)])

    @torch.inference_mode()
    def _predict(self, images: Tensor) -> Predictions:
        dtype = self._autocast_dtype
        batch = evaluation_batch(
            images.to(self._device, non_blocking=True),
            image_size_px=self._image_size_px,
            dtype=dtype or torch.float32,
        )
        with (
            _last_linear_input(self._model, is_wanted=self._has_features) as captured,
            torch.autocast(self._device.type, dtype, enabled=dtype is not None),
        ):
            logits = self._model(batch)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        # Not topk: it leaves open which of equal scores comes first.
        ranked = logits.sort(dim=1, descending=True, stable=True).indices[:, :NUM_TOP]
        return Predictions(
            classes=ranked.cpu(),
            probabilities=logits.softmax(1).gather(1, ranked).float().cpu(),
            is_finite=logits.isfinite().all(1).cpu(),
            features=captured[0].flatten(1).float().cpu() if captured else None,
        )


@contextmanager
def _last_linear_input(model: nn.Module, *, is_wanted: bool) -> Iterator[list[Tensor]]:
    """Yield a list that a forward pass leaves holding what its last linear layer was given."""
    captured: list[Tensor] = []

    def capture(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        captured[:] = inputs[:1]

    linears = [each for each in model.modules() if isinstance(each, nn.Linear)] if is_wanted else []
    if is_wanted and not linears:
        raise SettingsError(
            "features: this model has no linear layer to take them from; use features=false"
        )
    hooks = [linear.register_forward_pre_hook(capture) for linear in linears]
    try:
        yield captured
    finally:
        for hook in hooks:
            hook.remove()


def _joined(parts: list[Predictions]) -> Predictions:
    features = [part.features for part in parts if part.features is not None]
    return Predictions(
        classes=torch.cat([part.classes for part in parts]),
        probabilities=torch.cat([part.probabilities for part in parts]),
        is_finite=torch.cat([part.is_finite for part in parts]),
        features=torch.cat(features) if features else None,
    )
