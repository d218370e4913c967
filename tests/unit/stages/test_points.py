"""A search begins with the best of an earlier one, or says why it cannot."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stages.conftest import OpenSearch, course_over, files_in, report
from tuner.errors import StudyError
from tuner.search_logic.jobs import Job
from tuner.search_logic.points import Points
from tuner.settings.space import ChoiceSpec, FloatSpec, ParameterSpec
from tuner.stages.course import open_course
from tuner.stages.opening import Search
from tuner.stages.points import find_points, say_points
from tuner.stages.train import open_jobs
from tuner.study.record import Record

SPACE: dict[str, ParameterSpec] = {
    "optim.lr": FloatSpec(1e-3, 10.0, log=True),
    "optim.name": ChoiceSpec(("adam", "sgd")),
    "train.batch_size": ChoiceSpec((16, 32)),
}


def settings(lr: float) -> dict[str, Any]:
    return {"optim.lr": lr, "optim.name": "sgd", "train.batch_size": 32}


def search_once(folder: Path, scores: Iterable[float | None], metric: str = "top1") -> Record:
    """Leave a search with a trial for each score, the first of rate 1/10, then 2/10 and so on."""
    folder.mkdir(parents=True)
    record = Record.open(
        folder,
        name=folder.name,
        metric=metric,
        direction="maximize" if metric == "top1" else "minimize",
        parameters=SPACE,
        data_fingerprint="beef",
        settings_plain={"train.epochs": 3},
    )
    for number, score in enumerate(scores):
        record.add_trial(settings((number + 1) / 10))
        if score is not None:
            record.add_report(number, {**report(100, 0.5), metric: score})
    return record


def refusal(search_of: OpenSearch, *overrides: str, **asked: str) -> tuple[str, ...]:
    with pytest.raises(StudyError) as caught:
        find_points(search_of(*overrides, **asked))
    return caught.value.problems


def test_a_search_begins_with_the_defaults_until_it_has_begun(
    here: Path, search_of: OpenSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = find_points(search_of())
    own = {"optim.lr": 0.1, "optim.name": "sgd"}
    (settings,) = points.settings
    assert settings == {**own, "train.batch_size": settings["train.batch_size"]}
    assert settings["train.batch_size"] in (32, 64)  # 128 lies outside
    say_points(search_of(), points)
    line = "first the defaults: optim.lr 0.1, optim.name sgd; drawn: train.batch_size"
    assert capsys.readouterr().out == f"points    {line}\n"
    search_once(here / "results" / "tiny", [0.5])
    assert find_points(search_of()) == Points()
    say_points(search_of(), Points())
    assert capsys.readouterr().out == ""
    say_points(search_of("search.points=old"), Points())
    assert capsys.readouterr().out == (
        "points    not taken from old: this search has begun without any; "
        "resume=never begins another\n"
    )


@pytest.mark.parametrize(
    ("metric", "best_first"), [("top1", [0.2, 0.4, 0.1]), ("validation_loss", [0.3, 0.1, 0.4])]
)
def test_the_best_by_the_metric_come_first_and_are_a_quarter_of_the_trials(
    here: Path, search_of: OpenSearch, metric: str, best_first: list[float]
) -> None:
    search_once(here / "old", [0.5, 0.9, 0.2, 0.7, None], metric)
    for trials, most in ((1, 1), (4, 1), (11, 2), (12, 3), (13, 3)):
        search = search_of(
            "search.points=old", f"search.trials={trials}", f"search.metric={metric}"
        )
        rates = [point["optim.lr"] for point in find_points(search).settings]
        assert rates == best_first[:most]


def test_a_trial_without_a_score_or_that_failed_gives_no_point(
    here: Path, search_of: OpenSearch
) -> None:
    record = search_once(here / "old", [0.9, None, 0.5, 0.1])
    record.end(0, "failed", "diverged")
    points = find_points(search_of("search.points=old", "search.trials=40"))
    assert [point["optim.lr"] for point in points.settings] == [0.3, 0.4]


def test_it_is_said_how_many_come_from_where_and_how_many_do_not_fit(
    here: Path, search_of: OpenSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    search_once(here / "my old", [0.1 + number / 50 for number in range(20)])
    search = search_of("search.points=my old", "search.trials=8")
    points = find_points(search)
    assert [point["optim.lr"] for point in points.settings] == [1.0, 0.9]
    say_points(search, points)
    assert capsys.readouterr().out.splitlines() == [
        "points    first the best of 'my old': 2 configurations",
        "          10 configurations left out, with values outside this space",
    ]
    say_points(search, replace(points, settings=(settings(0.1),), num_outside=0))
    assert capsys.readouterr().out == "points    first the best of 'my old': 1 configuration\n"


def test_they_are_the_first_jobs_and_at_a_later_start_those_that_were_not_tried(
    here: Path, search_of: OpenSearch
) -> None:
    search_once(here / "old", [0.5, 0.9, 0.7, 0.2])
    search = search_of("search.points=old", "search.trials=12")
    tried = []
    for _ in range(4):  # starts, each killed after its first job
        record = begin(search)
        jobs = open_jobs(course_over(search), record)
        job = jobs.next_job()
        assert isinstance(job, Job)
        jobs.report(job, report(900, 0.5))
        tried.append(job.settings["optim.lr"])
    assert tried[:3] == [0.2, 0.3, 0.1]
    assert tried[3] not in tried[:3]


def begin(search: Search) -> Record:
    """Return the record of a search, begun or gone on with as a start does."""
    search.folder.mkdir(parents=True, exist_ok=True)
    points = find_points(search)
    say_points(search, points)
    return Record.open(
        search.folder,
        name=search.name,
        metric="top1",
        direction="maximize",
        parameters=search.space.parameters,
        data_fingerprint="f00d",
        settings_plain={},
        points=points.settings,
        points_from=points.source,
    )


@pytest.mark.parametrize("what_happens", ["it improves", "it goes", "both move"])
def test_a_search_goes_on_with_the_points_it_began_with_whatever_happens_to_the_earlier_one(
    here: Path, search_of: OpenSearch, capsys: pytest.CaptureFixture[str], what_happens: str
) -> None:
    old = here / "results" / "old"
    earlier = search_once(old, [0.5, 0.9, 0.7, 0.2])
    began_with = begin(search_of("search.points=results/old", "search.trials=12")).points
    assert [point["optim.lr"] for point in began_with] == [0.2, 0.3, 0.1]
    output, said = "results", capsys.readouterr().out
    if what_happens == "it improves":
        earlier.add_report(3, report(200, 0.99))
    elif what_happens == "it goes":
        shutil.rmtree(old)
    else:
        output = "moved"
        (here / "results").rename(here / output)
    asked = (f"search.points={output}/old", "search.trials=40")
    again = search_of(*asked, output=output)
    assert begin(again).points == began_with
    assert capsys.readouterr().out == said.replace("results", output)


def test_points_that_a_begun_search_is_given_are_not_taken_and_that_is_said(
    here: Path, search_of: OpenSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    search_once(here / "old", [0.5])
    search_once(here / "other", [0.9])
    for began_with, first in (
        ([], "with the defaults"),
        (["search.points=old"], "with those of old"),
    ):
        name = f"tiny-{len(began_with)}"
        before = begin(search_of(*began_with, name=name)).points
        capsys.readouterr()
        assert begin(search_of("search.points=other", name=name)).points == before
        assert capsys.readouterr().out == (
            f"points    not taken from other: this search has begun {first}; "
            "resume=never begins another\n"
        )
        assert begin(search_of(name=name)).points == before
        assert capsys.readouterr().out == ""


def test_a_search_that_was_killed_before_it_had_begun_takes_points(
    here: Path, search_of: OpenSearch
) -> None:
    search_once(here / "old", [0.5])
    search = search_of("search.points=old")
    search.folder.mkdir(parents=True)
    (search.folder / "study.journal").touch()
    assert begin(search).points == [settings(0.1)]


def test_a_search_that_runs_meanwhile_is_left_alone(here: Path, search_of: OpenSearch) -> None:
    record = search_once(here / "old", [0.5])
    lock = here / "old" / "study.journal.lock"
    lock.touch()
    before = {path: path.read_bytes() for path in (here / "old").iterdir()}
    search = search_of("search.points=old", "search.trials=40")
    assert len(find_points(search).settings) == 1
    assert {path: path.read_bytes() for path in (here / "old").iterdir()} == before
    lock.unlink()
    record.add_trial(settings(0.9))
    record.add_report(1, report(100, 0.9))
    assert [each["optim.lr"] for each in find_points(search).settings] == [0.9, 0.1]


def test_what_gives_no_points_is_refused_in_one_line(here: Path, search_of: OpenSearch) -> None:
    path = here / "gone" / "study.journal"
    assert refusal(search_of, "search.points=gone") == (
        f"search.points: {path}: cannot be read (No such file or directory); "
        "give the folder of a search",
    )
    search_once(here / "old", [None, None])
    assert refusal(search_of, "search.points=old") == (
        "search.points: no trial in old has a score; leave search.points out",
    )
    search_once(here / "by loss", [0.5], "validation_loss")
    assert refusal(search_of, "search.points=by loss") == (
        "search.points: 'by loss' was searched by validation_loss and this search goes by top1; "
        "use search.metric=validation_loss, or leave search.points out",
    )


def test_a_refusal_comes_before_anything_is_said(
    here: Path, search_of: OpenSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StudyError):
        open_course(search_of("search.points=gone"), is_dry_run=False)
    assert capsys.readouterr().out == ""
    assert files_in(here) == ["tiny.yaml"]


def test_a_search_gives_no_points_to_itself_but_to_a_new_one_beside_it(
    here: Path, search_of: OpenSearch
) -> None:
    search_once(here / "results" / "tiny", [0.5])
    (here / "link").symlink_to(here / "results" / "tiny")
    for points in ("results/tiny", "link"):
        assert refusal(search_of, f"search.points={points}") == (
            f"search.points: {points} is this search's own folder; "
            "leave search.points out to go on, or add resume=never for a new search",
        )
    search = search_of("search.points=results/tiny", resume="never")
    assert search.name == "tiny-2"
    assert find_points(search).settings == (settings(0.1),)
