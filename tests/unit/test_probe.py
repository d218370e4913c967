"""A probe's process measures real training, and builds anew only what other settings need."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.thirdparty_files import psutil
from torch import Tensor

from tests.prepared import prepare_quietly
from tuner import probe
from tuner.assemble import build_state
from tuner.data.worker import read_image
from tuner.errors import DataError
from tuner.planning.throughput import IMAGES_FROM
from tuner.probe import measure_speed
from tuner.reading import ClosableSource, build_loader
from tuner.settings.config import Config
from tuner.training.state import TrainState
from tuner.trial import TrialContext

NUM_TRAIN = 24
SETTINGS = {
    "data.source": "folder",
    "data.image_size": 16,
    "model.ghost_batch_size": 4,
    "train.batch_size": NUM_TRAIN,
}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    probe.KEPT.close()


@pytest.fixture
def context(image_folder: Path, tmp_path: Path) -> dict[str, Any]:
    """Return the context of a search in `tmp_path`, its images prepared."""
    config = Config().with_overrides(SETTINGS | {"data.root": str(image_folder)})
    prepare_quietly(config, tmp_path)
    return asdict(
        TrialContext(str(tmp_path), str(image_folder), config.to_json(), 1, str(tmp_path))
    )


class Built:
    """What the measurements have built, oldest first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loaders: list[ClosableSource] = []
        self.states: list[TrainState] = []
        monkeypatch.setattr("tuner.trial.build_loader", self.build_loader)
        monkeypatch.setattr("tuner.probe.build_state", self.build_state)

    def build_loader(self, *arguments: Any, **options: Any) -> ClosableSource:
        self.loaders.append(build_loader(*arguments, **options))
        return self.loaders[-1]

    def build_state(self, config: Config, num_classes: int) -> TrainState:
        self.states.append(build_state(config, num_classes))
        return self.states[-1]

    def counts(self) -> tuple[int, int]:
        """Return how many loaders and states."""
        return len(self.loaders), len(self.states)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Built:
    return Built(monkeypatch)


def num_children() -> int:
    return len(psutil.Process().children())


def test_a_measurement_is_told_in_plain_values(context: dict[str, Any]) -> None:
    told = measure_speed({"train.accumulate_steps": 3}, 0.1, context)

    assert told["num_images"] % NUM_TRAIN == 0
    assert told["seconds"] >= 0.1
    assert told["images_per_s"] == told["num_images"] / told["seconds"]
    assert 0 < told["data_wait_share"] < 1
    assert told["peak_memory_bytes"] > 0
    assert told["micro_batch_size"] == 8
    assert {type(value) for value in told.values()} == {int, float}
    assert torch.get_num_threads() == 1


def test_other_slices_build_nothing_anew(context: dict[str, Any], built: Built) -> None:
    sizes = [
        measure_speed({"train.accumulate_steps": steps}, 0.0, context)["micro_batch_size"]
        for steps in (1, 2, 3, 6, 1)
    ]

    assert sizes == [24, 12, 8, 4, 24]
    assert built.counts() == (1, 1)


def test_another_loader_is_built_for_its_own_settings_alone(
    context: dict[str, Any], built: Built
) -> None:
    before = num_children()
    workers = [0, 1, 1, 2, 2, 0]
    counts = []
    for num_workers in workers:
        told = measure_speed({"loader.num_workers": num_workers}, 0.0, context)
        assert told["num_images"] == NUM_TRAIN
        counts.append(num_children() - before)

    assert counts == workers
    assert built.counts() == (4, 1)


def test_other_training_settings_build_a_new_state(context: dict[str, Any], built: Built) -> None:
    for model in ("lenet", "resnet8_s2"):
        measure_speed({"model.name": model}, 0.0, context)

    assert built.counts() == (1, 2)


def test_only_what_is_new_is_warmed_up(context: dict[str, Any], built: Built) -> None:
    steps = []
    for settings in ({}, {"train.accumulate_steps": 2}, {"loader.prefetch_factor": 3}, {}, {}):
        measure_speed(settings, 1e-9, context)
        steps.append(built.states[0].optimizer_steps)

    assert steps == [2, 3, 5, 7, 8]


def test_a_call_of_0_s_is_the_warm_up_itself(context: dict[str, Any], built: Built) -> None:
    steps = []
    for seconds in (0.0, 1e-9, 0.0):
        measure_speed({}, seconds, context)
        steps.append(built.states[0].optimizer_steps)

    assert steps == [1, 2, 3]


def test_slices_that_memory_has_halved_are_told_and_kept_for_these_settings(
    context: dict[str, Any], built: Built
) -> None:
    measure_speed({}, 0.0, context)
    most = 8

    def limit(module: torch.nn.Module, arguments: tuple[Tensor, ...]) -> None:
        if len(arguments[0]) > most:
            raise torch.OutOfMemoryError("no")

    built.states[0].model.register_forward_pre_hook(limit)

    assert measure_speed({}, 0.0, context)["micro_batch_size"] == 4
    most = NUM_TRAIN
    assert measure_speed({}, 0.0, context)["micro_batch_size"] == 4
    others = {"train.accumulate_steps": 2}
    assert measure_speed(others, 0.0, context)["micro_batch_size"] == NUM_TRAIN // 2


def test_room_is_asked_for_by_the_first_step_of_each_slicing(
    context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [False, True, True]
    monkeypatch.setattr("tuner.training.loop.has_margin", lambda *_: answers.pop(0))
    assert measure_speed({}, 0.0, context)["micro_batch_size"] == NUM_TRAIN // 2
    assert measure_speed({}, 0.1, context)["micro_batch_size"] == NUM_TRAIN // 2
    others = {"train.accumulate_steps": 3}
    assert measure_speed(others, 0.1, context)["micro_batch_size"] == NUM_TRAIN // 3
    assert measure_speed({}, 0.0, context)["micro_batch_size"] == NUM_TRAIN // 2
    assert answers == []


def test_a_run_cut_off_by_an_error_is_not_used_again(
    context: dict[str, Any], built: Built, image_folder: Path
) -> None:
    image = image_folder / "train/class 1/0.jpg"
    before = image.read_bytes()
    image.write_bytes(b"")
    with pytest.raises(DataError):
        measure_speed({}, 0.0, context)
    image.write_bytes(before)

    assert measure_speed({}, 0.0, context)["num_images"] == NUM_TRAIN
    assert built.counts() == (1, 2)


@pytest.mark.parametrize("images_from", ["memory", "device"])
def test_held_images_are_read_once(
    context: dict[str, Any], images_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def read_counted(path: str, **options: Any) -> Any:
        reads.append(path)
        return read_image(path, **options)

    monkeypatch.setattr("tuner.data.loader.read_image", read_counted)
    settings = {"train.batch_size": 20, IMAGES_FROM: images_from}
    for _ in range(2):
        told = measure_speed(settings, 0.2, context)
        assert told["num_images"] > 2 * NUM_TRAIN
    assert len(reads) == NUM_TRAIN  # a batch of 20 and the short one of 4
