"""Predicting as a user does it: the recorded score again, a row for every image, whole files."""

import csv
import json
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SmallDisk
from tests.integration.conftest import SPACE, Command, Told, errors
from tuner.settings.text import read_yaml

COLUMNS = [
    *("image", "label", "prediction", "probability"),
    *(f"{what}_{place}" for place in (1, 2, 3) for what in ("class", "probability")),
    *("reason", "feature_row"),
]


@pytest.fixture
def model(here: Path, told: Told) -> Path:
    """Return the model folder of a retraining on `images`, which lies beside it."""
    (here / "tiny.yaml").write_text(SPACE)
    arguments = ("space=tiny.yaml", "data.root=images", "train.epochs=2", "output=model")
    assert told.retrain(*arguments) == (0, [])
    return here / "model"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def said(told: Told, *arguments: str) -> list[str]:
    """Return the lines that `predict` says, which ends well."""
    told.capsys.readouterr()
    code = told.run_only("predict", *arguments)
    out, err = told.capsys.readouterr()
    assert (code, err) == (0, "")
    return out.splitlines()


def test_the_images_of_the_training_give_the_recorded_count(model: Path, told: Told) -> None:
    recorded = read_yaml(model / "best.yaml")["result"]
    lines = said(told, "model=model", "images=images/val", "features=true")
    count = f"{recorded['num_correct']}/{recorded['num_evaluated']}"
    percent = f"{100 * recorded['top1']:.1f}"
    assert lines == [f"predictions.csv: 12 images, 0 unreadable, top-1 {percent} % ({count})"]
    found = rows(Path("predictions.csv"))
    assert list(found[0]) == COLUMNS
    evaluation = json.loads((model / "summary.json").read_text())["evaluation"]
    classes = evaluation["classes"]
    matrix = np.zeros((3, 3), int)
    for row in found:
        matrix[classes.index(row["label"]), classes.index(row["prediction"])] += 1
    assert evaluation["confusion"] == matrix.tolist()
    assert evaluation["balanced_top1"] == pytest.approx(recorded["balanced_top1"])
    assert recorded["balanced_top1"] == pytest.approx(np.trace(matrix) / 12)  # 4 of each
    assert [row["image"] for row in found[3:6]] == [
        "class 1/3.jpg",
        "class 10/0.jpg",
        "class 10/1.jpg",
    ]
    assert [row["feature_row"] for row in found] == [*map(str, range(12))]
    for row in found:
        assert row["label"] == row["image"].partition("/")[0]
        assert (row["class_1"], row["probability_1"]) == (row["prediction"], row["probability"])
        probabilities = [float(row[f"probability_{place}"]) for place in (1, 2, 3)]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)
        assert row["reason"] == ""
    features = np.load("predictions.features.npy")
    assert (features.shape, features.dtype) == ((12, 64), np.float32)


def test_images_that_cannot_be_read_are_rows_with_their_reason(model: Path, told: Told) -> None:
    (model.parent / "photos").mkdir()
    for number in range(150):  # read by several processes
        source = f"images/train/class {(1, 2, 10)[number % 3]}/{number % 8}.jpg"
        shutil.copy(source, f"photos/{number:03d}.jpg")
    Path("photos/.hidden.jpg").write_bytes(b"x")
    assert said(told, "model=model", "images=photos", "features=true", "to=all.csv") == [
        "images: hidden or system files ignored: 1",
        "all.csv: 150 images, 0 unreadable",
    ]
    Path("photos/007.jpg").write_bytes(b"")
    Path("photos/070.jpg").write_bytes(Path("photos/070.jpg").read_bytes()[:-60])
    Path("photos/149.jpg").unlink()
    Path("photos/149.jpg").symlink_to("nowhere")
    assert said(told, "model=model", "images=photos", "features=true", "to=some.csv")[-1] == (
        "some.csv: 150 images, 3 unreadable"
    )
    whole, part = rows(Path("all.csv")), rows(Path("some.csv"))
    reasons = {row["image"]: row["reason"] for row in part if row["reason"]}
    assert list(reasons) == ["007.jpg", "070.jpg", "149.jpg"]
    assert reasons["007.jpg"] == "the file is empty (0 bytes)"
    assert reasons["070.jpg"].startswith("not a readable image (image file is truncated")
    assert reasons["149.jpg"] == "cannot be opened (No such file or directory)"
    all_features, some_features = np.load("all.features.npy"), np.load("some.features.npy")
    assert len(some_features) == 147
    for before, now in zip(whole, part, strict=True):
        if now["reason"]:
            assert {now[key] for key in COLUMNS[1:-2]} | {now["feature_row"]} == {""}
            continue
        assert now["class_1"] == before["class_1"]
        np.testing.assert_allclose(
            some_features[int(now["feature_row"])],
            all_features[int(before["feature_row"])],
            rtol=1e-5,
            atol=1e-6,
        )


