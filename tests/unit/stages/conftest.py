"""A small space in a folder of its own, and the machine that its tests assume."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tuner.planning.machine import Machine
from tuner.stages.opening import Search, open_search

MACHINE = Machine(cpus=2, memory_bytes=2**33, shm_free_bytes=2**30, gpus=())
SPACE = """
data: {image_size: 16}
model: {name: lenet}
train: {epochs: 9}
search: {trials: 7, grace_epochs: 1}
parameters:
  optim.lr: {log: [1.0e-3, 1]}
  optim.name: [adam, sgd]
  train.batch_size: [16, 64, 32]
throughput:
  loader.num_workers: [0, 1]
"""

OpenSearch = Callable[..., Search]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the tests work in; `tiny.yaml` lies in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "tiny.yaml").write_text(SPACE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def search_of(here: Path) -> OpenSearch:
    """Return what opens a search of the small space with overrides."""

    def open_with(*overrides: str, name: str | None = None, resume: str = "auto") -> Search:
        return open_search("tiny.yaml", list(overrides), name=name, output="results", resume=resume)

    return open_with


@pytest.fixture
def threads_as_before() -> Iterator[None]:
    """Put back the torch threads of this process."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def files_in(folder: Path) -> list[str]:
    """Return every file and folder below `folder`."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
