"""A search begins with a list of settings that a person wrote, or says what is wrong in it."""

import os
from pathlib import Path

import pytest

from tests.unit.stages.conftest import (
    OpenCourse,
    OpenSearch,
    course_over,
    files_in,
    record_of,
    report,
)
from tests.unit.stages.test_points import begin, settings
from tuner.errors import SettingsError
from tuner.search_logic.jobs import Job
from tuner.stages.points import find_points, say_points
from tuner.stages.tables import write_leaderboard
from tuner.stages.train import open_jobs

LIST = """
- {optim.lr: 0.5, optim.name: adam, train.batch_size: 64}
- {optim.lr: 0.1}
- {optim.lr: 0.1, optim.name: sgd, mining.ratio: 0}
- {optim.name: adam}
"""
WHOLE = (
    {"optim.lr": 0.5, "optim.name": "adam", "train.batch_size": 64},
    {"optim.lr": 0.1, "optim.name": "sgd", "train.batch_size": 16},
    {"optim.lr": 0.1, "optim.name": "adam", "train.batch_size": 16},
)


@pytest.fixture
def written(here: Path) -> str:
    """Return the override that gives a search a list, in a space whose own values lie within."""
    space = here / "tiny.yaml"
    text = space.read_text(encoding="utf-8").replace("epochs: 9}", "epochs: 9, batch_size: 16}")
    space.write_text(text, encoding="utf-8")
    (here / "my list.yaml").write_text(LIST, encoding="utf-8")
    return "search.points=my list.yaml"


def test_a_list_is_tried_whole_and_first_whatever_the_number_of_trials(
    written: str, search_of: OpenSearch
) -> None:
    for trials in (1, 4, 40):
        assert find_points(search_of(written, f"search.trials={trials}")).settings == WHOLE


def test_it_is_said_what_was_filled_in_and_what_left_out(
    written: str, search_of: OpenSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    search = search_of(written, "search.trials=2")
    say_points(search, find_points(search))
    assert capsys.readouterr().out.splitlines() == [
        "points    first those of 'my list.yaml': 3 configurations",
        "          1 configuration left out, being there already",
        "          optim.lr is 0.1, as in the space, where it is not set",
        "          optim.name is sgd, as in the space, where it is not set",
        "          train.batch_size is 16, as in the space, where it is not set",
        "          2 of them are tried; a larger search.trials goes on with the others",
    ]


def test_a_value_that_neither_the_list_nor_the_space_has_is_drawn_and_that_is_said(
    here: Path, search_of: OpenSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a.csv").write_text("optim.lr\n0.5\n0.4\n", encoding="utf-8")
    search = search_of("search.points=a.csv")
    points = find_points(search)
    assert [point["optim.lr"] for point in points.settings] == [0.5, 0.4]
    assert all(point["train.batch_size"] in (16, 32, 64) for point in points.settings)
    assert find_points(search) == points
    say_points(search, points)
    assert capsys.readouterr().out.splitlines() == [
        "points    first those of a.csv: 2 configurations",
        "          optim.name is sgd, as in the space, where it is not set",
        "          train.batch_size is drawn where it is not set: its own value (128) lies outside",
    ]


def test_more_trials_go_on_with_the_points_that_fewer_left(
    written: str, here: Path, search_of: OpenSearch
) -> None:
    for trials in (1, 2, 5):
        search = search_of(written, f"search.trials={trials}")
        record = begin(search)
        jobs = open_jobs(course_over(search), record)
        while isinstance(job := jobs.next_job(), Job):
            jobs.report(job, report(900, 0.5))
        tried = [trial.settings for trial in record.trials]
        assert tried[:3] == list(WHOLE[:trials])
        assert len(tried) == trials
        (here / "my list.yaml").write_text("- {optim.lrr: 3}", encoding="utf-8")  # never read again
    os.unlink(here / "my list.yaml")
    assert find_points(search).settings == WHOLE


def test_the_rows_of_a_leaderboard_are_a_list(
    course_of: OpenCourse, search_of: OpenSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_of()
    record = record_of(course)
    for number, top1 in enumerate((0.2, 0.9, 0.5)):
        record.add_trial(settings((number + 1) / 10))
        record.add_report(number, report(100, top1))
    record.end(0, "failed", "error", "no such file: a, b")
    write_leaderboard(course, record)
    search = search_of("search.points=results/tiny/leaderboard.csv", name="again")
    assert find_points(search).settings == tuple(settings(rate) for rate in (0.2, 0.3, 0.1))


def test_a_mistake_in_a_list_ends_the_command_before_anything_is_said_or_left(
    here: Path, search_of: OpenSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a.yaml").write_text("- {optim.lr: 3}\n- {optim.lrr: 1}\n", encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        search_of("search.points=a.yaml")
    assert caught.value.problems == (
        f"{here}/a.yaml line 1: optim.lr: outside of the space (3); "
        'use a value of {"log": [0.001, 1.0]}',
        f"{here}/a.yaml line 2: optim.lrr: no such setting; did you mean optim.lr?",
    )
    assert capsys.readouterr().out == ""
    assert files_in(here) == ["a.yaml", "tiny.yaml"]
