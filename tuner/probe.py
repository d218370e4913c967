"""What a process of the measure stage does: train for a moment and say how fast that was."""

from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tuner.assemble import build_recipe, build_state
from tuner.data.prepare import PreparedData, load_prepared
from tuner.planning.throughput import IMAGES_FROM
from tuner.reading import ClosableSource
from tuner.settings.config import Config
from tuner.training.feed import BatchSource
from tuner.training.ghost_norm import ghost_size
from tuner.training.memory import release_memory
from tuner.training.speed import time_steps
from tuner.training.state import TrainState
from tuner.training.step import micro_batch_size
from tuner.trial import TrialContext


def measure_speed(
    settings: Mapping[str, Any], seconds: float, context: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the speed of training with these settings, as plain values.

    Args:
        settings: Go over those of the context, by dotted key. `IMAGES_FROM` among them says whence
            the images come: "loader", as in training; "memory", where the loader had put them; or
            "device".
        seconds: Whole steps are timed until they have passed, after one to warm up what is new;
            0 is one step, warm or not.
        context: `dataclasses.asdict` of the `TrialContext` that the search's trials will get.

    Returns:
        ``images_per_s``, ``num_images`` and ``seconds``; ``data_wait_share``, from 0 to 1;
        ``peak_memory_bytes``, of the device, on a CPU of the process since its start; and
        ``micro_batch_size``, smaller than the settings say where memory ran out.

    Raises:
        torch.OutOfMemoryError: One ghost group alone does not fit; whatever else training raises.
    """
    shared = TrialContext(**context)
    torch.set_num_threads(shared.threads)
    settings = dict(settings)
    images_from = settings.pop(IMAGES_FROM, "loader")
    config = Config.from_json(shared.config_json).with_overrides(settings)
    data, loader, state, is_new = KEPT.get(shared, config)
    source = loader if images_from == "loader" else KEPT.held(images_from)
    try:
        speed = time_steps(
            state,
            loader=source,
            train=data.train,
            recipe=build_recipe(config, len(data.train)),
            seconds=seconds,
            warm_up_steps=int(is_new and seconds > 0),
        )
    except Exception:
        KEPT.forget_state()  # cut off in the middle of a step
        raise
    KEPT.keep_slices(config)
    return {
        "images_per_s": speed.images_per_s,
        "num_images": speed.num_images,
        "seconds": speed.seconds,
        "data_wait_share": speed.data_wait_s / speed.seconds,
        "peak_memory_bytes": speed.peak_memory_bytes,
        "micro_batch_size": state.micro_batch_size,
    }


class HeldBatches:
    """Batches that are read once and given again and again: reading them costs nothing more.

    Args:
        source: Reads them.
        device: Where they are held; None leaves them where the source has put them.
    """

    def __init__(self, source: BatchSource, device: torch.device | None = None) -> None:
        self._source = source
        self._device = device
        self._held: dict[int, torch.Tensor] = {}

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[torch.Tensor, None, None]:
        """Yields one batch of that many images, always the same, for each array of positions."""
        for chosen in positions:
            if len(chosen) not in self._held:
                (batch,) = self._source.batches(split, [chosen])
                self._held[len(chosen)] = batch.to(self._device or batch.device)
            yield self._held[len(chosen)]


class KeptRun:
    """What the measurement before was made with; of it, all that fits the next is used again."""

    def __init__(self) -> None:
        self._keys: tuple[Any, Any, Any] = (None, None, None)
        self._data: PreparedData | None = None
        self._loader: ClosableSource | None = None
        self._state: TrainState | None = None
        self._held: dict[str, HeldBatches] = {}
        self._slices: dict[int | str, int] = {}

    def get(
        self, shared: TrialContext, config: Config
    ) -> tuple[PreparedData, ClosableSource, TrainState, bool]:
        """Returns images, loader and state for these settings; last, if one of the two is new."""
        data_key = (shared.run_folder, shared.images_root)
        loader_key = (data_key, config.data, config.loader, config.augment.crop)
        unsliced = config.train.model_copy(update={"accumulate_steps": 1})
        state_key = (data_key, config.data.image_size, config.model, config.optim, unsliced)
        before, self._keys = self._keys, (data_key, loader_key, state_key)
        if self._data is None or before[0] != data_key:
            dataset_json = Path(shared.run_folder) / "dataset.json"
            self._data = load_prepared(dataset_json, Path(shared.images_root))
        is_new_loader = self._loader is None or before[1] != loader_key
        if is_new_loader:
            self._end_loader()
            self._loader = shared.open_loader(config, self._data)
        is_new_state = self._state is None or before[2] != state_key
        if is_new_state:
            self.forget_state()
            self._state = build_state(config, len(self._data.train.classes))
            self._slices = {}
        assert self._loader is not None
        assert self._state is not None
        # Each has slices of its own, smaller than asked where memory was short the first time.
        steps = config.train.accumulate_steps
        self._state.asks_for_room = steps not in self._slices
        self._state.micro_batch_size = self._slices.get(steps) or micro_batch_size(
            config.train.batch_size, steps, ghost_size(self._state.model)
        )
        return self._data, self._loader, self._state, is_new_loader or is_new_state

    def keep_slices(self, config: Config) -> None:
        """Remembers the slices that the last measurement has ended with, for these settings."""
        assert self._state is not None
        self._slices[config.train.accumulate_steps] = self._state.micro_batch_size

    def held(self, images_from: str) -> HeldBatches:
        """Returns batches of the loader held in "memory", or on the "device"."""
        assert self._loader is not None
        assert self._state is not None
        if images_from not in self._held:
            device = self._state.device if images_from == "device" else None
            self._held[images_from] = HeldBatches(self._loader, device)
        return self._held[images_from]

    def forget_state(self) -> None:
        """Drops the model; its memory is free for the next one."""
        if self._state is not None:
            device, self._state = self._state.device, None
            release_memory(device)

    def close(self) -> None:
        """Drops all of it and ends the loader."""
        self.forget_state()
        self._end_loader()
        self._data = None

    def _end_loader(self) -> None:
        self._held = {}
        if self._loader is not None:
            self._loader.close()
            self._loader = None


KEPT = KeptRun()
