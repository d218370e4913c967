"""Bad images are all named before anything is trained; what is no mistake works and is said."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import ON_IMAGES, Command, Told, begin, errors
from tuner.data.prepare import load_prepared
from tuner.reporting.terminal import HEAD_COLUMNS


def empty(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def keep_one_image(root: Path) -> None:
    image = (root / "train/class 1/0.jpg").read_bytes()
    empty(root)
    (root / "class 1").mkdir()
    (root / "class 1/0.jpg").write_bytes(image)


def add_class_to_validation(root: Path) -> None:
    (root / "val/zebra").mkdir()
    (root / "val/zebra/0.jpg").write_bytes((root / "val/class 1/0.jpg").read_bytes())


def add_empty_class(root: Path) -> None:
    (root / "train/zebra").mkdir()


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (empty, "'ROOT' has no class folders; at least two classes are needed"),
        (keep_one_image, "'ROOT' has one class (class 1); at least two classes are needed"),
        (
            add_class_to_validation,
            "class 'zebra' is not in 'ROOT/train'; add it there or remove it",
        ),
        (
            add_empty_class,
            "class 'zebra' has no images in 'ROOT/train'; add some or remove the class",
        ),
    ],
)
@pytest.mark.parametrize("command", ["search", "retrain"])
def test_a_folder_that_cannot_be_learned_from_is_one_line(
    here: Path, told: Told, command: str, spoil: Callable[[Path], None], line: str
) -> None:
    spoil(here / "images")
    expected = errors(f"data.root: {line.replace('ROOT', f'{here}/images')}")
    assert getattr(told, command)(*ON_IMAGES) == expected
    assert not list(here.glob("results/*"))


def damage(root: Path) -> None:
    cut = root / "train/class 1/3.jpg"
    cut.write_bytes(cut.read_bytes()[:200])
    (root / "train/class 10/0.jpg").write_bytes(b"")
    (root / "val/class 2/1.jpg").write_text("no image")


@pytest.mark.parametrize("command", ["search", "retrain"])
def test_every_bad_image_is_named(here: Path, told: Told, command: str) -> None:
    damage(here / "images")
    remedy = "replace it or set data.on_bad_image=skip"
    assert getattr(told, command)(*ON_IMAGES) == errors(
        f"train/class 1/3.jpg: not a readable image (Truncated File Read); {remedy}",
        f"train/class 10/0.jpg: the file is empty (0 bytes); {remedy}",
        "val/class 2/1.jpg: not an image of a known kind (JPEG, PNG, BMP, GIF, WEBP, TIFF, PPM, "
        f"AVIF); {remedy}",
    )


def test_images_that_were_mended_are_trained_on(here: Path, told: Told) -> None:
    broken = here / "images/val/class 1/0.jpg"
    whole = broken.read_bytes()
    broken.write_bytes(b"")
    assert told.search(*ON_IMAGES)[0] == 2
    assert told.retrain(*ON_IMAGES)[0] == 2
    broken.write_bytes(whole)
    course, data, _ = begin(*ON_IMAGES)
    assert told.retrain(*ON_IMAGES, "train.epochs=1") == (0, [])
    for folder in (course.search.folder, here / "results/cifar10-retrain"):
        known_to_trials = load_prepared(folder / "dataset.json", here / "images")
        assert known_to_trials.fingerprint == data.fingerprint
        assert len(known_to_trials.validation) == 12


def test_what_is_no_mistake_works_and_is_said(command: Command) -> None:
    """Hidden and damaged files, few classes, large batches, an empty class, a small space."""
    root = command.folder / "images"
    damage(root)
    (root / ".DS_Store").touch()
    (root / "train/.ipynb_checkpoints").mkdir()
    (root / "val/class 1/Thumbs.db").touch()
    for image in (root / "val/class 10").iterdir():
        image.unlink()
    elsewhere = command.folder / "else where"
    elsewhere.mkdir()
    done = Command(elsewhere).run(
        "search",
        "space=../tiny.yaml",
        "data.root=../images",
        "data.on_bad_image=skip",
        "train.epochs=1",
        "optim.weight_decay=0",
        "parameters.optim.lr=[0.1, 0.05]",
        "parameters.train.batch_size=[24, 8]",
        "search.trials=20",
        "search.confirm_top=0",
        "output=./out",
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line[HEAD_COLUMNS:] for line in done.stdout.splitlines()]
    assert [
        line for line in lines if line.startswith(("data.", "train.batch_size: ", "22 ", "every "))
    ] == [
        "22 training and 7 validation images of 3 classes",
        "data.root: hidden or system files ignored: 3",
        "data.root: classes without validation images: 1 (class 10)",
        "data.root: unreadable images left out: 3 "
        "(train/class 1/3.jpg, train/class 10/0.jpg, val/class 2/1.jpg)",
        "train.batch_size: 24 is above the 22 training images; such an epoch is one short step",
        "every combination of the space has been tried",
    ]
    with (elsewhere / "out/tiny-images/leaderboard.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["optim.lr"], row["train.batch_size"]) for row in rows} == {
        (lr, batch) for lr in ("0.1", "0.05") for batch in ("24", "8")
    }
    assert len(rows) == 4
    assert {row["top5"] for row in rows} == {"1.0"}
