"""Runs the commands: as a user does, in processes of their own, or in this one to be quick."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from tuner import cli, dataset, export, predict, retrain, search, throughput, trial
from tuner.data.prepare import PreparedData
from tuner.search_logic.jobs import STOP, Job
from tuner.stages.course import Course, open_course
from tuner.stages.follow import trial_context
from tuner.stages.opening import open_search
from tuner.stages.prepare import prepare
from tuner.stages.train import open_jobs, open_record
from tuner.study.record import Record
from tuner.trial import run_job

ON_IMAGES = ("space=cifar10", "data.source=folder", "data.root=images")

SPACE = """
data: {source: folder, image_size: 16}
augment: {crop: pad, flip: true, rotate90: true}
model: {name: resnet8_s2, ghost_batch_size: 4}
optim: {lr: 0.05}
train: {epochs: 9, batch_size: 10, accumulate_steps: 2}
search: {trials: 7, grace_epochs: 1}
parameters:
  optim.lr: {log: [1.0e-3, 1]}
  train.batch_size: {choices: [6, 10, 24]}
  optim.weight_decay: {log: [1.0e-5, 1.0e-2]}
"""


@pytest.fixture
def space_file(image_folder: Path) -> Path:
    """Return a small space over `image_folder`, beside it; its folder is a place to work in."""
    path = image_folder.parent / "tiny.yaml"
    path.write_text(SPACE + f"\n# {image_folder.name}\n", encoding="utf-8")
    return path


@pytest.fixture
def command(image_folder: Path, space_file: Path) -> "Command":
    """Return a starter of commands in the folder of `space_file`."""
    return Command(space_file.parent)


class Command:
    """Starts `python -m tuner.<name>` in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """Return the running process, its output piped."""
        return subprocess.Popen(
            [sys.executable, "-m", f"tuner.{name}", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Return the finished process."""
        with self.start(name, *arguments) as process:
            out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def process_as_before() -> Iterator[None]:
    """Put back what a command sets for the life of its process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    threads, affinity = torch.get_num_threads(), os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, affinity)
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def here(image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that commands start in; `images` lies in it."""
    monkeypatch.chdir(image_folder.parent)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return image_folder.parent


COMMANDS: dict[str, tuple[Any, Callable[..., None]]] = {
    "search": (search.SearchKeys, search.main),
    "throughput": (throughput.ThroughputKeys, throughput.main),
    "dataset": (dataset.DatasetKeys, dataset.main),
    "retrain": (retrain.RetrainKeys, retrain.main),
    "predict": (predict.PredictKeys, predict.main),
    "export": (export.ExportKeys, export.main),
}


class Told:
    """Runs commands in this process; what they say is compared as lines."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def run(self, name: str, *arguments: str) -> tuple[int, list[str]]:
        """Return the exit code and the lines of stderr."""
        code = self.run_only(name, *arguments)
        return code, self.capsys.readouterr().err.splitlines()

    def run_only(self, name: str, *arguments: str) -> int:
        """Return the exit code; what was said is left to be read."""
        return cli.run(name, *COMMANDS[name], arguments)

    def search(self, *arguments: str) -> tuple[int, list[str]]:
        """Run `search`."""
        return self.run("search", *arguments)

    def retrain(self, *arguments: str) -> tuple[int, list[str]]:
        """Run `retrain`."""
        return self.run("retrain", *arguments)


@pytest.fixture
def told(process_as_before: None, capsys: pytest.CaptureFixture[str]) -> Told:
    """Return a runner of commands in this process, which is afterwards as it was before."""
    return Told(capsys)


def errors(*lines: str) -> tuple[int, list[str]]:
    """Return what `Told` gives for a command that is refused with these lines."""
    return 2, [f"error: {line}" for line in lines]


def files_in(folder: Path) -> set[str]:
    """Return the names of all files below `folder`."""
    return {path.name for path in folder.rglob("*") if path.is_file()}


def begin(*arguments: str) -> tuple[Course, PreparedData, Record]:
    """Return a search that has been begun, without a Ray, with its images and its record."""
    keys, overrides = cli.parse_arguments(arguments, search.SearchKeys)
    begun = open_search(
        keys.space, overrides, name=keys.name, output=keys.output, resume=keys.resume
    )
    begun.folder.mkdir(parents=True, exist_ok=True)
    course = open_course(begun, is_dry_run=False)
    data = prepare(course)
    return course.with_images(data), data, open_record(begun, data, course.points)


@pytest.fixture
def nothing_kept(process_as_before: None) -> Iterator[None]:
    """Close what a trial keeps open in its process for the next one."""
    yield
    trial.KEPT.close()


def train(
    course: Course, _: PreparedData, record: Record, *, num_reports: int | None = None
) -> None:
    """Train trials, without a Ray, until none is left or the process is killed after some reports.

    It takes what `begin` returns, and is to be used with `nothing_kept`.
    """
    jobs = open_jobs(course, record)
    context = trial_context(course, course.search.config, "search")
    heard = 0
    while isinstance(job := jobs.next_job(), Job):
        with closing(
            run_job(asdict(job) | {"beat_path": str(course.search.folder / "beat")}, context)
        ) as results:
            for result in results:
                decision = jobs.report(job, result)
                heard += 1
                if heard == num_reports:
                    return
                if decision is STOP:
                    break
