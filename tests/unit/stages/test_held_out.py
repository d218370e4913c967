"""The winner is scored on the test split once; another winner is another look, and counted."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.unit.stages.conftest import OpenCourse, record_of, report
from tuner.assemble import build_net
from tuner.data.held_out import HeldOut
from tuner.data.prepare import PreparedData
from tuner.errors import StudyError
from tuner.images import prepare_held_out
from tuner.settings.text import read_yaml
from tuner.stages import held_out
from tuner.stages.course import Course
from tuner.stages.hand_over import Winner, hand_over
from tuner.stages.held_out import open_held_out, score_held_out
from tuner.stages.prepare import prepare
from tuner.stages.summary import sum_up
from tuner.study.record import Record
from tuner.training.checkpoint import CheckpointFolder

CLASSES = ("a", "b")
RIGHT = {"a": 3, "b": 1}  # test images of each class: what a model gets right that sees it alone


@pytest.fixture(autouse=True)
def as_before(threads_as_before: None) -> None:
    """Put back what an evaluation sets for the life of its process."""


class Scored:
    """A search whose models each see one class alone, and its test split.

    Args:
        folder: The images of all splits go there.
    """

    def __init__(self, folder: Path, course_of: OpenCourse) -> None:
        for split, counts in (("train", (4, 4)), ("val", (2, 2)), ("test", tuple(RIGHT.values()))):
            for name, count in zip(CLASSES, counts, strict=True):
                write_images(folder / split / name, count)
        self.course: Course = course_of(
            *("data.source=folder", f"data.root={folder}", f"data.test_root={folder}/test")
        )
        self.record = record_of(self.course)
        self.runs: Record | None = None
        self.data: PreparedData = prepare(self.course)
        self.held_out = open_held_out(self.course, self.data)
        settings = {"optim.lr": 0.1, "optim.name": "sgd", "train.batch_size": 16}
        self.train(self.record, "trials", settings, 0.5, sees="a")

    @property
    def folder(self) -> Path:
        return self.course.search.folder

    def train(
        self, record: Record, place: str, settings: Mapping[str, Any], score: float, *, sees: str
    ) -> None:
        """Add a trial, or a run, whose model takes every image for one class, or for none."""
        number = record.add_trial(settings).number
        record.add_report(number, report(100, score))
        record.end(number, "complete")
        weights = build_net(self.course.search.config, 2).state_dict()
        *_, last_bias = weights
        for each in weights.values():
            each.zero_()
        weights[last_bias].copy_(torch.tensor([float(sees == name) for name in CLASSES]))
        if sees not in CLASSES:
            for each in weights.values():
                each.fill_(1e30)  # beyond what fp32 holds, layer by layer
        files = CheckpointFolder(self.folder / place / f"{number:04d}", pytest.fail)
        files.save({"model": weights, "average": None, "mining": None}, 100)

    def confirm(self, score: float, *, sees: str) -> None:
        """Add a confirm run of the trial on the next seed."""
        if self.runs is None:
            self.runs = self.record.open_confirm()
        seed = len(self.runs.trials) + 1
        settings = {**self.record.trials[0].settings, "train.seed": seed}
        self.train(self.runs, "confirm", settings, score, sees=sees)

    def score(self) -> Winner:
        winner = hand_over(self.course, self.data, self.record, self.runs)
        return score_held_out(self.course, self.held_out, winner)

    def looks(self) -> list[dict[str, Any]]:
        looks: list[dict[str, Any]] = json.loads((self.folder / "test_scores.json").read_text())
        return looks


def write_images(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        rng = np.random.default_rng((number, *folder.parts[-2].encode(), *folder.name.encode()))
        Image.fromarray(rng.integers(0, 256, (20, 20, 3), np.uint8)).save(folder / f"{number}.png")


@pytest.fixture
def scored(tmp_path: Path, course_of: OpenCourse) -> Scored:
    """Return a search that has ended, with a test split."""
    return Scored(tmp_path / "images", course_of)


def scored_as(num_correct: int | None, looks: int) -> dict[str, Any]:
    top1 = None if num_correct is None else num_correct / 4
    balanced = None if num_correct is None else 0.5  # all of one class, and none of the other
    scores = {"top1": top1, "balanced_top1": balanced, "num_correct": num_correct}
    return {**scores, "num_evaluated": 4, "looks": looks}


def test_the_winner_is_scored_once(scored: Scored, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scored.score().test == scored_as(RIGHT["a"], looks=1)
    monkeypatch.setattr(held_out, "evaluate_best", None)  # whoever calls it fails
    assert scored.score().test == scored_as(RIGHT["a"], looks=1)
    for place in (scored.folder, scored.folder / "best"):
        assert read_yaml(place / "best.yaml")["test"] == scored_as(RIGHT["a"], looks=1)
    assert len(scored.looks()) == 1


def test_another_winner_is_another_look_and_the_one_before_needs_none(scored: Scored) -> None:
    scored.score()
    scored.confirm(0.5, sees="b")
    assert scored.score().test == scored_as(RIGHT["b"], looks=2)
    assert [(look["trial_number"], look["seed"]) for look in scored.looks()] == [(0, 0), (0, 1)]
    scored.runs = None  # confirm_top=0: the trial is the winner again
    assert scored.score().test == scored_as(RIGHT["a"], looks=2)
    assert read_yaml(scored.folder / "best.yaml")["test"] == scored_as(RIGHT["a"], looks=2)
    assert len(scored.looks()) == 2


def test_more_runs_that_leave_the_winner_the_same_are_no_look(scored: Scored) -> None:
    scored.confirm(0.5, sees="b")
    scored.score()
    scored.confirm(0.25, sees="a")
    assert scored.score().test == scored_as(RIGHT["b"], looks=1)
    best = read_yaml(scored.folder / "best.yaml")
    assert (best["test"], best["confirmed"]["scores"]) == (scored_as(RIGHT["b"], 1), [0.5, 0.25])


def test_other_test_images_are_another_look(scored: Scored) -> None:
    scored.score()
    root = scored.course.search.config.data.test_root
    assert root is not None
    (Path(root) / "b" / "0.png").unlink()
    scored.held_out = open_held_out(scored.course, scored.data)
    assert scored.score().test == {
        "top1": 1.0,
        "balanced_top1": 1.0,
        "num_correct": 3,
        "num_evaluated": 3,
        "looks": 2,
    }


def test_without_a_test_split_the_score_that_the_winner_has_stays_and_no_other_gets_one(
    scored: Scored,
) -> None:
    scored.score()
    scored.held_out = None
    assert scored.score().test == scored_as(RIGHT["a"], looks=1)
    scored.confirm(0.5, sees="b")
    assert scored.score().test is None
    assert "test" not in read_yaml(scored.folder / "best.yaml")


def test_the_score_on_the_test_split_changes_no_choice(scored: Scored) -> None:
    scored.confirm(0.6, sees="b")  # right for one test image of four
    scored.confirm(0.5, sees="a")
    assert scored.score().run.number == 0
    journal = (scored.folder / "study.journal").read_bytes()
    assert scored.score().run.number == 0
    assert (scored.folder / "study.journal").read_bytes() == journal
    assert b"test" not in journal


def test_outputs_that_are_no_numbers_give_no_score(
    scored: Scored, capsys: pytest.CaptureFixture[str]
) -> None:
    scored.confirm(0.9, sees="nothing")
    winner = scored.score()
    assert winner.test == scored_as(None, looks=1)
    capsys.readouterr()
    times = dict.fromkeys(("prepare", "measure", "search", "confirm", "hand over"), 0.0)
    sum_up(scored.course, winner, scored.record, scored.runs, times, is_whole=True)
    assert (
        "test      no score: the model's outputs are no numbers for some of 4 test images"
        in capsys.readouterr().out.splitlines()
    )


def test_the_end_says_the_score_and_how_often_it_was_looked_at(
    scored: Scored, capsys: pytest.CaptureFixture[str]
) -> None:
    scored.score()
    scored.confirm(0.5, sees="b")
    winner = scored.score()
    capsys.readouterr()
    times = dict.fromkeys(("prepare", "measure", "search", "confirm", "hand over"), 0.0)
    sum_up(scored.course, winner, scored.record, scored.runs, times, is_whole=True)
    out = capsys.readouterr().out.splitlines()
    place = out.index(
        "test      top-1 25.0 % (1 right) of 4 test images, which chose nothing; "
        "balanced top-1 50.0 %"
    )
    assert out[place + 1 : place + 3] == [
        "          test images have been looked at 2 times in this search, as its winner or they "
        "themselves changed: the more often, the less they say",
        "luck      fresh seeds correct the luck of the seed, the test split that of the validation "
        "images",
    ]
    summary = json.loads((scored.folder / "summary.json").read_text())
    assert summary["test"] == scored_as(RIGHT["b"], looks=2)


@pytest.mark.parametrize("content", ["", "{}", '[{"trial_number": 1}]'])
def test_a_damaged_count_of_looks_is_told_before_anything_is_trained(
    scored: Scored, content: str
) -> None:
    path = scored.folder / "test_scores.json"
    path.write_text(content)
    with pytest.raises(StudyError) as caught:
        open_held_out(scored.course, scored.data)
    assert caught.value.problems == (
        f"{path}: cannot be read (ValidationError); it counts how often the test images were "
        "looked at: take it from a whole copy, or remove it to count anew",
    )


def test_the_images_are_announced_when_they_are_opened(
    scored: Scored, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    found = open_held_out(scored.course, scored.data)
    assert isinstance(found, HeldOut)
    assert capsys.readouterr().out.splitlines() == [
        "          4 test images: they choose nothing, and score the winner once"
    ]
    without = scored.course.search.config.with_overrides({"data.test_root": None})
    asked: dict[str, Any] = {"num_processes": 1, "progress": lambda done, total: None}
    path = scored.folder / "none.json"
    assert prepare_held_out(without, scored.data, report_path=path, **asked) is None
