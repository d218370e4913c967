"""The machine is what this process may use of it."""

import os
from math import inf
from pathlib import Path

import pytest

from tuner.planning.machine import cgroup_folders, cpu_quota, find_gpus, look, memory_limit_bytes


def group(folder: Path, files: dict[str, str]) -> Path:
    """Return `folder`, written as a cgroup with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_affinity_bounds_the_cpus() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert look().cpus <= 1
    finally:
        os.sched_setaffinity(0, before)


def test_every_number_is_of_this_machine() -> None:
    machine = look()

    assert 0 < machine.cpus <= len(os.sched_getaffinity(0))
    assert 0 < machine.memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.shm_free_bytes > 0


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="has a card")
def test_no_card_is_no_card_whoever_is_asked() -> None:
    assert find_gpus() == look().gpus == ()


@pytest.mark.parametrize(
    ("text", "cpus"), [("max 100000\n", inf), ("150000 100000\n", 1.5), ("50000 100000\n", 0.5)]
)
def test_cpu_quota_of_version_2(tmp_path: Path, text: str, cpus: float) -> None:
    assert cpu_quota(group(tmp_path, {"cpu.max": text})) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1\n", inf), ("250000\n", 2.5)])
def test_cpu_quota_of_version_1(tmp_path: Path, quota: str, cpus: float) -> None:
    files = {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000\n"}

    assert cpu_quota(group(tmp_path, files)) == cpus


def test_a_group_without_limits_bounds_nothing(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) == inf
    assert memory_limit_bytes(tmp_path) > 2**50
    assert memory_limit_bytes(group(tmp_path, {"memory.max": "max\n"})) > 2**50


def test_memory_limits_of_both_versions(tmp_path: Path) -> None:
    version_2 = group(tmp_path / "2", {"memory.max": "1073741824\n"})
    version_1 = group(tmp_path / "1", {"memory.limit_in_bytes": "4096\n"})

    assert memory_limit_bytes(version_2) == 2**30
    assert memory_limit_bytes(version_1) == 4096


def test_limits_of_all_groups_above_count(tmp_path: Path) -> None:
    folders = cgroup_folders("4:cpu:/a/b\n0::/a\n", tmp_path)

    expected = ["cpu/a/b", "cpu/a", "cpu", "a", "."]
    assert folders == [tmp_path / name for name in expected]
