"""A first look at the speed: real steps, nothing read and nothing written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.stages.conftest import PLAN, OpenSearch, files_in
from tuner.assemble import build_recipe
from tuner.stages import look
from tuner.stages.look import RandomPixels, look_at_speed


def test_it_tells_images_a_second_and_leaves_nothing(
    here: Path,
    search_of: OpenSearch,
    threads_as_before: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look, "LOOK_S", 0.05)
    before = files_in(here)
    found = look_at_speed(search_of(), PLAN, num_images=1000)
    assert found is not None
    assert found > 0
    assert torch.get_num_threads() == 1
    assert files_in(here) == before


def test_a_step_has_no_more_images_than_there_are_and_on_a_cpu_one_group(
    search_of: OpenSearch, threads_as_before: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    monkeypatch.setattr(look, "LOOK_S", 0.0)
    monkeypatch.setattr(look, "build_recipe", seeing_batches(build_recipe, steps))
    look_at_speed(search_of("train.batch_size=100000"), PLAN, num_images=1000)
    look_at_speed(search_of("train.batch_size=100000"), PLAN, num_images=7)
    assert steps == [32, 7]


def seeing_batches(build: Callable[..., Any], steps: list[int]) -> Callable[..., Any]:
    def build_and_note(config: Any, num_images: int) -> Any:
        steps.append(num_images)
        return build(config, num_images)

    return build_and_note


def test_where_memory_runs_out_nothing_is_known(
    search_of: OpenSearch, threads_as_before: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("one slice does not fit")

    monkeypatch.setattr(look, "time_steps", run_out)
    assert look_at_speed(search_of(), PLAN, num_images=1000) is None


def test_pixels_are_whole_batches_in_the_order_they_are_asked_for() -> None:
    positions = [np.arange(3), np.arange(1), np.arange(0)]
    batches = list(RandomPixels(8).batches("train", positions))
    assert [tuple(batch.shape) for batch in batches] == [(3, 8, 8, 3), (1, 8, 8, 3), (0, 8, 8, 3)]
    assert {batch.dtype for batch in batches} == {torch.uint8}
    assert int(batches[0].max()) > 200
