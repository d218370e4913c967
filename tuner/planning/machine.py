"""What this machine has to give: looked at in one place, then passed on as plain numbers."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from math import inf
from pathlib import Path

# Asked in a process of its own: torch alone knows which cards it can use (CUDA_VISIBLE_DEVICES by
# number or by name, MIG slices, a wheel without CUDA), and the caller stays free of torch.
ASK_TORCH = """
import json, torch
cards = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
found = [torch.cuda.get_device_properties(card) for card in cards]
print(json.dumps([(card.name, card.total_memory) for card in found]))
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card that training can use."""

    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What may be used here: affinity, cgroup and CUDA_VISIBLE_DEVICES are already taken off."""

    cpus: float
    memory_bytes: int
    shm_free_bytes: int
    gpus: tuple[Gpu, ...]


def look() -> Machine:
    """Returns what this process may use of the machine, never the host's full count."""
    group = cgroup_folders(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return Machine(
        cpus=min(len(os.sched_getaffinity(0)), *map(cpu_quota, group)),
        memory_bytes=int(min(total_memory_bytes(), *map(memory_limit_bytes, group))),
        shm_free_bytes=shutil.disk_usage("/dev/shm").free,
        gpus=find_gpus(),
    )
