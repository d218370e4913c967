"""A mistake in the settings costs seconds, gets one line and changes nothing on disk.

So does a folder that another search holds, or that was begun with other settings.
A search in which every trial fails says why.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ON_IMAGES, Told, begin, errors, files_in
from tuner import cli, retrain
from tuner.errors import RunError
from tuner.files import hold_folder
from tuner.handover import RESULT_KEYS, describe_winner
from tuner.planning.machine import look
from tuner.raytune.engine import ray_session
from tuner.search_logic.jobs import Job
from tuner.settings.config import Config
from tuner.settings.text import read_yaml, yaml_text
from tuner.stages.train import open_jobs, train_trials

HOLD = """
import pathlib, sys
from tuner.files import hold_folder
with hold_folder(pathlib.Path(sys.argv[1])):
    input()
"""


SETTINGS = [
    (
        "space=cifar1",
        "space: no such search space (cifar1); use cifar10, cifar10_lenet, csv_mining, "
        "imagenet_small or the path of a .yaml file; did you mean cifar10?",
    ),
    ("space=mine.yaml", "mine.yaml: cannot be read (No such file or directory)"),
    ("space=", "space: no value given; write space=VALUE"),
    ("name=", "name: no value given; write name=VALUE"),
    (
        "name=../x",
        "name: not allowed (../x); use one folder name, not hidden, of at most 100 bytes",
    ),
    ("optim.lrr=1", "optim.lrr: no such setting; did you mean optim.lr?"),
    ("optim.lr=fast", "optim.lr: not allowed (fast); use a number above 0"),
    ("optim.name=sgdd", "optim.name: not allowed (sgdd); use sgd, adam or adamw"),
    (
        "parameters.optim.lr={log: [0, 0.1]}",
        "parameters.optim.lr: lower bound is not above 0 (log: [0, 0.1]); "
        "orders of magnitude begin above 0",
    ),
    (
        "parameters.optim.lr={log: [0.1, 1e-5]}",
        "parameters.optim.lr: bounds are swapped (log: [0.1, 1e-05]); write [1e-05, 0.1]",
    ),
    (
        "parameters.optim.lr={log: []}",
        "parameters.optim.lr: needs two bounds (log: []); write {log: [low, high]}",
    ),
    (
        "parameters.train.batch_size=[]",
        "parameters.train.batch_size: no choices ([]); list at least one value",
    ),
    (
        "parameters.optim.lr={log:[0.1,1]}",
        "parameters.optim.lr: cannot be read as a value ({log:[0.1,1]}); "
        "write YAML, with a space behind each colon",
    ),
    (
        "search.grace_epochs=20",
        "search.grace_epochs: 20 is above train.epochs (9); use at most 9",
    ),
    (
        "search.metric=top_1",
        "search.metric: not allowed (top_1); use top1, top5, balanced_top1 or validation_loss",
    ),
    (
        "search.trials=0",
        "search.trials: not allowed (0); use a whole number from 1 to 1000000000",
    ),
    ("mining.ratio=0.5", "mining.ratio: not allowed (0.5); use 0 or a number from 1 up"),
    (
        "search.patience=0",
        "search.patience: not allowed (0); use a whole number from 1 to 1000000000 or null",
    ),
    (
        "model.name=resnet9",
        "model.name: no such model (resnet9); did you mean resnet8?; use lenet, resnet8, "
        "resnet8_s2, resnet20, resnet20_s2, a torchvision classifier, timm/… or "
        "package.module:function",
    ),
    (
        "parameters.model.name=[lenet, resnet9]",
        "model.name: no such model (resnet9); did you mean resnet8?; use lenet, resnet8, "
        "resnet8_s2, resnet20, resnet20_s2, a torchvision classifier, timm/… or "
        "package.module:function",
    ),
    (
        "resources.gpus_per_trial=1",
        "resources.gpus_per_trial: 1 wanted, torch finds no GPU here; use 0",
    ),
    (
        "resources.cpus_per_trial=4096",
        "resources.cpus_per_trial: 4096 wanted, this process may use CPUS; use at most that",
    ),
    (
        "search.max_concurrent=4096",
        "search.max_concurrent: 4096 trials of 1 CPU and 0 GPU wanted, CPUS CPU and 0 GPU hold "
        "FIT; use at most FIT",
    ),
    (
        "output=/proc/x",
        "/proc/x/cifar10-images: cannot be written (No such file or directory); "
        "use another output=…",
    ),
    (
        "output=tiny.yaml",
        "HERE/tiny.yaml/cifar10-images: cannot be written (Not a directory); use another output=…",
    ),
    (
        "resume=must",
        "resume: there is no search to go on with (HERE/results/cifar10-images); use resume=auto",
    ),
    (
        "data.root=gone",
        "data.root: 'HERE/gone' does not exist; give a folder with one folder per class",
    ),
    (
        "data.root=tiny.yaml",
        "data.root: 'HERE/tiny.yaml' is not a folder; give a folder with one folder per class",
    ),
]


@pytest.mark.parametrize(("argument", "line"), SETTINGS)
def test_a_mistake_is_one_line_and_leaves_nothing(
    here: Path, space_file: Path, told: Told, argument: str, line: str
) -> None:
    cpus = look().cpus
    for word, value in (("HERE", here), ("CPUS", f"{cpus:g}"), ("FIT", int(cpus))):
        line = line.replace(word, str(value))
    assert told.search(*ON_IMAGES, argument) == errors(line)
    assert files_in(here / "results") == set()
    assert not list(here.glob("results/*"))


def test_all_mistakes_are_told_together(told: Told) -> None:
    arguments = ("space=cifar1", "optim.lrr=1", "search.trials=0", "parameters.optim.lr={log: 1}")
    code, lines = told.search(*arguments)
    assert (code, len(lines)) == (2, 3)


def test_a_stale_ray_address_is_named(
    here: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6399")
    assert told.search(*ON_IMAGES) == errors(
        "RAY_ADDRESS: names a Ray cluster (127.0.0.1:6399), but a search starts its own Ray on "
        "this machine; unset RAY_ADDRESS"
    )


def test_the_cpus_are_those_this_process_may_use(here: Path, told: Told) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    assert told.search(*ON_IMAGES, "search.max_concurrent=2") == errors(
        "search.max_concurrent: 2 trials of 1 CPU and 0 GPU wanted, 1 CPU and 0 GPU hold 1; "
        "use at most 1"
    )


def test_a_second_search_in_the_same_folder_is_refused_while_the_first_runs(
    here: Path, told: Told
) -> None:
    folder = here / "results/cifar10-images"
    holder = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(holder, stdin=subprocess.PIPE) as first:
        while not files_in(folder) or not (folder / "run.lock").read_text():
            assert first.poll() is None
        assert told.search(*ON_IMAGES) == errors(
            f"{folder}: another run is there (pid {first.pid}); "
            "wait for it, or use another name=… or output=…"
        )
        first.kill()
    with hold_folder(folder):
        assert files_in(folder) == {"run.lock"}


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        (
            ("parameters.optim.lr={log: [1e-4, 1]}",),
            ['optim.lr was {"log": [0.001, 1.0]} and is now {"log": [0.0001, 1.0]}'],
        ),
        (
            ("train.label_smoothing=0.1", "train.epochs=3"),
            [
                'train.label_smoothing was {"float": [0.0, 0.2]} and is now 0.1',
                "train.epochs was 9 and is now 3",
            ],
        ),
        (
            ("data.limit=20",),
            ["the images are others: 4 removed", "data.limit was null and is now 20"],
        ),
    ],
)
def test_a_search_that_was_begun_keeps_its_space(
    here: Path, told: Told, arguments: tuple[str, ...], changes: list[str]
) -> None:
    folder = begin(*ON_IMAGES)[0].search.folder
    before = (folder / "study.journal").read_bytes()
    assert told.search(*ON_IMAGES, *arguments) == errors(
        *(f"{folder}: {change}" for change in changes),
        "change it back, or begin a new search from the best of this one: "
        "resume=never search.points=results/cifar10-images",
    )
    assert (folder / "study.journal").read_bytes() == before


def test_a_search_that_was_begun_keeps_its_metric(here: Path, told: Told) -> None:
    folder = begin(*ON_IMAGES)[0].search.folder
    assert told.search(*ON_IMAGES, "search.metric=validation_loss") == errors(
        f'{folder}: metric was "top1" and is now "validation_loss"',
        "change it back, or begin a new search: resume=never",
    )


def test_a_search_in_which_every_trial_fails_gives_each_reason_once_and_every_row(
    here: Path, told: Told
) -> None:
    course, _, record = begin(*ON_IMAGES, "search.trials=2")
    jobs = open_jobs(course, record)
    for num_images in (24, 48):
        job = jobs.next_job()
        assert isinstance(job, Job)
        jobs.fail(job, "diverged", f"validation loss is nan after {num_images} images")
    with (
        ray_session(course.machine, course.search.folder) as session,
        pytest.raises(RunError) as caught,
    ):
        train_trials(course, record, session)
    assert caught.value.exit_code == 1
    assert caught.value.problems == (
        "no trial has a score: diverged (validation loss is nan after 24 images); "
        "mend it, then raise search.trials or use resume=never",
    )
    with (course.search.folder / "leaderboard.csv").open(newline="") as file:
        assert [row["reason"] for row in csv.DictReader(file)] == ["diverged", "diverged"]


@pytest.fixture
def best_yaml(here: Path) -> Path:
    """Return a `best.yaml` as a search writes it."""
    report: dict[str, Any] = dict.fromkeys(RESULT_KEYS, 1)
    config = Config().with_overrides({"data.source": "folder", "data.root": str(here / "images")})
    winner = describe_winner(
        config, report, classes=["a", "b"], data_fingerprint="f00d", threads=1, device="cpu"
    )
    path = here / "best.yaml"
    path.write_text(yaml_text(winner))
    return path


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "config, space: give one of the two, and not both"),
        (("config=a", "space=b"), "config, space: give one of the two, and not both"),
        (("config=gone.yaml",), "HERE/gone.yaml: cannot be read (No such file or directory)"),
        (("config=images",), "HERE/images: cannot be read (Is a directory)"),
        (
            ("config=tiny.yaml",),
            "HERE/tiny.yaml: not a best.yaml (settings is missing or wrong); "
            "give the file that a search or retrain wrote",
        ),
        (("config=best.yaml", "output="), "output: no value given; write output=VALUE"),
        (
            ("config=best.yaml", "optim.lr=0"),
            "optim.lr: not allowed (0); use a number above 0",
        ),
        (
            ("config=best.yaml", "output=/proc/x"),
            "/proc/x: cannot be written (No such file or directory); use another output=…",
        ),
        (
            ("config=best.yaml", "resources.gpus_per_trial=1"),
            "resources.gpus_per_trial: 1 wanted, torch finds no GPU here; use 0",
        ),
        (
            (*ON_IMAGES, "resources.gpus_per_trial=1"),
            "resources.gpus_per_trial: 1 wanted, torch finds no GPU here; use 0",
        ),
        (
            ("config=best.yaml", "data.root=gone"),
            "data.root: 'HERE/gone' does not exist; give a folder with one folder per class",
        ),
        (
            ("config=best.yaml", "model.name=resnet9"),
            "model.name: no such model (resnet9); did you mean resnet8?; use lenet, resnet8, "
            "resnet8_s2, resnet20, resnet20_s2, a torchvision classifier, timm/… or "
            "package.module:function",
        ),
    ],
)
def test_a_mistake_in_a_retraining_is_one_line(
    here: Path, space_file: Path, best_yaml: Path, told: Told, arguments: tuple[str, ...], line: str
) -> None:
    assert told.retrain(*arguments) == errors(line.replace("HERE", str(here)))
    assert not (here / "retrain").exists()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("data_fingerprint", None),
        ("settings", 3),
        ("result.num_correct", None),
        ("environment.threads", 0),
        ("environment.processor", None),
        ("confirmed.interval", [0.5]),
    ],
)
def test_a_best_yaml_that_is_not_whole_is_refused_before_it_is_trained(
    here: Path, best_yaml: Path, told: Told, place: str, value: Any
) -> None:
    content = read_yaml(best_yaml)
    *sections, name = place.split(".")
    content["confirmed"] = {"metric": "top1", "seeds": [1]}
    holder = content[sections[0]] if sections else content
    holder[name] = value
    best_yaml.write_text(yaml_text(content))
    assert told.retrain("config=best.yaml") == errors(
        f"{best_yaml}: not a best.yaml ({place} is missing or wrong); "
        "give the file that a search or retrain wrote"
    )


def test_a_retraining_says_that_a_batch_is_above_the_data(here: Path, told: Told) -> None:
    code = cli.run("retrain", retrain.RetrainKeys, retrain.main, [*ON_IMAGES, "train.epochs=1"])
    assert code == 0
    lines = told.capsys.readouterr().out.splitlines()
    note = "train.batch_size: 128 is above the 24 training images; such an epoch is one short step"
    assert lines.count(note) == 1
