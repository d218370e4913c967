"""Who wins, and what is left of it."""

import csv
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.unit.stages.conftest import Ended
from tuner import cli
from tuner.errors import CheckpointError
from tuner.handover import is_handed_over
from tuner.settings.text import read_yaml


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


def test_a_winner_that_an_earlier_version_handed_over_is_left_alone(ended: Ended) -> None:
    ended.hand_over()  # its reports know no balanced_top1
    described = read_yaml(ended.course.search.folder / "best.yaml")
    assert "balanced_top1" not in described["result"]
    described["result"]["balanced_top1"] = 0.5
    assert is_handed_over(ended.course.search.folder, described)
    described["result"]["top1"] = 0.5
    assert not is_handed_over(ended.course.search.folder, described)


def test_confirm_runs_that_are_not_asked_for_any_more_leave_no_table(ended: Ended) -> None:
    ended.confirm(1, 0.5)
    ended.hand_over()
    ended.runs = None
    ended.hand_over()
    assert not (ended.course.search.folder / "confirm.csv").exists()


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
