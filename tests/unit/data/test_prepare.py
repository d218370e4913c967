"""Every file is judged, by however many processes; the good images get a fingerprint."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.unit.data.conftest import CUT, EMPTY, REMEDY, TEXT, run, spoil
from tuner.data import prepare, verify
from tuner.data.index import draw_order, load_splits
from tuner.data.labelled import list_csv
from tuner.data.prepare import load_prepared
from tuner.errors import DataError


def test_good_images_all_stay(image_folder: Path) -> None:
    prepared = run(image_folder)
    assert (len(prepared.train), len(prepared.validation)) == (24, 12)
    assert prepared.notes == ()


@pytest.mark.parametrize("decoder", ["cv2", "pil"])
def test_all_bad_images_are_named_at_once(image_folder: Path, decoder: str) -> None:
    spoil(image_folder)
    with pytest.raises(DataError) as caught:
        run(image_folder, decoder=decoder)
    assert caught.value.problems == (
        f"train/class 1/3.jpg: {CUT}{REMEDY}",
        f"train/class 10/0.jpg: {EMPTY}{REMEDY}",
        f"val/class 2/1.jpg: {TEXT}{REMEDY}",
    )


def test_skipping_removes_bad_images_and_says_so(image_folder: Path) -> None:
    spoil(image_folder)
    prepared = run(image_folder, on_bad_image="skip")
    assert (len(prepared.train), len(prepared.validation)) == (22, 11)
    assert "train/class 1/3.jpg" not in list(prepared.train.paths())
    assert prepared.notes == (
        "data.root: unreadable images left out: 3 "
        "(train/class 1/3.jpg, train/class 10/0.jpg, val/class 2/1.jpg)",
    )


@pytest.mark.parametrize("limit", [1, 5, 12, 15, 24])
def test_a_limit_is_filled_with_good_images(image_folder: Path, tmp_path: Path, limit: int) -> None:
    whole = load_splits(image_folder, validation_fraction=0.25, split_seed=0)
    for number in (0, 2, 4):
        for image in image_folder.glob(f"*/class */{number}.jpg"):
            image.write_bytes(b"")
    report_path = tmp_path / "dataset.json"
    prepared = run(image_folder, limit=limit, on_bad_image="skip", report_path=report_path)
    left_out = json.loads(report_path.read_text())["unreadable"]
    for before, after in (
        (whole.train, prepared.train),
        (whole.validation, prepared.validation),
    ):
        order = list(before.take(draw_order(before, 0)).paths())
        good = [path for path in order if not path.endswith(("0.jpg", "2.jpg", "4.jpg"))]
        assert list(after.paths()) == sorted(good[:limit])
        end = order.index(good[limit - 1]) if limit <= len(good) else len(order)
        passed_over = sorted({*order[:end]} - {*good})
        assert [path for path in left_out if path in order] == passed_over
    again = run(image_folder, limit=limit, on_bad_image="skip", report_path=report_path)
    assert again.fingerprint == prepared.fingerprint
    assert len(load_prepared(report_path, image_folder).train) == len(prepared.train)


def test_only_the_bad_images_that_a_limit_draws_are_named(image_folder: Path) -> None:
    index = load_splits(image_folder, validation_fraction=0.25, split_seed=0).train
    drawn = list(index.take(draw_order(index, 0)).paths())
    for path in (*drawn[:2], *drawn[6:]):
        (image_folder / path).write_bytes(b"")
    with pytest.raises(DataError) as caught:
        run(image_folder, limit=6)
    assert caught.value.problems == tuple(f"{path}: {EMPTY}{REMEDY}" for path in sorted(drawn[:2]))


@pytest.mark.parametrize(("num_images", "is_said"), [(10, False), (11, True)])
def test_training_classes_that_are_uneven_are_said(
    image_folder: Path, num_images: int, is_said: bool
) -> None:
    train = image_folder / "train"
    for number in range(1, 8):
        (train / "class 2" / f"{number}.jpg").unlink()
    for number in range(8, num_images):
        rng = np.random.default_rng(number)
        pixels = rng.integers(0, 80, (20, 24, 3), np.uint8)
        Image.fromarray(pixels).save(train / "class 10" / f"{number}.jpg")
    note = (
        "data.root: training classes are uneven: 11 images of 'class 10', 1 of 'class 2'; "
        "search.metric=balanced_top1 counts every class alike"
    )
    assert run(image_folder).notes == ((note,) if is_said else ())


def test_classes_that_a_limit_leaves_empty_are_said(image_folder: Path) -> None:
    prepared = run(image_folder, limit=2)
    assert prepared.train.classes == ("class 1", "class 2", "class 10")
    (lacking,) = {"class 1", "class 2", "class 10"} - {
        path.split("/")[1] for path in prepared.train.paths()
    }
    (note,) = prepared.notes
    assert note == f"data.limit: classes left without training images: 1 ({lacking})"


def test_a_class_is_not_lost_while_a_limit_has_not_drawn_all_of_it(image_folder: Path) -> None:
    index = load_splits(image_folder, validation_fraction=0.25, split_seed=0).train
    first = index.path(int(draw_order(index, 0)[0]))
    (image_folder / first).write_bytes(b"")
    prepared = run(image_folder, limit=1, on_bad_image="skip")
    assert len(prepared.train) == 1
    assert f"data.root: unreadable images left out: 1 ({first})" in prepared.notes


def test_a_class_whose_images_are_all_bad_is_not_skipped(image_folder: Path) -> None:
    for image in (image_folder / "train/class 2").iterdir():
        image.write_bytes(b"")
    with pytest.raises(DataError) as caught:
        run(image_folder, on_bad_image="skip")
    first, *others = caught.value.problems
    assert first == (
        "data.root: no readable training image in classes: 1 (class 2); replace the files"
    )
    assert others == [
        f"train/class 2/{number}.jpg: the file is empty (0 bytes)" for number in range(8)
    ]


def test_validation_without_a_good_image_is_refused(image_folder: Path) -> None:
    for image in (image_folder / "val").rglob("*.jpg"):
        image.write_bytes(b"")
    with pytest.raises(DataError) as caught:
        run(image_folder, on_bad_image="skip")
    assert str(caught.value) == "data.root: no readable validation image; replace the files"


def test_a_file_that_goes_away_is_a_bad_image(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_and_remove(root: Path, **settings: Any) -> Any:
        splits = load_splits(root, **settings)
        (root / "val/class 1/0.jpg").unlink()
        return splits

    monkeypatch.setattr(prepare, "load_splits", load_and_remove)
    with pytest.raises(DataError) as caught:
        run(image_folder)
    assert str(caught.value) == (
        "val/class 1/0.jpg: cannot be opened (No such file or directory); "
        "put it back or set data.on_bad_image=skip"
    )


def test_the_fingerprint_is_that_of_the_content(image_folder: Path, tmp_path: Path) -> None:
    before = run(image_folder).fingerprint
    moved = shutil.copytree(image_folder, tmp_path / "elsewhere")
    assert run(moved).fingerprint == before
    assert run(moved, decoder="pil").fingerprint == before
    shutil.copyfile(moved / "train/class 1/1.jpg", moved / "train/class 1/0.jpg")
    assert run(moved).fingerprint != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("train/class 1/0.jpg", "train/class 1/zero.jpg"),
        ("train/class 1/0.jpg", "train/class 2/zero.jpg"),
        ("train/class 1/0.jpg", "val/class 1/zero.jpg"),
        ("train/class 1", "train/class 0"),
    ],
    ids=["path", "label", "split", "class"],
)
def test_a_move_changes_the_fingerprint(image_folder: Path, old: str, new: str) -> None:
    shutil.rmtree(image_folder / "val/class 1")
    (image_folder / "val/class 1").mkdir()
    before = run(image_folder).fingerprint
    if old == "train/class 1":
        shutil.rmtree(image_folder / "val/class 1")
    (image_folder / old).rename(image_folder / new)
    assert run(image_folder).fingerprint != before


def test_copies_across_classes_and_splits_are_said_and_listed(
    image_folder: Path, tmp_path: Path
) -> None:
    original = image_folder / "train/class 1/0.jpg"
    shutil.copyfile(original, image_folder / "train/class 1/same.jpg")
    assert run(image_folder).notes == ()
    shutil.copyfile(original, image_folder / "train/class 2/copy.jpg")
    shutil.copyfile(image_folder / "train/class 2/5.jpg", image_folder / "val/class 2/copy.jpg")
    assert run(image_folder, report_path=tmp_path / "dataset.json").notes == (
        "data.root: images with an identical copy in another class: 3 "
        "(train/class 1/0.jpg, train/class 1/same.jpg, train/class 2/copy.jpg)",
        "data.root: validation images with an identical training image: 1 (val/class 2/copy.jpg)",
    )
    record = json.loads((tmp_path / "dataset.json").read_text())
    assert record["copies_across_classes"] == [
        ["train/class 1/0.jpg", "train/class 1/same.jpg", "train/class 2/copy.jpg"]
    ]
    assert record["copies_across_splits"] == [["train/class 2/5.jpg", "val/class 2/copy.jpg"]]


def test_processes_find_what_one_process_finds(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(image_folder)
    run(image_folder, on_bad_image="skip", report_path=tmp_path / "alone.json")
    monkeypatch.setattr(verify, "POOL_MIN_IMAGES", 10)
    monkeypatch.setattr(verify, "CHUNK_IMAGES", 8)
    told: list[tuple[int, int]] = []
    run(
        image_folder,
        on_bad_image="skip",
        report_path=tmp_path / "pool.json",
        num_processes=2,
        progress=lambda *seen: told.append(seen),
    )
    assert told == [(8, 36), (16, 36), (24, 36), (32, 36), (36, 36)]
    assert (tmp_path / "pool.json").read_text() == (tmp_path / "alone.json").read_text()


def test_processes_end_with_a_killed_parent(image_folder: Path, tmp_path: Path) -> None:
    code = f"""if __name__ == "__main__":
        import os, signal
        from pathlib import Path
        from tuner.data import prepare, verify
        verify.POOL_MIN_IMAGES, verify.CHUNK_IMAGES = 1, 1
        def kill(*seen):
            import multiprocessing
            print(*(child.pid for child in multiprocessing.active_children()), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        prepare.prepare_dataset(Path({str(image_folder)!r}), validation_fraction=0.5, split_seed=0,
            limit=None, decoder="cv2", on_bad_image="fail", num_processes=2, progress=kill)
    """
    script = tmp_path / "main.py"
    script.write_text(code)
    parent = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(prepare.__file__).parents[2])},
    )
    # Its workers hold the pipe too: it closes when the last of them has gone.
    output, _ = parent.communicate(timeout=60)
    assert parent.returncode == -signal.SIGKILL
    assert len(output.split()) >= 1


def test_what_a_killed_process_leaves_is_checked_all_the_same(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(image_folder).fingerprint
    endless = image_folder / "val/class 2/3.jpg"
    content = endless.read_bytes()

    def load_and_block(root: Path, **settings: Any) -> Any:
        splits = load_splits(root, **settings)
        endless.unlink()
        os.mkfifo(endless)
        return splits

    def kill_workers(*seen: int) -> None:
        for worker in multiprocessing.active_children():
            worker.kill()
            worker.join()
            endless.unlink(missing_ok=True)
            endless.write_bytes(content)

    monkeypatch.setattr(prepare, "load_splits", load_and_block)
    monkeypatch.setattr(verify, "POOL_MIN_IMAGES", 10)
    monkeypatch.setattr(verify, "CHUNK_IMAGES", 1)
    prepared = run(image_folder, num_processes=2, progress=kill_workers)
    assert prepared.fingerprint == expected


def test_a_script_without_a_main_guard_checks_alone(image_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(f"""
from pathlib import Path
from tuner.data import prepare, verify
verify.POOL_MIN_IMAGES, verify.CHUNK_IMAGES = 1, 1
prepared = prepare.prepare_dataset(Path({str(image_folder)!r}), validation_fraction=0.5,
    split_seed=0, limit=None, decoder="cv2", on_bad_image="fail", num_processes=2)
print(prepared.fingerprint)
""")
    found = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(prepare.__file__).parents[2])},
    )
    assert found.stdout == run(image_folder).fingerprint + "\n"
    assert found.returncode == 0


def test_images_of_every_kind_pass_in_one_folder(hostile_tmp_path: Path) -> None:
    for name in ("a", "b"):
        (hostile_tmp_path / name).mkdir()
        for number, mode in enumerate(("L", "LA", "RGBA", "P", "1", "RGB")):
            Image.new(mode, (1 + 499 * (number % 2), 1)).save(
                hostile_tmp_path / name / f"{number}.png"
            )
    prepared = run(hostile_tmp_path)
    assert len(prepared.train) + len(prepared.validation) == 12


def test_an_image_in_both_splits_is_counted_once(csv_dataset: Path) -> None:
    """A label file can name it twice, and by two labels."""
    with (csv_dataset / "label/valid_label.csv").open("a") as file:
        file.write("../train/class 1 0.jpg,class 1\n../train/class 1 1.jpg,class 2\n")
    prepared = run(csv_dataset, list_images=list_csv)
    assert prepared.notes == (
        "data.root: images with an identical copy in another class: 1 (train/class 1 1.jpg)",
        "data.root: validation images with an identical training image: 2 "
        "(train/class 1 0.jpg, train/class 1 1.jpg)",
    )
