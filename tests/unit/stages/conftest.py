"""A small space in a folder of its own, and the machine that its tests assume."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tuner.data.index import ImageIndex
from tuner.data.prepare import PreparedData
from tuner.planning.machine import Machine
from tuner.planning.resources import Plan
from tuner.stages.course import Course
from tuner.stages.hand_over import Winner, hand_over
from tuner.stages.opening import Search, open_search
from tuner.stages.speeds import Speeds
from tuner.stages.work import plan_work
from tuner.study.record import Record
from tuner.training.checkpoint import CheckpointFolder

RATES = (0.1, 0.2, 0.3)
MACHINE = Machine(cpus=2, memory_bytes=2**33, shm_free_bytes=2**30, gpus=())
PLAN = Plan(slots=2, cpus_per_trial=1.0, gpus_per_trial=0.0, num_gpus=0, threads=1)
SPEEDS = Speeds(
    pinned={"loader.num_workers": 1},
    images_per_s=123.4,
    gpus_per_trial=None,
    data_fingerprint="f00d",
    is_decoded=False,
    limit="compute",
    measured_on="2026-11-30",
    table='num_workers,images_per_s\n1,"123.4"\n',
)
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

    def open_with(
        *overrides: str, name: str | None = None, output: str = "results", resume: str = "auto"
    ) -> Search:
        return open_search("tiny.yaml", list(overrides), name=name, output=output, resume=resume)

    return open_with


OpenCourse = Callable[..., Course]


@pytest.fixture
def course_of(search_of: OpenSearch) -> OpenCourse:
    """Return what opens the course of such a search over 100 images, its folder made."""

    def open_with(*overrides: str) -> Course:
        search = search_of(*overrides)
        search.folder.mkdir(parents=True)
        return course_over(search)

    return open_with


def course_over(search: Search) -> Course:
    """Return the course of a search over 100 images."""
    return Course(search, MACHINE, PLAN, plan_work(search, 100, 50, 2))


def record_of(course: Course) -> Record:
    """Return the record of the search, begun."""
    return Record.open(
        course.search.folder,
        name=course.search.name,
        metric=course.search.config.search.metric,
        direction=course.search.config.search.direction,
        parameters=course.search.space.parameters,
        data_fingerprint="f00d",
        settings_plain={},
    )


def report(samples_seen: int, top1: float, **changes: Any) -> Mapping[str, Any]:
    """Return a report as a trial gives it."""
    return {
        "samples_seen": samples_seen,
        "nominal_samples": samples_seen,
        "epoch": samples_seen / 100,
        "top1": top1,
        "top5": 1.0,
        "validation_loss": 1 - top1,
        "num_correct": round(50 * top1),
        "num_evaluated": 50,
        "train_s": 3.0,
        "data_wait_s": 1.0,
        "seconds": 5.0,
        "micro_batch_size": 16,
        "images_per_s": 25.0,
        "threads": 1,
        "device": "cpu",
        **changes,
    }


class Ended:
    """A search whose three trials have ended, with the checkpoints of their best reports.

    Each scores best at its first report; the second of them is the best.
    """

    def __init__(self, course: Course) -> None:
        self.course, self.record = course, record_of(course)
        self.runs: Record | None = None
        index = ImageIndex.from_paths("train", Path(), ("a", "b"), [*"12345"], [0, 0, 0, 0, 1])
        self.data = PreparedData(
            train=index, validation=index, fingerprint="f00d", images_fingerprint="f00d", notes=()
        )
        for rate, score in zip(RATES, (0.5, 0.75, 0.625), strict=True):
            settings = {"optim.lr": rate, "optim.name": "sgd", "train.batch_size": 16}
            self.train(self.record, "trials", settings, score)

    def train(
        self, record: Record, place: str, settings: dict[str, Any], score: float | None
    ) -> None:
        """Add a trial, or a run, that has the score at 100 of 900 images; without one it fails."""
        number = record.add_trial(settings).number
        if score is None:
            record.end(number, "failed", "killed", "gone")
            return
        record.add_report(number, report(100, score))
        record.add_report(number, report(900, score / 2))
        record.end(number, "complete")
        weights = {"weight": torch.full((2,), score)}
        folder = self.course.search.folder / place / f"{number:04d}"
        CheckpointFolder(folder, pytest.fail).save(
            {"model": weights, "average": None, "mining": None}, 100
        )

    def confirm(self, trial: int, *scores: float | None) -> None:
        """Add a confirm run of the trial for each score, on the seeds 1, 2 …"""
        if self.runs is None:
            self.runs = self.record.open_confirm()
        for seed, score in enumerate(scores, start=1):
            settings = {**self.record.trials[trial].settings, "train.seed": seed}
            self.train(self.runs, "confirm", settings, score)

    def predict(self, place: str, *predictions: int) -> Path:
        """Put what its report said of the five images into a checkpoint; return the file."""
        files = CheckpointFolder(self.course.search.folder / place, pytest.fail)
        found = torch.tensor(predictions, dtype=torch.int32)
        files.save({**files.load(100), "predictions": found}, 100)
        return files.path(100)

    def hand_over(self) -> Winner:
        return hand_over(self.course, self.data, self.record, self.runs)


@pytest.fixture
def ended(course_of: OpenCourse) -> Ended:
    """Return a search that has ended, not confirmed."""
    return Ended(course_of())


@pytest.fixture
def threads_as_before() -> Iterator[None]:
    """Put back the torch threads of this process."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def files_in(folder: Path) -> list[str]:
    """Return every file and folder below `folder`."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
