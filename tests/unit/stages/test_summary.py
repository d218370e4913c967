"""What is said at the end of a search, and written into its summary."""

import json

import pytest

from tests.unit.stages.conftest import Ended, OpenCourse
from tuner.settings.text import read_yaml
from tuner.stages.summary import sum_up

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
        "evaluation": None,  # checkpoints of an earlier version hold no predictions
    }


def test_the_summary_tells_which_classes_the_weights_handed_over_find(
    ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.confirm(1, 0.5, 0.75)
    ended.predict("trials/0001", 1, 1, 1, 1, 1)
    ended.predict("confirm/0000", 1, 1, 1, 1, 1)
    ended.predict("confirm/0001", 0, 0, 1, 0, 0)  # of the best run
    path = ended.course.search.folder / "summary.json"
    winner = ended.hand_over()
    capsys.readouterr()
    sum_up(ended.course, winner, ended.record, ended.runs, TIMES, is_whole=True)
    assert (
        "classes   best/: top-1 60.0 %, balanced top-1 37.5 %; class 'b' is found least: 0.0 % of "
        "1 validation image" in capsys.readouterr().out.splitlines()
    )
    assert json.loads(path.read_text())["evaluation"] == {
        "top1": 0.6,
        "balanced_top1": 0.375,
        "classes": ["a", "b"],
        "num_images": [4, 1],
        "share_found": [0.75, 0.0],
        "confusion": [[3, 1], [1, 0]],
    }
    assert "      [3, 1],\n      [1, 0]\n" in path.read_text()


def test_where_the_winner_s_checkpoint_is_gone_a_search_ends_well_without_its_classes(
    ended: Ended, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = ended.predict("trials/0001", 0, 0, 0, 0, 0)
    path = ended.course.search.folder / "summary.json"
    sum_up(ended.course, ended.hand_over(), ended.record, None, TIMES, is_whole=True)
    before, told = path.read_bytes(), capsys.readouterr().out.splitlines()
    for damage in (lambda: checkpoint.write_bytes(b"x"), checkpoint.unlink):
        damage()
        # Nothing new: the file is left, and what it holds is said again.
        sum_up(ended.course, ended.hand_over(), ended.record, None, TIMES, is_whole=True)
        assert path.read_bytes() == before
        again = capsys.readouterr().out.splitlines()
        assert [line for line in again if line.startswith("classes")] == [
            "classes   best/: top-1 80.0 %, balanced top-1 50.0 %; class 'b' is found least: "
            "0.0 % of 1 validation image"
        ]
        assert set(again) <= set(told)
    path.unlink()
    sum_up(ended.course, ended.hand_over(), ended.record, None, TIMES, is_whole=True)
    assert json.loads(path.read_text())["evaluation"] is None
    assert "classes" not in capsys.readouterr().out


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
