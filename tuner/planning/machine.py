"""What this machine has to give: looked at in one place, then passed on as plain numbers."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from math import inf
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
MICROSECONDS_PER_PERIOD = 100_000  # the kernel's default for cpu.max
# Version 1 tells "no limit" by its largest page-aligned number.
NO_LIMIT_BYTES = 2**60

# Asked in a process of its own: torch alone knows which cards it can use (CUDA_VISIBLE_DEVICES by
# number or by name, MIG slices, a build without CUDA), and this process stays free of torch.
ASK_TORCH = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
cards = [torch.cuda.get_device_properties(card) for card in range(count)]
free = [torch.cuda.mem_get_info(card)[0] for card in range(count)]
print(json.dumps([[card.name, card.total_memory, left] for card, left in zip(cards, free)]))
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card that training can use.

    Attributes:
        free_bytes: What no program had when it was looked at.
    """

    name: str
    memory_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What this process may use: affinity, cgroup limits and CUDA_VISIBLE_DEVICES are taken off.

    Attributes:
        host_cpus: What there would be without them.
    """

    cpus: float
    memory_bytes: int
    shm_free_bytes: int
    gpus: tuple[Gpu, ...]
    host_cpus: int = 0


def look() -> Machine:
    """Returns what this process may use of the machine, not what the host has.

    Takes milliseconds without a card and about 3 s with one.
    """
    folders = cgroup_folders(Path("/proc/self/cgroup").read_text(), CGROUP_ROOT)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        cpus=min([len(os.sched_getaffinity(0)), *map(cpu_quota, folders)]),
        memory_bytes=min([memory_bytes, *map(memory_limit_bytes, folders)]),
        shm_free_bytes=shutil.disk_usage("/dev/shm").free,
        gpus=find_gpus() if any(Path("/dev").glob("nvidia[0-9]*")) else (),
        host_cpus=os.cpu_count() or 0,
    )


def cgroup_folders(membership: str, root: Path) -> list[Path]:
    """Returns the folders whose limits bind this process: its groups and all above them.

    Args:
        membership: The text of ``/proc/self/cgroup``, versions 1 and 2.
        root: Where the groups are mounted.
    """
    folders = []
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        mount = root / controllers
        group = mount / path.lstrip("/")
        folders += [group, *(above for above in group.parents if above.is_relative_to(mount))]
    return folders


def cpu_quota(folder: Path) -> float:
    """Returns the CPUs that a group allows, infinite where it sets no quota."""
    words = read_words(folder / "cpu.max")  # version 2: "max 100000" or "150000 100000"
    if not words:
        words = read_words(folder / "cpu.cfs_quota_us") + read_words(folder / "cpu.cfs_period_us")
    if not words or words[0] in ("max", "-1"):
        return inf
    return int(words[0]) / int(words[1] if len(words) > 1 else MICROSECONDS_PER_PERIOD)


def memory_limit_bytes(folder: Path) -> int:
    """Returns the bytes that a group allows, a number above any memory where it sets no limit."""
    words = read_words(folder / "memory.max") or read_words(folder / "memory.limit_in_bytes")
    return NO_LIMIT_BYTES if not words or words[0] == "max" else int(words[0])


def read_words(path: Path) -> list[str]:
    """Returns the words of a kernel file; none where there is no such file."""
    try:
        return path.read_text().split()
    except OSError:
        return []


def find_gpus() -> tuple[Gpu, ...]:
    """Returns the cards that torch can use; none where torch cannot tell."""
    asked = subprocess.run([sys.executable, "-c", ASK_TORCH], capture_output=True, text=True)
    if asked.returncode != 0:
        return ()
    return tuple(Gpu(*card) for card in json.loads(asked.stdout.splitlines()[-1]))
