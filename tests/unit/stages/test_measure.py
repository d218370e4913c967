"""Which throughput settings a search trains with, and when they are measured."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.stages.conftest import MACHINE, SPEEDS, OpenCourse, OpenSearch
from tuner.errors import RunError, StoppedError
from tuner.planning.machine import Gpu, Machine
from tuner.planning.throughput import IMAGES_FROM, Choice, Row
from tuner.raytune.engine import RaySession
from tuner.stages import measure as stage
from tuner.stages.course import Course, plan_trials
from tuner.stages.measure import (
    find_limit,
    image_sources,
    is_share_open,
    limit_by_waits,
    measure,
    most_trials_per_gpu,
    uncounted_bytes,
    what_matters,
    with_workers_for,
)
from tuner.stages.speeds import Speeds, keep_in_run, remember, speeds_of_run
from tuner.stages.work import plan_work

CARD = Machine(16, 2**35, 2**30, (Gpu("card", 2**35, 2**35),))
SESSION: RaySession = object()  # type: ignore[assignment]


class Measured:
    """Stands for the measurements, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, found: Speeds | RunError) -> None:
        self.num_times = 0
        self.found = found
        monkeypatch.setattr(stage, "measure_speeds", self.measure)

    def measure(self, course: Course, fingerprint: str, session: RaySession) -> Speeds:
        self.num_times += 1
        if isinstance(self.found, RunError):
            raise self.found
        return self.found


