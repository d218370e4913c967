"""What a search says before it starts, and what it leaves alone until then."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.prepared import prepare_quietly
from tests.unit.stages.conftest import MACHINE, PLAN, OpenSearch, files_in
from tests.unit.stages.conftest import SPEEDS as MEASURED
from tuner.errors import ResourceError
from tuner.planning.cost import START_S, measure_budget_s
from tuner.planning.machine import Gpu, Machine
from tuner.planning.resources import Plan
from tuner.raytune.engine import Dashboard
from tuner.stages import course
from tuner.stages.course import Course, open_course, plan_trials, say_dashboard
from tuner.stages.speeds import keep_in_run, remember

PROGRAM = """
import sys
from tuner import cli, search
code = cli.run("search", search.SearchKeys, search.main)
print("imported:", *sorted({"ray"} & sys.modules.keys()))
sys.exit(code)
"""
DURATION = r"(\d+ s|\d+ min \d+ s)"
SPEEDS = replace(MEASURED, images_per_s=500.0)


@pytest.fixture
def told(
    search_of: OpenSearch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> "Told":
    """Return what opens a course on an assumed machine whose trials train 500 images/s."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(course, "look_at_speed", lambda search, plan, num_images: 500.0)
    return Told(search_of, monkeypatch, capsys)


