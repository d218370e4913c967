"""The record of a data set gives its images back, and spares what it knows a second look."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.unit.data.conftest import CUT, REMEDY, run, spoil
from tuner.data.prepare import load_prepared, write_dataset_record
from tuner.errors import DataError


def num_opened(root: Path, report_path: Path, **changes: Any) -> int:
    """Return how many images the progress bar was told of."""
    told = [(0, 0)]
    run(root, report_path=report_path, progress=lambda *seen: told.append(seen), **changes)
    assert told[-1][0] == told[-1][1]
    return told[-1][1]


def test_the_record_gives_back_what_was_prepared(image_folder: Path, tmp_path: Path) -> None:
    spoil(image_folder)
    report_path = tmp_path / "dataset.json"
    prepared = run(image_folder, on_bad_image="skip", report_path=report_path)
    loaded = load_prepared(report_path, image_folder)
    for index, other in (
        (prepared.train, loaded.train),
        (prepared.validation, loaded.validation),
    ):
        assert (index.split, index.root, index.classes) == (other.split, other.root, other.classes)
        assert list(index.paths()) == list(other.paths())
        np.testing.assert_array_equal(index.labels, other.labels)
        np.testing.assert_array_equal(index.keys, other.keys)
    assert (loaded.fingerprint, loaded.notes) == (prepared.fingerprint, prepared.notes)


def test_the_record_counts_the_good_images_and_keeps_every_verdict(
    image_folder: Path, tmp_path: Path
) -> None:
    spoil(image_folder)
    run(image_folder, on_bad_image="skip", report_path=tmp_path / "dataset.json")
    record = json.loads((tmp_path / "dataset.json").read_text())
    assert record["counts"] == {
        "train": {"class 1": 7, "class 2": 8, "class 10": 7},
        "validation": {"class 1": 4, "class 2": 3, "class 10": 4},
    }
    rows = [dict(zip(record["columns"], row, strict=True)) for row in record["images"]["train"]]
    assert len(rows) == 24
    assert (rows[0]["width"], rows[0]["height"], rows[0]["reason"]) == (24, 20, None)
    assert rows[3]["reason"] == f"train/class 1/3.jpg: {CUT}{REMEDY}"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"images": {"train": [3]}}'])
def test_a_damaged_record_is_refused_by_trials_and_made_anew(
    image_folder: Path, tmp_path: Path, content: str
) -> None:
    report_path = tmp_path / "dataset.json"
    report_path.write_text(content)
    with pytest.raises(DataError, match="start the search again to write it anew"):
        load_prepared(report_path, image_folder)
    assert num_opened(image_folder, report_path) == 36
    assert len(load_prepared(report_path, image_folder).train) == 24


def test_a_missing_record_is_one_line(image_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_prepared(tmp_path / "dataset.json", image_folder)
    assert str(caught.value) == (
        f"{tmp_path}/dataset.json: not a whole record of a data set (FileNotFoundError); "
        "start the search again to write it anew"
    )


def test_only_changed_files_are_opened_again(image_folder: Path, tmp_path: Path) -> None:
    report_path = tmp_path / "dataset.json"
    assert num_opened(image_folder, report_path) == 36
    assert num_opened(image_folder, report_path) == 0
    assert num_opened(image_folder, report_path, decoder="pil") == 36
    changed = image_folder / "train/class 1/0.jpg"
    shutil.copyfile(image_folder / "train/class 1/1.jpg", changed)
    (image_folder / "val/class 2/new.jpg").write_bytes(changed.read_bytes())
    assert num_opened(image_folder, report_path, decoder="pil") == 2


def test_another_folder_of_the_same_names_sizes_and_times_is_read_again(tmp_path: Path) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for brightness, root in enumerate(roots):
        for path in (root / f"{name}/{number}.ppm" for name in "ab" for number in range(4)):
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4), (brightness, 0, 0)).save(path)
            os.utime(path, (1, 1))
    report_path = tmp_path / "dataset.json"
    assert num_opened(roots[0], report_path) == 8
    assert run(roots[1], report_path=report_path).fingerprint == run(roots[1]).fingerprint


def test_a_file_rewritten_in_place_under_its_old_time_is_read_again(
    image_folder: Path, tmp_path: Path
) -> None:
    report_path = tmp_path / "dataset.json"
    assert num_opened(image_folder, report_path) == 36
    path = image_folder / "train/class 1/0.jpg"
    before = path.stat()
    path.write_bytes(bytes(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DataError):
        run(image_folder, report_path=report_path)


def test_moved_folders_keep_their_verdicts(image_folder: Path, tmp_path: Path) -> None:
    report_path = tmp_path / "dataset.json"
    assert num_opened(image_folder, report_path) == 36
    moved_root = image_folder.rename(tmp_path / "moved")
    moved_report = report_path.rename(tmp_path / "moved.json")
    assert num_opened(moved_root, moved_report) == 0


def test_a_failed_check_remembers_its_verdicts(image_folder: Path, tmp_path: Path) -> None:
    report_path = tmp_path / "dataset.json"
    spoil(image_folder)
    with pytest.raises(DataError):
        run(image_folder, report_path=report_path)
    shutil.copyfile(image_folder / "train/class 10/1.jpg", image_folder / "train/class 10/0.jpg")
    assert num_opened(image_folder, report_path, on_bad_image="skip") == 1


def test_the_record_of_other_images_stays_until_it_may_go(
    image_folder: Path, tmp_path: Path
) -> None:
    report_path = tmp_path / "dataset.json"
    run(image_folder, report_path=report_path)
    before = report_path.read_bytes()
    shutil.copyfile(image_folder / "train/class 1/1.jpg", image_folder / "train/class 1/0.jpg")
    prepared = run(image_folder, report_path=report_path)
    (image_folder / "train/class 1/2.jpg").write_bytes(b"")
    with pytest.raises(DataError):
        run(image_folder, report_path=report_path)
    assert report_path.read_bytes() == before
    write_dataset_record(report_path, prepared)
    assert load_prepared(report_path, image_folder).fingerprint == prepared.fingerprint


def test_the_record_of_the_same_images_learns_their_new_times(
    image_folder: Path, tmp_path: Path
) -> None:
    report_path = tmp_path / "dataset.json"
    assert num_opened(image_folder, report_path) == 36
    (image_folder / "val/class 1/0.jpg").touch()
    assert num_opened(image_folder, report_path) == 1
    assert num_opened(image_folder, report_path) == 0
