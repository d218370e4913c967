"""A test split scores the winner of a search, once, and changes nothing else."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Told, begin, errors, train
from tuner import trial
from tuner.settings.text import read_yaml
from tuner.stages import held_out

SMALL = (
    *("space=tiny.yaml", "data.root=images", "train.epochs=3"),
    *("search.trials=3", "search.confirm_top=0"),
)
TEST = "data.test_root=test images"


@pytest.fixture(autouse=True)
def nothing_kept(process_as_before: None) -> Iterator[None]:
    """Close what a trial keeps open in its process for the next one."""
    yield
    trial.KEPT.close()


def heard(told: Told, head: str) -> list[str]:
    """Return what was said under a head since the last time."""
    lines = told.capsys.readouterr().out.splitlines()
    return [line[10:] for line in lines if line.startswith(f"{head:<10}")]


def test_a_search_begun_without_a_test_split_goes_on_with_one_and_scores_its_winner_once(
    here: Path,
    space_file: Path,
    held_out_root: Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train(*begin(*SMALL))
    assert told.run_only("search", *SMALL) == 0
    assert heard(told, "test") == []
    folder = here / "results" / "tiny-images"
    names = ("study.journal", "dataset.json", "leaderboard.csv", "best/model.safetensors")
    before = {name: (folder / name).read_bytes() for name in names}
    summary = json.loads((folder / "summary.json").read_text())
    best = read_yaml(folder / "best.yaml")
    assert (summary["test"], "test" in best) == (None, False)

    assert told.run_only("search", *SMALL, TEST) == 0
    (line,) = heard(told, "test")
    assert told.run_only("predict", "model=results/tiny-images", "images=test images") == 0
    predicted = re.search(r"\((\d+)/15\)", told.capsys.readouterr().out)
    assert predicted is not None
    count = int(predicted[1])
    assert line == (
        f"top-1 {100 * count / 15:.1f} % ({count} right) of 15 test images, which chose nothing"
    )
    top1 = count / 15  # as many images of each class
    test = {"top1": top1, "balanced_top1": pytest.approx(top1), "num_correct": count}
    test |= {"num_evaluated": 15, "looks": 1}
    assert read_yaml(folder / "best.yaml") == {**best, "test": test}
    assert read_yaml(folder / "best" / "best.yaml") == {**best, "test": test}
    assert json.loads((folder / "summary.json").read_text()) == {**summary, "test": test}
    assert {name: (folder / name).read_bytes() for name in names} == before

    monkeypatch.setattr(held_out, "evaluate_best", None)  # whoever calls it ends the command
    for overrides in ((TEST,), ()):
        assert told.run_only("search", *SMALL, *overrides) == 0
        assert heard(told, "test") == [line]
        assert read_yaml(folder / "best.yaml") == {**best, "test": test}


def test_the_test_images_are_told_of_before_anything_is_trained(
    here: Path, space_file: Path, held_out_root: Path, told: Told
) -> None:
    assert told.run_only("search", *SMALL, TEST, "dry_run=true") == 0
    (first, *_) = heard(told, "plan")
    assert first == "prepare 24 training and 12 validation images, and 15 test images"
    assert not (here / "results").exists()
    assert told.search(*SMALL, "data.test_root=gone") == errors(
        f"data.test_root: '{here}/gone' does not exist; give a folder with one folder per class"
    )
    shutil.rmtree(held_out_root)
    shutil.copytree(here / "images" / "val", held_out_root)
    code, lines = told.search(*SMALL, TEST)
    assert (code, lines[0]) == (
        2,
        f"error: data.test_root: no image of '{held_out_root}' is left to be scored; give readable "
        "images that are neither in training nor in validation",
    )
    assert not (here / "results" / "tiny-images" / "study.journal").exists()


def test_a_test_split_is_in_the_table_of_the_images(
    here: Path, space_file: Path, held_out_root: Path, told: Told
) -> None:
    (held_out_root / "class 2" / "0.jpg").write_bytes(b"")
    shutil.copy(here / "images/val/class 1/0.jpg", held_out_root / "class 1/0.jpg")
    assert told.run_only("dataset", *SMALL[:2], TEST) == 2
    said = told.capsys.readouterr()
    lines = said.out.splitlines()
    assert "data.test_root: images left out that are in training or validation, too: 1 " in said.out
    table = lines.index("class     train  validation  test")
    assert lines[table + 1 : table + 5] == [
        "class 1       8           4     4",
        "class 2       8           4     4",
        "class 10      8           4     5",
        "all          24          12    13",
    ]
    assert said.err.splitlines() == [
        "error: data.test_root: 1 unreadable images, listed above; replace them or set "
        "data.on_bad_image=skip"
    ]
    assert os.listdir(here / "results" / "tiny-images")