def test_a_list_and_a_csv_are_predicted_as_the_folder_is(model: Path, told: Told) -> None:
    folder_line = said(told, "model=model", "images=images/val", "to=folder.csv")[0]
    images = [row["image"] for row in rows(Path("folder.csv"))]
    lines = [f"images/val/{image} {image.partition('/')[0]}" for image in images]
    Path("list.txt").write_text("\n".join(lines), encoding="utf-8")
    by_list = said(told, "model=model", "images=list.txt", "to=list.csv")[0]
    # What was written is itself a csv of images and labels.
    by_csv = said(told, "model=model", "images=folder.csv", "root=images/val", "to=csv.csv")[0]
    ends = {line.partition(":")[2] for line in (folder_line, by_list, by_csv)}
    assert len(ends) == 1
    assert "top-1" in ends.pop()
    assert Path("csv.csv").read_bytes() == Path("folder.csv").read_bytes()
    by_list_rows = [
        row | {"image": row["image"][len("images/val/") :]} for row in rows(Path("list.csv"))
    ]
    assert by_list_rows == rows(Path("folder.csv"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("model=model", "images=nowhere"),
            "images: nowhere does not exist; give a folder of images, or a list or csv that names "
            "them",
        ),
        (
            ("model=images", "images=images"),
            "model: images is no model folder (model.safetensors, classes.json, preprocess.json, "
            "best.yaml missing); give best/ of a search, the output of a retrain, or an export",
        ),
        (
            ("model=model", "images=tiny.yaml", "to=tiny.yaml"),
            "to: tiny.yaml would replace images; give another file",
        ),
        (
            ("model=model", "images=tiny.yaml", "root=nowhere"),
            "root: nowhere is no folder; give that of the images",
        ),
        (
            ("model=model", "images=images", "to=images"),
            "to: images is a folder; give the file to write",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(
    model: Path, told: Told, arguments: tuple[str, ...], problem: str
) -> None:
    assert told.run("predict", *arguments) == errors(problem)
    assert not Path("predictions.csv").exists()


def test_a_full_disk_leaves_what_was_there(model: Path, told: Told, small_disk: SmallDisk) -> None:
    to = small_disk.path / "all.csv"
    to.write_text("before\n")
    small_disk.fill()
    assert told.run("predict", "model=model", "images=images", f"to={to}") == (
        1,
        [
            f"error: {small_disk.path}: all.csv cannot be written (No space left on device, 0 MB "
            "free); make room"
        ],
    )
    assert {path.name for path in small_disk.path.iterdir()} == {"all.csv", "filling"}
    assert to.read_text() == "before\n"


def test_a_killed_prediction_leaves_no_half_table(model: Path, command: Command) -> None:
    (model.parent / "photos").mkdir()
    for number in range(3000):
        Path(f"photos/{number}.jpg").symlink_to(model.parent / "images/val/class 1/0.jpg")
    process = command.start("predict", "model=model", "images=photos", "features=true")
    while not list(model.parent.glob(".predictions*.tmp")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143
    assert not list(model.parent.glob("*predictions*"))
