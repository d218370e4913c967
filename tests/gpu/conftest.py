"""Laws that need a GPU. The folder is skipped as a whole where there is none.

`GPU_TESTS_DEVICE=cpu` runs what a CPU can, to check the tests themselves. Nothing here imports ray,
optuna or pydantic, so a machine with torch, numpy, safetensors and filelock is enough:

    PYTHONPATH=. python -m pytest -c /dev/null --rootdir=. --confcutdir=tests/gpu \
        --import-mode=importlib tests/gpu

`run.py` is no test: it checks and measures in one run what takes a whole card or a clock.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

DEVICE = torch.device(os.environ.get("GPU_TESTS_DEVICE", "cuda"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if DEVICE.type == "cuda" and not torch.cuda.is_available():
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="there is no GPU"))


@pytest.fixture
def device() -> torch.device:
    return DEVICE


@pytest.fixture
def cuda(device: torch.device) -> torch.device:
    """Return the GPU; a test that asks for it is skipped on a CPU."""
    if device.type != "cuda":
        pytest.skip("only a GPU has this")
    return device


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    """Set what the laws need: kernels that repeat, and fp32 that is fp32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