class Told:
    """Opens courses and gives the lines that they print."""

    def __init__(
        self,
        search_of: OpenSearch,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.search_of, self.monkeypatch, self.capsys = search_of, monkeypatch, capsys

    def open(
        self, *overrides: str, machine: Machine = MACHINE, is_dry_run: bool = True
    ) -> tuple[Course, list[str]]:
        self.monkeypatch.setattr(course, "look", lambda: machine)
        opened = open_course(self.search_of(*overrides), is_dry_run=is_dry_run)
        return opened, self.capsys.readouterr().out.splitlines()


def test_a_dry_run_says_what_would_be_done_and_what_it_would_take(told: Told) -> None:
    opened, lines = told.open()
    most_bytes = (2 * 4 + 7 * 3 + 4) * opened.work.checkpoint_bytes
    assert lines == [
        "plan      prepare 1000 training and 500 validation images",
        "          measure: loader.num_workers",
        "          search: 7 trials of lenet at 16 px, rungs at 1, 3 and 9 epochs",
        "          confirm: the best 2 again on 2 fresh seeds, 4 runs",
        "points    first the defaults: optim.lr 0.1, optim.name sgd; drawn: train.batch_size",
        f"disk      up to {round(most_bytes / 1e6)} MB of checkpoints in results/tiny",
        "          1 MB of decoded images in results/.cache, for all searches",
        "machine   2 side by side, each with 1 CPU and 1 torch thread",
        *lines[8:9],
        "          by the model's speed on random pixels; reading images comes on top",
    ]
    times = (
        rf"time      about {DURATION}: measure {DURATION}, search {DURATION}, confirm {DURATION}"
    )
    assert re.fullmatch(times, lines[8])
    assert opened.plan == PLAN
    assert opened.expected_s == opened.work.estimate(500.0, 2, has_to_measure=True).seconds
    assert opened.images_per_s == 500.0


def test_models_lengths_and_notes_are_told_as_they_are(told: Told) -> None:
    _, lines = told.open(
        "parameters.model.name=[lenet, resnet8]",
        "search.scheduler=none",
        "optim.lr=0.1",
        "data.limit=200",
        "search.confirm_top=1",
        "search.confirm_seeds=3",
        "resources.cpus_per_trial=2",
        "throughput.train.accumulate_steps=[1, 2]",
    )
    assert [*lines[:5], lines[8]] == [
        "optim.lr: fixed at 0.1 by the command line, not searched",
        "plan      prepare 200 training and 200 validation images",
        "          measure: loader.num_workers x train.accumulate_steps",
        "          search: 7 trials of lenet, resnet8 at 16 px, 9 epochs",
        "          confirm: the best 1 again on 3 fresh seeds, 3 runs",
        "machine   1 side by side, each with 2 CPU and 2 torch threads",
    ]


def test_what_is_not_done_takes_no_time(told: Told) -> None:
    opened, lines = told.open("search.confirm_top=0", "throughput.loader.num_workers=null")
    assert opened.work.confirm_runs == 0
    assert lines[1] == "          measure: nothing to choose"
    assert lines[3] == "          confirm: nothing"
    assert re.fullmatch(rf"time      about {DURATION}: search {DURATION}", lines[-2])


def test_a_time_budget_bounds_the_search_and_not_what_comes_after(told: Told) -> None:
    unbounded, _ = told.open()
    opened, lines = told.open("search.time_budget_s=8.5")
    assert unbounded.work.search_s(500.0, 2) > 8.5
    assert lines[2] == (
        "          search: 7 trials of lenet at 16 px, rungs at 1, 3 and 9 epochs, at most 8 s"
    )
    assert ", search 8 s, " in lines[8]
    confirm_s = unbounded.work.confirm_s(500.0, 2)
    assert opened.expected_s == 8.5 + confirm_s + START_S + measure_budget_s(8.5)


def test_patience_is_told(told: Told) -> None:
    _, lines = told.open("search.patience=5", "search.time_budget_s=90")
    assert lines[2] == (
        "          search: 7 trials of lenet at 16 px, rungs at 1, 3 and 9 epochs, "
        "at most 1 min 30 s, until 5 trials bring nothing better"
    )


def test_no_more_is_said_to_be_confirmed_than_there_are_trials(told: Told) -> None:
    _, lines = told.open("search.trials=1", "search.confirm_top=5", "search.confirm_seeds=3")
    assert lines[3] == "          confirm: the best 1 again on 3 fresh seeds, 3 runs"


def test_a_speed_that_was_measured_is_taken_from_there(told: Told) -> None:
    opened, _ = told.open()
    remember(opened.search, opened.plan, MACHINE, replace(SPEEDS, images_per_s=1000.0))
    again, lines = told.open()
    assert again.images_per_s == 1000.0
    assert again.expected_s == again.work.estimate(1000.0, 2, has_to_measure=False).seconds
    assert re.fullmatch(
        rf"time      about {DURATION}: search {DURATION}, confirm {DURATION}", lines[-2]
    )
    assert lines[-1] == "          by the speed measured on 2026-11-30"


def test_what_a_search_has_pinned_goes_before_what_is_remembered(told: Told) -> None:
    opened, _ = told.open()
    remember(opened.search, opened.plan, MACHINE, replace(SPEEDS, images_per_s=1000.0))
    opened.search.folder.mkdir(parents=True)
    keep_in_run(opened.search.folder, replace(SPEEDS, images_per_s=250.0))
    (opened.search.folder / "study.journal").touch()
    again, lines = told.open()
    assert again.images_per_s == 250.0
    assert lines[-1] == (
        "          by the speed measured on 2026-11-30, for the whole search with what is done"
    )


def test_a_card_that_trials_do_not_use_is_not_asked(told: Told) -> None:
    opened, _ = told.open("resources.gpus_per_trial=0", machine=CARD, is_dry_run=False)
    assert opened.images_per_s == 500.0


def test_what_there_is_less_of_than_one_would_think_is_said(told: Told) -> None:
    _, lines = told.open(machine=replace(MACHINE, host_cpus=64, shm_free_bytes=64_000_000))
    after = lines.index("machine   2 side by side, each with 1 CPU and 1 torch thread") + 1
    assert lines[after : after + 2] == [
        "          this process may use 2 of 64 CPUs (affinity, cgroup quota)",
        "          /dev/shm: 64 MB free; what Ray would keep there goes to disk",
    ]


CARD = replace(MACHINE, cpus=8, gpus=(Gpu("card", 2**34, 2**34),))


def test_a_gpu_is_not_looked_at_before_the_search(told: Told) -> None:
    opened, lines = told.open(machine=CARD, is_dry_run=False)
    assert lines[-2] == "machine   1 side by side, each with 8 CPU, 1 GPU and 8 torch threads"
    assert lines[-1] == "time      not known before it is measured"
    assert opened.images_per_s is opened.expected_s is None


def test_a_dry_run_looks_at_the_gpu(told: Told) -> None:
    opened, lines = told.open(machine=CARD)
    assert opened.images_per_s == 500.0
    assert lines[-1].endswith("reading images comes on top")


def test_a_measured_share_of_a_gpu_counts_for_the_time(told: Told) -> None:
    opened, _ = told.open(machine=CARD)
    known = replace(SPEEDS, gpus_per_trial=0.25)
    remember(opened.search, opened.plan, CARD, known)
    again, lines = told.open(machine=CARD, is_dry_run=False)
    assert "machine   4 side by side, each with 2 CPU, 0.25 GPU and 2 torch threads" in lines
    assert again.plan == opened.plan  # what is remembered is found by it
    assert again.expected_s == again.work.estimate(500.0, 4, has_to_measure=False).seconds
    assert plan_trials(again.search, CARD, 0.25) == Plan(4, 2.0, 0.25, 1, 2)


@pytest.mark.parametrize(
    ("override", "machine", "plan"),
    [
        ("resources.gpus_per_trial=0.5", CARD, Plan(2, 4.0, 0.5, 1, 4)),
        ("search.max_concurrent=2", CARD, Plan(2, 4.0, 0.5, 1, 4)),
        ("search.trials=7", MACHINE, PLAN),  # moved to a machine without a card
    ],
)
def test_a_measured_share_counts_only_where_it_is_left_open(
    search_of: OpenSearch, override: str, machine: Machine, plan: Plan
) -> None:
    assert plan_trials(search_of(override), machine, 0.25) == plan


def test_what_the_machine_cannot_give_is_refused_before_anything_is_said(told: Told) -> None:
    with pytest.raises(ResourceError) as caught:
        told.open("resources.cpus_per_trial=3")
    assert caught.value.problems == (
        "resources.cpus_per_trial: 3 wanted, this process may use 2; use at most that",
    )
    assert told.capsys.readouterr().out == ""


def test_a_disk_budget_bounds_what_is_told(told: Told) -> None:
    _, lines = told.open("resources.disk_budget_gb=0.02")
    assert lines[5] == (
        "disk      up to 20 MB of checkpoints in results/tiny; disk_budget_gb allows 20 MB"
    )


@pytest.mark.parametrize("is_dry_run", [True, False])
def test_a_disk_budget_that_is_too_small_is_refused_before_anything_is_said(
    told: Told, is_dry_run: bool
) -> None:
    with pytest.raises(ResourceError) as caught:
        told.open("resources.disk_budget_gb=0.001", is_dry_run=is_dry_run)
    assert caught.value.problems == (
        "resources.disk_budget_gb: 0.001 wanted, the search needs 0.011 (14 checkpoints of "
        "0.767 MB, 4 for each of 2 side by side); use at least that or a lower "
        "search.max_concurrent",
    )
    assert told.capsys.readouterr().out == ""


def test_a_search_that_has_begun_is_refused_only_where_something_is_left_to_train(
    told: Told,
) -> None:
    folder = told.search_of().folder
    folder.mkdir(parents=True)
    (folder / "study.journal").touch()
    too_small = "resources.disk_budget_gb=0.001"
    _, lines = told.open(too_small, is_dry_run=False)
    assert lines[5] == (
        "disk      up to 1 MB of checkpoints in results/tiny; disk_budget_gb allows 1 MB"
    )
    with pytest.raises(ResourceError):
        told.open(too_small)


def test_the_address_of_another_ray_is_refused(told: Told) -> None:
    told.monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6399")
    with pytest.raises(ResourceError) as caught:
        told.open()
    assert caught.value.problems == (
        "RAY_ADDRESS: names a Ray cluster (127.0.0.1:6399), but a search starts its own Ray on "
        "this machine; unset RAY_ADDRESS",
    )


def test_a_dry_run_imports_no_ray_and_writes_nothing(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "space=tiny.yaml", "dry_run=true"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, lines[-1]) == (0, "", "imported:")
    assert lines[2].startswith("          search: 7 trials of lenet at 16 px")
    assert lines[-3].startswith("time      about ")
    assert files_in(here) == ["tiny.yaml"]


def test_the_work_is_counted_again_once_the_images_are_known(
    told: Told, image_folder: Path, tmp_path: Path
) -> None:
    bad = image_folder / "train" / "class 1" / "0.jpg"
    bad.write_bytes(bad.read_bytes()[:200])
    opened, _ = told.open(
        "data.source=folder", f"data.root={image_folder}", "data.on_bad_image=skip"
    )
    assert (opened.work.num_images, opened.work.rungs) == (24, (24, 72, 216))
    data = prepare_quietly(opened.search.config, tmp_path)
    known = opened.with_images(data)
    assert (known.work.num_images, known.work.rungs) == (23, (23, 69, 207))
    assert replace(known, work=opened.work) == opened


def test_the_dashboard_is_told_with_the_way_to_its_login(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say_dashboard(
        Dashboard(
            url="http://127.0.0.1:8265",
            token_path=Path("/tmp/x/token"),
            metrics_url="http://127.0.0.1:9000",
        )
    )
    assert capsys.readouterr().out.splitlines() == [
        "dashboard http://127.0.0.1:8265, on this machine alone",
        "          its token: cat /tmp/x/token",
        "          metrics for Prometheus: http://127.0.0.1:9000",
    ]


@pytest.mark.parametrize(("wanted", "is_told"), [("true", True), ("false", False)])
def test_the_dashboard_is_told_of_where_it_is_wanted(
    told: Told, wanted: str, is_told: bool
) -> None:
    opened, _ = told.open(f"resources.dashboard={wanted}")
    assert (opened.on_dashboard is not None) is is_told
