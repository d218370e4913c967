"""A job counts as stalled when its file is not touched for too long, and only then."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.raytune.stalls import LONGEST_START_S, LOOK_EVERY_S, StallWatch, begin_beats

TIMEOUT_S = 20.0


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(tmp_path: Path, clock: Clock) -> StallWatch:
    """Return a watch over one job."""
    watch = StallWatch(tmp_path, TIMEOUT_S, clock)
    watch.begin("a")
    return watch


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that waits to be ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def beat(path: Path, at_ns: int) -> None:
    os.utime(path, ns=(at_ns, at_ns))


def looks(watch: StallWatch, clock: Clock, seconds: float) -> list[str]:
    """Let so much time pass, look on as often as the engine does, and return the last answer."""
    stalled: list[str] = []
    for _ in range(round(seconds / LOOK_EVERY_S)):
        clock.now += LOOK_EVERY_S
        stalled = watch.end_stalled()
    return stalled


def test_who_touches_its_file_in_time_lives(
    tmp_path: Path, watch: StallWatch, clock: Clock
) -> None:
    begin_beats(tmp_path / "a")
    for at_ns in range(1, 10):
        beat(tmp_path / "a", at_ns)  # whatever time the file system's clock shows
        assert looks(watch, clock, TIMEOUT_S) == []


def test_who_does_not_is_killed(
    tmp_path: Path, watch: StallWatch, clock: Clock, process: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "a").write_text(str(process.pid))
    looks(watch, clock, LOOK_EVERY_S)
    assert looks(watch, clock, TIMEOUT_S) == []
    assert looks(watch, clock, LOOK_EVERY_S) == ["a"]
    assert process.wait(10) == -9


def test_a_job_that_has_not_begun_in_time_has_stalled_without_a_process(
    watch: StallWatch, clock: Clock
) -> None:
    assert looks(watch, clock, LONGEST_START_S) == []
    assert looks(watch, clock, LOOK_EVERY_S) == ["a"]
    assert watch.pid("a") is None


def test_a_pause_of_the_program_is_no_stall(watch: StallWatch, clock: Clock) -> None:
    clock.now += 1000 * TIMEOUT_S  # Ctrl-Z and fg, a paused container
    assert watch.end_stalled() == []
    assert looks(watch, clock, TIMEOUT_S / 2) == []


def test_a_job_that_has_ended_is_forgotten_with_its_file(
    tmp_path: Path, watch: StallWatch, clock: Clock
) -> None:
    begin_beats(tmp_path / "a")
    assert watch.pid("a") == os.getpid()
    watch.end("a")

    assert looks(watch, clock, TIMEOUT_S + LOOK_EVERY_S) == []
    assert not list(tmp_path.iterdir())


def test_without_a_timeout_nobody_stalls(tmp_path: Path, clock: Clock) -> None:
    watch = StallWatch(tmp_path, None, clock)
    watch.begin("a")
    assert looks(watch, clock, 100 * TIMEOUT_S) == []