def test_a_search_that_has_trials_keeps_what_they_were_trained_with(
    course_of: OpenCourse, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = course_of()
    first = Measured(monkeypatch, SPEEDS)
    begun = measure(course, "f00d", SESSION, has_trials=False)
    assert (first.num_times, begun.search.config.loader.num_workers) == (1, 1)
    assert speeds_of_run(course.search.folder) == SPEEDS
    other = replace(SPEEDS, pinned={"loader.num_workers": 0})
    remember(course.search, course.plan, MACHINE, other)  # measured again meanwhile

    again = measure(course, "f00d", SESSION, has_trials=True)
    assert again.search.config.loader.num_workers == 1
    anew = measure(course, "f00d", SESSION, has_trials=False)
    assert anew.search.config.loader.num_workers == 0
    assert first.num_times == 1


def test_images_that_have_changed_are_measured_again(
    course_of: OpenCourse, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = course_of()
    remember(course.search, course.plan, MACHINE, replace(SPEEDS, data_fingerprint="beef"))
    again = Measured(monkeypatch, SPEEDS)
    measure(course, "f00d", SESSION, has_trials=False)
    assert again.num_times == 1


def test_images_that_come_decoded_now_are_measured_again(
    course_of: OpenCourse, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = course_of()
    remember(course.search, course.plan, MACHINE, SPEEDS)
    again = Measured(monkeypatch, SPEEDS)
    measure(course, "f00d", SESSION, has_trials=False)
    assert again.num_times == 0
    measure(replace(course, decoded_bytes=10**6), "f00d", SESSION, has_trials=False)
    assert again.num_times == 1


def test_decoded_images_need_no_workers(course_of: OpenCourse) -> None:
    course = course_of("throughput.train.accumulate_steps=[1, 2]")
    assert what_matters(course) == (course.search.space.throughput, ())
    specs, notes = what_matters(replace(course, decoded_bytes=10**6))
    assert list(specs) == ["train.accumulate_steps"]
    assert notes == ("decoded images need no loader workers: loader.num_workers left out",)


ROW = Row({}, "measured", 80.0, 1.0, 0.2, 1, 1, 1, "", "")
CHOICE = Choice((ROW,), ROW, images_per_s=80.0, num_processes=2)


class Answering:
    """Stands for the probes: so many images a second by where the images are."""

    def __init__(self, speeds: dict[str, float | None]) -> None:
        self._speeds = speeds
        self.asked: list[str] = []

    def measure(self, settings: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
        if seconds:
            self.asked.append(settings[IMAGES_FROM])
        speed = self._speeds[settings[IMAGES_FROM]]
        failed = {"reason": "out_of_memory", "message": "too large"}
        return [failed if speed is None else {"images_per_s": speed}] * 2


SOURCES = ("loader", "memory", "device")


@pytest.mark.parametrize(
    ("device", "limit", "asked"),
    [
        (50.0, "images", [*SOURCES, *SOURCES[::-1]]),
        (300.0, "copy", [*SOURCES, *SOURCES[::-1]]),
        (None, "", [*SOURCES]),
    ],
)
def test_a_gpu_s_limit_is_measured_in_turns(
    device: float | None, limit: str, asked: list[str]
) -> None:
    probes: Any = Answering({"loader": 40.0, "memory": 50.0, "device": device})
    assert find_limit(probes, CHOICE, 8, sources=SOURCES, limit_s=12.0) == limit
    assert probes.asked == asked


def test_images_on_the_card_are_not_copied() -> None:
    probes: Any = Answering({"loader": 40.0, "device": 50.0})
    assert find_limit(probes, CHOICE, 8, sources=("loader", "device"), limit_s=12.0) == "images"


def test_a_gpu_s_limit_is_not_asked_for_where_steps_take_long() -> None:
    probes: Any = Answering({})
    assert find_limit(probes, CHOICE, 400, sources=SOURCES, limit_s=12.0) == ""
    assert probes.asked == []


@pytest.mark.parametrize(
    ("waited", "num_workers", "limit"),
    [(0.0, 0, "compute"), (0.04, 0, "compute"), (0.2, 0, "images"), (0.2, 1, "images"), (0, 1, "")],
)
def test_a_cpu_s_limit_is_told_by_its_wait(waited: float, num_workers: int, limit: str) -> None:
    assert limit_by_waits(replace(ROW, data_wait_share=waited), num_workers) == limit


@pytest.mark.parametrize(
    ("cache", "decoded_bytes", "sources", "uncounted"),
    [
        ("auto", 0, SOURCES, 0),
        ("auto", 2**33, ("loader", "device"), 0),
        ("auto", 2**33 + 1, SOURCES, 2**33 + 1),
        ("device", 2**33, ("loader", "device"), 0),
        ("decoded", 2**33, SOURCES, 0),
        ("decoded", 2**33 + 1, SOURCES, 0),
    ],
)
def test_decoded_images_on_the_card_are_neither_copied_nor_counted_twice(
    search_of: OpenSearch, cache: str, decoded_bytes: int, sources: tuple[str, ...], uncounted: int
) -> None:
    search = search_of(f"data.cache={cache}")
    plan = plan_trials(search, CARD)
    course = Course(search, CARD, plan, plan_work(search, 100, 50, 2), decoded_bytes=decoded_bytes)
    assert image_sources(course, plan) == sources
    assert uncounted_bytes(course, plan) == uncounted
    assert image_sources(course, replace(plan, num_gpus=0)) == ()


def test_what_the_command_line_fixes_stays_fixed(course_of: OpenCourse) -> None:
    course = course_of("loader.num_workers=0")
    keep_in_run(course.search.folder, SPEEDS)
    again = measure(course, "f00d", SESSION, has_trials=True)
    assert again.search.config.loader.num_workers == 0


def test_a_search_goes_on_where_nothing_can_be_measured(
    course_of: OpenCourse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of()
    Measured(monkeypatch, RunError("throughput: nothing could be measured: killed (silent)"))
    assert measure(course, "f00d", SESSION, has_trials=False) == course
    assert capsys.readouterr().out == (
        "measure   throughput: nothing could be measured: killed (silent); "
        "the settings stay as they are\n"
    )


def test_a_lost_ray_is_started_again_and_the_speeds_measured_anew(
    course_of: OpenCourse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of("search.max_restarts=1")
    lost = Measured(monkeypatch, StoppedError("ray: lost while measuring, it died"))
    with pytest.raises(StoppedError):
        measure(course, "f00d", SESSION, has_trials=False)
    assert lost.num_times == 2
    assert capsys.readouterr().out == (
        "measure   ray: lost while measuring, it died; measured again\n"
    )


def test_a_search_that_began_without_measured_settings_goes_on_without(
    course_of: OpenCourse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of()
    Measured(monkeypatch, RunError("throughput: nothing could be measured"))
    begun = measure(course, "f00d", SESSION, has_trials=False)
    again = Measured(monkeypatch, SPEEDS)
    remember(course.search, course.plan, MACHINE, SPEEDS)  # measured by another search meanwhile
    capsys.readouterr()
    assert measure(course, "f00d", SESSION, has_trials=True) == begun
    assert again.num_times == 0
    assert capsys.readouterr().out == (
        "measure   this search began without; the settings stay as they are\n"
    )


@pytest.mark.parametrize(
    ("machine", "overrides", "most"),
    [
        (CARD, (), 8),
        (CARD, ("search.trials=3",), 2),
        (CARD, ("resources.cpus_per_trial=4",), 4),
        (CARD, ("resources.cpus_per_trial=12",), 1),
        (replace(CARD, cpus=6.0), (), 4),
        (replace(CARD, cpus=0.5), (), 1),
        (replace(CARD, gpus=CARD.gpus * 4), (), 2),
    ],
)
def test_no_more_trials_share_a_card_than_have_cpus_and_work(
    search_of: OpenSearch, machine: Machine, overrides: tuple[str, ...], most: int
) -> None:
    search = search_of("search.trials=100", *overrides)
    if machine.gpus == CARD.gpus * 4:
        search = search_of("search.trials=8")
    course = Course(search, machine, plan_trials(search, machine), plan_work(search, 100, 50, 2))
    assert most_trials_per_gpu(course) == most
    assert is_share_open(course) == (most > 1)


@pytest.mark.parametrize("override", ["resources.gpus_per_trial=0.5", "resources.gpus_per_trial=0"])
def test_a_share_that_is_given_is_not_measured(search_of: OpenSearch, override: str) -> None:
    for each in (override, "search.max_concurrent=2"):
        search = search_of(each)
        course = Course(search, CARD, plan_trials(search, CARD), plan_work(search, 100, 50, 2))
        assert not is_share_open(course)


@pytest.mark.parametrize(
    ("cpus", "kept"), [(0.5, [0, 1]), (1.0, [0, 1]), (2.5, [0, 1, 2]), (8.0, [0, 1, 2, 4])]
)
def test_loader_workers_do_not_take_the_cpus_of_other_trials(cpus: float, kept: list[int]) -> None:
    settings: list[dict[str, Any]] = [{"loader.num_workers": number} for number in (0, 1, 2, 4)]
    assert [each["loader.num_workers"] for each in with_workers_for(cpus, settings)] == kept
    assert with_workers_for(1.0, settings[3:]) == settings[3:]  # none else is asked for
