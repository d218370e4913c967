"""What was measured is recalled for the same machine and data, and for nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stages.conftest import MACHINE, PLAN, SPEEDS, OpenSearch
from tuner.errors import RunError
from tuner.planning.machine import Gpu
from tuner.stages import speeds
from tuner.stages.speeds import (
    Speeds,
    keep_in_run,
    memory_path,
    recall,
    remember,
    speeds_of_run,
)


@pytest.mark.parametrize("found", [SPEEDS, replace(SPEEDS, gpus_per_trial=0.25, pinned={})])
def test_what_was_measured_comes_back(search_of: OpenSearch, found: Speeds) -> None:
    search = search_of()
    assert recall(search, PLAN, MACHINE) is None
    remember(search, PLAN, MACHINE, found)
    assert recall(search, PLAN, MACHINE) == found


def test_it_lies_in_the_cache_and_serves_searches_of_other_names(
    here: Path, search_of: OpenSearch
) -> None:
    remember(search_of(), PLAN, MACHINE, SPEEDS)
    (path,) = (here / "results" / ".cache" / "throughput").iterdir()
    assert path == memory_path(search_of(), PLAN, MACHINE)
    assert recall(search_of(name="other"), PLAN, MACHINE) == SPEEDS
    assert recall(search_of("data.test_root=later"), PLAN, MACHINE) == SPEEDS


def test_the_newest_measurement_counts(search_of: OpenSearch) -> None:
    remember(search_of(), PLAN, MACHINE, SPEEDS)
    newer = replace(SPEEDS, images_per_s=200.0)
    remember(search_of(), PLAN, MACHINE, newer)
    assert recall(search_of(), PLAN, MACHINE) == newer


@pytest.mark.parametrize(
    "change",
    [
        {"cpus": 4},
        {"gpus": (Gpu("card", 2**34, 2**34),)},
    ],
)
def test_another_machine_is_measured_afresh(search_of: OpenSearch, change: dict[str, Any]) -> None:
    remember(search_of(), PLAN, MACHINE, SPEEDS)
    assert recall(search_of(), PLAN, replace(MACHINE, **change)) is None


def test_memory_that_others_take_makes_no_other_machine(search_of: OpenSearch) -> None:
    remember(search_of(), PLAN, MACHINE, SPEEDS)
    fuller = replace(MACHINE, memory_bytes=2**32, shm_free_bytes=2**20)
    assert recall(search_of(), PLAN, fuller) == SPEEDS


@pytest.mark.parametrize("name", ["processor", "versions"])
def test_another_processor_or_version_is_measured_afresh(
    search_of: OpenSearch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    remember(search_of(), PLAN, MACHINE, SPEEDS)
    monkeypatch.setattr(speeds, name, lambda: "another")
    assert recall(search_of(), PLAN, MACHINE) is None


@pytest.mark.parametrize("change", [{"slots": 1}, {"threads": 2}, {"cpus_per_trial": 0.5}])
def test_another_plan_is_measured_afresh(search_of: OpenSearch, change: dict[str, Any]) -> None:
    remember(search_of(), PLAN, MACHINE, SPEEDS)
    assert recall(search_of(), replace(PLAN, **change), MACHINE) is None


@pytest.mark.parametrize(
    "overrides",
    [
        ("data.source=folder", "data.root=/my/images"),
        ("data.image_size=32",),
        ("data.decoder=pil",),
        ("loader.prefetch_factor=4",),
        ("augment.flip=true",),
        ("model.name=resnet8",),
        ("train.batch_size=32",),
        ("train.precision=bf16",),
        ("train.accumulate_steps=2",),
        ("parameters.train.batch_size=[16, 128]",),
        ("parameters.optim.name=[sgd]",),
        ("throughput.loader.num_workers=[0, 1, 2]",),
        ("throughput.loader.num_workers=null",),
        ("throughput.train.accumulate_steps=[1, 2]",),
        ("resources.gpus_per_trial=0",),
    ],
)
def test_what_changes_a_step_or_its_images_is_measured_afresh(
    search_of: OpenSearch, overrides: tuple[str, ...]
) -> None:
    remember(search_of(), PLAN, MACHINE, SPEEDS)
    assert recall(search_of(*overrides, name="tiny"), PLAN, MACHINE) is None


@pytest.mark.parametrize(
    "override",
    [
        "optim.lr=0.5",
        "parameters.optim.lr={log: [1e-2, 1]}",
        "parameters.train.batch_size=[64, 16]",
        "search.trials=99",
        "search.metric=top5",
        "train.epochs=18",
        "search.confirm_seeds=5",
    ],
)
def test_what_leaves_steps_as_they_are_is_not_measured_again(
    search_of: OpenSearch, override: str
) -> None:
    remember(search_of(), PLAN, MACHINE, SPEEDS)
    assert recall(search_of(override), PLAN, MACHINE) == SPEEDS


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"pinned": {}, "images_per_s": "fast"}']
)
def test_a_damaged_memory_is_none(search_of: OpenSearch, content: bytes) -> None:
    remember(search_of(), PLAN, MACHINE, SPEEDS)
    memory_path(search_of(), PLAN, MACHINE).write_bytes(content)
    assert recall(search_of(), PLAN, MACHINE) is None


def test_a_memory_that_is_cut_is_none(search_of: OpenSearch) -> None:
    search = search_of()
    remember(search, PLAN, MACHINE, SPEEDS)
    path = memory_path(search, PLAN, MACHINE)
    whole = path.read_bytes().rstrip()
    for size_bytes in range(0, len(whole), 7):
        path.write_bytes(whole[:size_bytes])
        assert recall(search, PLAN, MACHINE) is None


def test_what_a_search_pins_is_kept_in_its_folder(here: Path) -> None:
    assert speeds_of_run(here) is None
    keep_in_run(here, SPEEDS)
    assert speeds_of_run(here) == SPEEDS
    assert (here / "throughput.csv").read_text() == SPEEDS.table


def test_a_cache_that_cannot_be_written_is_said_in_one_line(
    here: Path, search_of: OpenSearch
) -> None:
    cache = here / "results" / ".cache"
    cache.parent.mkdir()
    cache.touch()
    with pytest.raises(RunError) as caught:
        remember(search_of(), PLAN, MACHINE, SPEEDS)
    assert caught.value.problems == (f"{cache}/throughput: cannot be written (Not a directory)",)


def test_whether_the_images_are_the_same_is_told_by_their_fingerprint(
    search_of: OpenSearch,
) -> None:
    """The measure stage compares it: it is known once the images are prepared."""
    remember(search_of(), PLAN, MACHINE, replace(SPEEDS, data_fingerprint="beef"))
    found = recall(search_of(), PLAN, MACHINE)
    assert found is not None
    assert found.data_fingerprint == "beef"
