"""`python -m tuner.dataset` tells what a folder holds, and spares the search that work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner.dataset", "space=imagenet_small", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def arguments(image_folder: Path) -> list[str]:
    return ["data.source=folder", f"data.root={image_folder}", "data.image_size=16"]


def test_a_folder_is_told_the_same_again(
    image_folder: Path, arguments: list[str], tmp_path: Path
) -> None:
    train = image_folder / "train"
    (train / "class 1" / ".DS_Store").write_bytes(b"x")
    copy = (train / "class 1" / "0.jpg").read_bytes()
    (train / "class 2" / "copy.jpg").write_bytes(copy)
    (image_folder / "val" / "class 1" / "copy.jpg").write_bytes(copy)
    done = run(tmp_path, *arguments, "name=mine")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    table = lines.index("class     train  validation")
    assert lines[table + 1 :] == [
        "class 1       8           5",
        "class 2       9           4",
        "class 10      8           4",
        "all          25          13",
        "identical images in several classes: 1",
        "  train/class 1/0.jpg = train/class 2/copy.jpg = val/class 1/copy.jpg",
        "identical images in both splits: 1",
        "  train/class 1/0.jpg = train/class 2/copy.jpg = val/class 1/copy.jpg",
    ]
    assert any("hidden" in line for line in lines)
    record = json.loads((tmp_path / "results" / "mine" / "dataset.json").read_text())
    rows = [dict(zip(record["columns"], row, strict=True)) for row in record["images"]["train"]]
    assert {(row["width"], row["height"], row["mode"]) for row in rows} == {(24, 20, "RGB")}
    assert run(tmp_path, *arguments, "name=mine").stdout == done.stdout


def test_every_unreadable_file_is_listed_and_the_exit_says_so(
    image_folder: Path, arguments: list[str], tmp_path: Path
) -> None:
    (image_folder / "train" / "class 1" / "0.jpg").write_bytes(b"")
    (image_folder / "val" / "class 2" / "1.jpg").write_text("no image")
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert "unreadable images: 2" in done.stdout
    assert "  train/class 1/0.jpg: the file is empty (0 bytes)" in done.stdout
    assert "  val/class 2/1.jpg: not an image of a known kind" in done.stdout
    assert done.stderr == (
        "error: data.root: 2 unreadable images, listed above; "
        "replace them or set data.on_bad_image=skip\n"
    )
    done = run(tmp_path, *arguments, "data.on_bad_image=skip")
    assert (done.returncode, done.stderr) == (0, "")
