"""A first look at the speed: real steps, nothing read and nothing written."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.stages.conftest import OpenSearch, files_in
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
    assert look_at_speed(search_of(), threads=1) > 0
    assert torch.get_num_threads() == 1
    assert files_in(here) == before


def test_pixels_are_whole_batches_in_the_order_they_are_asked_for() -> None:
    positions = [np.arange(3), np.arange(1), np.arange(0)]
    batches = list(RandomPixels(8).batches("train", positions))
    assert [tuple(batch.shape) for batch in batches] == [(3, 8, 8, 3), (1, 8, 8, 3), (0, 8, 8, 3)]
    assert {batch.dtype for batch in batches} == {torch.uint8}
    assert int(batches[0].max()) > 200
