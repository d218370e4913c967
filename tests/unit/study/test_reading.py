"""A search in a folder is read as it stands, and nothing there is touched."""

import os
import shutil
from pathlib import Path

import pytest

from tests.unit.study.conftest import SETTINGS, SPACE, open_record
from tuner.errors import StudyError
from tuner.settings.space import ChoiceSpec, ParameterSpec
from tuner.study.reading import read_record
from tuner.study.record import JOURNAL_NAME, Record


def searched(folder: Path) -> Record:
    """A search that has trials of several kinds, and a confirm run."""
    record = open_record(folder, metric="validation_loss", direction="minimize")
    for loss in (0.5, 0.25, 0.75):
        number = record.add_trial({**SETTINGS, "optim.lr": loss}).number
        record.add_report(number, {"samples_seen": 10, "validation_loss": loss})
    record.end(0, "complete")
    record.end(2, "failed", "diverged", "loss is nan")
    record.open_confirm().add_trial({**SETTINGS, "train.seed": 1})
    return record


def state_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_metric_direction_and_trials_are_those_of_the_search(tmp_path: Path) -> None:
    record = searched(tmp_path)
    read = read_record(tmp_path)
    assert (read.metric, read.direction) == ("validation_loss", "minimize")
    assert read.parameters == list(SPACE)
    assert read.trials == record.trials
    assert read.ranked() == record.ranked()
    assert read.best_score(1) == 0.25


def test_the_folder_may_have_another_name_and_be_read_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = searched(tmp_path / "small").trials
    monkeypatch.chdir(tmp_path)
    Path("small").rename("copy of small")
    assert read_record(Path("copy of small")).trials == trials


def test_nothing_is_touched_though_a_search_runs_there_or_was_killed(tmp_path: Path) -> None:
    record = searched(tmp_path)
    trials = list(record.trials)
    (tmp_path / f"{JOURNAL_NAME}.lock").touch()
    with (tmp_path / JOURNAL_NAME).open("ab") as journal:
        journal.write(b'{"op_code":8,"more":true}\n{"op_c')
    before = state_of(tmp_path)
    assert read_record(tmp_path).trials == trials
    assert state_of(tmp_path) == before


def test_a_journal_cut_at_any_byte_is_read_as_it_would_be_repaired(quick_path: Path) -> None:
    searched(quick_path / "whole")
    data = (quick_path / "whole" / JOURNAL_NAME).read_bytes()
    begun = data.index(b"\n", data.index(b'"identity"')) + 1
    for num_bytes in range(begun, len(data) + 1, 11):
        folder = quick_path / "cut"
        folder.mkdir()
        (folder / JOURNAL_NAME).write_bytes(data[:num_bytes])
        read = read_record(folder)
        repaired = open_record(folder, metric="validation_loss", direction="minimize")
        assert read.trials == repaired.trials
        shutil.rmtree(folder)


def test_a_record_that_was_read_cannot_be_written(tmp_path: Path) -> None:
    searched(tmp_path)
    before = state_of(tmp_path)
    read = read_record(tmp_path)
    for change in (
        lambda: read.add_trial(SETTINGS),
        lambda: read.end(1, "complete"),
        lambda: read.add_failure(1, "killed", ""),
    ):
        with pytest.raises(OSError, match="a view of a journal cannot write"):
            change()
    assert state_of(tmp_path) == before


def test_conditions_of_the_space_are_read_with_it(tmp_path: Path) -> None:
    space: dict[str, ParameterSpec] = {
        "optim.name": ChoiceSpec(("sgd", "adam")),
        "optim.momentum": ChoiceSpec((0.5, 0.9), when=(("optim.name", "sgd"),)),
    }
    open_record(tmp_path, parameters=space).add_trial({"optim.name": "adam"})
    assert read_record(tmp_path).trials[0].settings == {"optim.name": "adam"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read (No such file or directory); give the folder of a search"),
        (b"", "holds no search; give the folder of one that was begun"),
        (b'{"op_co', "holds no search; give the folder of one that was begun"),
        (
            b"[]\n",
            "damaged (TypeError('list indices must be integers or slices, not str')); "
            "give the folder of another search",
        ),
    ],
)
def test_where_there_is_no_search_one_line_says_so(
    tmp_path: Path, content: bytes | None, told: str
) -> None:
    path = tmp_path / JOURNAL_NAME
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StudyError) as caught:
        read_record(tmp_path)
    assert caught.value.problems == (f"{path}: {told}",)
    assert os.listdir(tmp_path) == ([] if content is None else [JOURNAL_NAME])


def test_a_search_that_was_killed_as_it_began_is_none_yet(tmp_path: Path) -> None:
    open_record(tmp_path)
    path = tmp_path / JOURNAL_NAME
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    before = state_of(tmp_path)
    with pytest.raises(StudyError) as caught:
        read_record(tmp_path)
    assert caught.value.problems == (
        f"{path}: holds no search; give the folder of one that was begun",
    )
    assert state_of(tmp_path) == before
