"""Who wins, what is left of it, and what is said at the end."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.unit.stages.conftest import OpenCourse, record_of, report
from tuner import cli
from tuner.data.index import ImageIndex
from tuner.data.prepare import PreparedData
from tuner.errors import CheckpointError
from tuner.settings.text import read_yaml
from tuner.stages.course import Course
from tuner.stages.hand_over import Winner, hand_over
from tuner.stages.summary import sum_up
from tuner.study.record import Record
from tuner.training.checkpoint import CheckpointFolder

RATES = (0.1, 0.2, 0.3)


class Ended:
    """A search whose three trials have ended, with the checkpoints of their best reports.

    Each scores best at its first report; the second of them is the best.
    """

    def __init__(self, course: Course) -> None:
        self.course, self.record = course, record_of(course)
        self.runs: Record | None = None
        index = ImageIndex.from_paths("train", Path(), ("a", "b"), ["1", "2"], [0, 1])
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

    def hand_over(self) -> Winner:
        return hand_over(self.course, self.data, self.record, self.runs)


@pytest.fixture
def ended(course_of: OpenCourse) -> Ended:
    """Return a search that has ended, not confirmed."""
    return Ended(course_of())


def weights_in(folder: Path) -> float:
    """Return the one number that tells whose weights lie there."""
    return float(load_file(folder / "best" / "model.safetensors")["weight"][0])


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_without_confirm_runs_the_best_trial_wins(ended: Ended) -> None:
    winner = ended.hand_over()
    folder = ended.course.search.folder
    assert (winner.trial.number, winner.run, winner.confirmed) == (1, winner.trial, None)
    assert winner.report["samples_seen"] == 100
    assert weights_in(folder) == 0.75
    best = read_yaml(folder / "best.yaml")
    assert (best["result"]["trial_number"], best["result"]["top1"]) == (1, 0.75)
    assert best["settings"]["optim"]["lr"] == 0.2
    assert best["settings"]["train"]["seed"] == 0
    assert "confirmed" not in best
    assert not (folder / "confirm.csv").exists()
    assert [row["trial_number"] for row in table(folder, "leaderboard.csv")] == ["1", "2", "0"]


def test_the_best_mean_wins_and_its_best_run_is_handed_over(ended: Ended) -> None:
    ended.confirm(1, 0.5, 0.25)
    ended.confirm(2, 0.4, 0.6)
    winner = ended.hand_over()
    folder = ended.course.search.folder
    assert (winner.trial.number, winner.run.number) == (2, 3)
    assert winner.checkpoints == folder / "confirm" / "0003"
    assert weights_in(folder) == pytest.approx(0.6)
    best = read_yaml(folder / "best.yaml")
    assert (best["result"]["trial_number"], best["result"]["top1"]) == (2, 0.6)
    assert (best["settings"]["optim"]["lr"], best["settings"]["train"]["seed"]) == (0.3, 2)
    assert best["confirmed"]["scores"] == [0.4, 0.6]
    assert best["confirmed"]["score_in_search"] == 0.625
    assert [row["trial_number"] for row in table(folder, "leaderboard.csv")] == ["2", "1", "0"]
    assert [row["seed"] for row in table(folder, "confirm.csv")] == ["1", "2", "1", "2"]


def test_where_every_run_failed_the_best_trial_wins(ended: Ended) -> None:
    ended.confirm(2, None, None)
    winner = ended.hand_over()
    assert (winner.trial.number, winner.confirmed) == (1, None)
    assert weights_in(ended.course.search.folder) == 0.75
    rows = table(ended.course.search.folder, "confirm.csv")
    assert [row["reason"] for row in rows] == ["killed", "killed"]


def test_a_winner_that_is_handed_over_is_left_alone(ended: Ended) -> None:
    ended.hand_over()
    folder = ended.course.search.folder
    for each in (folder / "trials").rglob("*.pt"):
        each.unlink()
    before = (folder / "best.yaml").stat().st_mtime_ns
    ended.hand_over()
    assert (folder / "best.yaml").stat().st_mtime_ns == before


def test_confirm_runs_that_came_later_change_what_is_handed_over(ended: Ended) -> None:
    ended.hand_over()
    ended.confirm(1, 0.25)
    ended.hand_over()
    folder = ended.course.search.folder
    assert weights_in(folder) == 0.25
    assert read_yaml(folder / "best.yaml")["confirmed"]["mean"] == 0.25
    assert ended.runs is not None
    settings = {**ended.record.trials[1].settings, "train.seed": 2}
    ended.train(ended.runs, "confirm", settings, 0.125)  # the best run stays the same
    ended.hand_over()
    assert read_yaml(folder / "best.yaml")["confirmed"]["scores"] == [0.25, 0.125]
    assert read_yaml(folder / "best" / "best.yaml")["confirmed"]["scores"] == [0.25, 0.125]


def test_weights_that_cannot_be_read_leave_the_settings(ended: Ended) -> None:
    folder = ended.course.search.folder
    path = folder / "trials" / "0001" / "000000100.pt"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError) as caught:
        ended.hand_over()
    assert caught.value.problems == (
        f"{path}: is damaged (its SHA-256 does not fit); train it again: "
        "python -m tuner.retrain config=results/tiny/best.yaml",
    )
    assert read_yaml(folder / "best.yaml")["result"]["trial_number"] == 1
    assert not (folder / "best").exists()


def test_weights_that_the_disk_had_no_room_for_end_the_command_in_one_line(
    ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ended.course.search.folder
    path = folder / "trials" / "0001" / "000000100.pt"
    path.unlink()

    def main(keys: cli.Keys, overrides: list[str]) -> None:
        ended.hand_over()

    assert cli.run("search", cli.Keys, main, []) == 1
    assert capsys.readouterr().err == (
        f"error: {path}: cannot be read (No such file or directory); train it again: "
        "python -m tuner.retrain config=results/tiny/best.yaml\n"
    )
    assert read_yaml(folder / "best.yaml")["result"]["trial_number"] == 1
    assert table(folder, "leaderboard.csv")[0]["trial_number"] == "1"


def test_weights_of_the_winner_before_are_never_taken_for_those_of_the_next(ended: Ended) -> None:
    ended.hand_over()
    folder = ended.course.search.folder
    ended.confirm(2, 0.9)
    (folder / "confirm" / "0000" / "000000100.pt").unlink()
    for _ in range(2):  # the same command again, too
        with pytest.raises(CheckpointError):
            ended.hand_over()
        assert not (folder / "best" / "model.safetensors").exists()


def test_where_the_best_run_lost_its_checkpoint_the_next_best_of_the_winner_is_handed_over(
    ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.confirm(2, 0.5, 0.75, 0.625)
    ended.confirm(1, 0.25)
    folder = ended.course.search.folder
    lost, chosen = (folder / "confirm" / each / "000000100.pt" for each in ("0001", "0002"))
    lost.unlink()
    for _ in range(2):  # the same command again, too, and it needs no checkpoint
        winner = ended.hand_over()
        assert (winner.trial.number, winner.run.number) == (2, 2)
        assert weights_in(folder) == 0.625
        assert capsys.readouterr().out == (
            "confirm   trial 2 did best on seed 2, whose checkpoint is gone: that of seed 3 is "
            "handed over\n"
        )
        best = read_yaml(folder / "best.yaml")
        assert (best["result"]["top1"], best["settings"]["train"]["seed"]) == (0.625, 3)
        assert best["confirmed"]["scores"] == [0.5, 0.75, 0.625]
        chosen.unlink(missing_ok=True)


def test_a_best_run_that_is_handed_over_needs_no_checkpoint(ended: Ended) -> None:
    ended.confirm(2, 0.5, 0.75)
    ended.hand_over()
    (ended.course.search.folder / "confirm" / "0001" / "000000100.pt").unlink()
    assert ended.hand_over().run.number == 1
    assert weights_in(ended.course.search.folder) == 0.75


TIMES = {"prepare": 1.2, "measure": 10.0, "search": 100.4, "confirm": 50.0, "hand over": 0.1}


def test_the_end_says_what_was_found_and_what_it_cost(
    ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.confirm(1, 0.5, 0.75)
    ended.confirm(2, 0.25, None)
    winner = ended.hand_over()
    capsys.readouterr()
    sum_up(ended.course, winner, ended.record, ended.runs, TIMES, is_whole=True)
    assert capsys.readouterr().out.splitlines() == [
        "best      trial 1: 62.5 % ± 17.7 over 2 fresh seeds, of 50 validation images",
        "          12.5 points less than its 75.0 % in the search",
        "          one more run of it, on another seed: 0.0 to 100.0 %, 9 times in 10",
        "          optim.lr = 0.2",
        "          optim.name = sgd",
        "          train.batch_size = 16",
        "luck      fresh seeds correct the luck of the seed; that of the validation images only a "
        "test split corrects (data.test_root)",
        "cost      5,400 images in 7 trainings, 1 min 0 s of slot time",
        "          prepare 1 s, measure 10 s, search 1 min 40 s, confirm 50 s, hand over 0 s",
        "          measure, search, confirm together 2 min 40 s",
        "files     results/tiny: leaderboard.csv, confirm.csv, best.yaml, best",
        "retrain   python -m tuner.retrain config=results/tiny/best.yaml",
    ]
    summary = json.loads((ended.course.search.folder / "summary.json").read_text())
    assert summary == {
        "trial_number": 1,
        "confirmed": read_yaml(ended.course.search.folder / "best.yaml")["confirmed"],
        "test": None,
        "seconds_of_this_start": TIMES,
        "is_whole": True,
        "expected_s": None,
        "images_trained": 5400,
        "trainings": 7,
        "training_s": 60.0,
    }


def test_a_start_with_nothing_to_train_leaves_the_cost_of_the_one_that_trained(
    ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    winner = ended.hand_over()
    path = ended.course.search.folder / "summary.json"
    sum_up(ended.course, winner, ended.record, None, TIMES, is_whole=True)
    before = path.read_bytes()
    capsys.readouterr()
    sum_up(ended.course, winner, ended.record, None, dict.fromkeys(TIMES, 0.0), is_whole=False)
    assert path.read_bytes() == before
    assert "prepare" not in capsys.readouterr().out
    ended.confirm(1, 0.5)
    sum_up(ended.course, ended.hand_over(), ended.record, ended.runs, TIMES, is_whole=True)
    assert json.loads(path.read_text())["trainings"] == 4
    path.write_bytes(before[:-9])
    sum_up(ended.course, winner, ended.record, None, TIMES, is_whole=True)
    assert path.read_bytes() == before


def test_a_summary_of_an_older_version_gains_what_is_known_now_and_keeps_its_cost(
    ended: Ended,
) -> None:
    ended.confirm(1, 0.5, 0.75)
    winner = ended.hand_over()
    path = ended.course.search.folder / "summary.json"
    sum_up(ended.course, winner, ended.record, ended.runs, TIMES, is_whole=True)
    now = path.read_bytes()
    old = json.loads(now)
    del old["confirmed"]["interval"]
    path.write_text(json.dumps(old))
    nothing = dict.fromkeys(TIMES, 0.0)
    sum_up(ended.course, winner, ended.record, ended.runs, nothing, is_whole=False)
    assert path.read_bytes() == now


def test_confirm_runs_that_are_not_asked_for_any_more_leave_no_table(ended: Ended) -> None:
    ended.confirm(1, 0.5)
    ended.hand_over()
    ended.runs = None
    ended.hand_over()
    assert not (ended.course.search.folder / "confirm.csv").exists()


def test_without_confirm_runs_the_end_says_the_score_of_the_search(
    course_of: OpenCourse, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = Ended(course_of("search.metric=validation_loss"))
    winner = ended.hand_over()
    capsys.readouterr()
    sum_up(ended.course, winner, ended.record, None, TIMES, is_whole=True)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "best      trial 1: 0.250 at epoch 1, of 50 validation images"
    assert out[4] == (
        "luck      the best of many trials was also the luckiest: fresh seeds correct the luck of "
        "the seed (search.confirm_top=2), a test split that of the validation images "
        "(data.test_root)"
    )


def test_one_fresh_seed_has_neither_spread_nor_interval(
    ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.confirm(1, 0.5)
    winner = ended.hand_over()
    capsys.readouterr()
    sum_up(ended.course, winner, ended.record, ended.runs, TIMES, is_whole=True)
    assert capsys.readouterr().out.splitlines()[:3] == [
        "best      trial 1: 50.0 % over 1 fresh seed, of 50 validation images",
        "          25.0 points less than its 75.0 % in the search",
        "          how far one more run falls from that is not known: it takes two runs of one "
        "configuration (search.confirm_seeds=2)",
    ]


def test_the_end_names_the_configuration_that_may_be_as_good(
    ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.confirm(1, 0.5, 0.75)
    ended.confirm(2, 0.5, 0.5)
    winner = ended.hand_over()
    capsys.readouterr()
    sum_up(ended.course, winner, ended.record, ended.runs, TIMES, is_whole=True)
    out = capsys.readouterr().out.splitlines()
    assert out[3] == (
        "          trial 2 cannot be told apart from it: 50.0 % ± 0.0 over 2 fresh seeds"
    )
    folder = ended.course.search.folder
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["confirmed"]["not_told_apart_from"] == 2
    assert read_yaml(folder / "best.yaml")["confirmed"] == summary["confirmed"]


def test_runs_of_other_configurations_tell_more_of_the_winner_without_its_checkpoint(
    ended: Ended,
) -> None:
    ended.confirm(1, 0.5, 0.75)
    ended.hand_over()
    folder = ended.course.search.folder
    before = read_yaml(folder / "best.yaml")
    (folder / "confirm" / "0001" / "000000100.pt").unlink()
    ended.confirm(2, 0.25, 0.25)
    assert ended.hand_over().run.number == 1
    assert weights_in(folder) == 0.75
    for place in (folder, folder / "best"):
        best = read_yaml(place / "best.yaml")
        assert best["confirmed"]["degrees_of_freedom"] == 2
        assert {**best, "confirmed": before["confirmed"]} == before
