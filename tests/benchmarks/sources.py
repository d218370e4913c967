"""The same images as folders, CSV files and lists, from labels on disk to predictions.

    python tests/benchmarks/sources.py FOLDER results/benchmarks/sources.json

FOLDER holds the unpacked `cifar10-small/`, with a folder for each class in `train/` and `val/`. Its
images are laid out anew twice: flat with CSV files of different separators, some of them called
hard, and in lists of `path label` below a folder whose name holds a blank. All three must be the
same images of the same classes. The spaces for CSV files and for LeNet are then searched, and each
winner predicts the validation images: as many right ones as recorded are expected.
"""

import csv
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tuner.planning.environment import git_commit, processor, versions
from tuner.settings.text import read_yaml

HARD_IMAGES = 300
SMALL = ("data.image_size=32", "search.confirm_top=1", "search.max_concurrent=2")
LIST_FOLDER = "my photos"

Image = tuple[str, str, Path]  # split, label, file


def main() -> None:
    images, to = Path(sys.argv[1]).absolute() / "cifar10-small", Path(sys.argv[2])
    load_before = round(os.getloadavg()[0], 1)  # work of others, which takes from the speed
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        found = sorted(
            (split, path.parent.name, path)
            for split in ("train", "val")
            for path in (images / split).glob("*/*")
        )
        lay_out_csv(here / "as_csv", found)
        lay_out_list(here / "as_list", found)
        layouts = {
            "folder": ("data.source=folder", f"data.root={images}"),
            "csv": ("data.source=csv", "data.root=as_csv"),
            "list": ("data.source=list", "data.root=as_list"),
        }
        facts = {name: look(here, name, layout) for name, layout in layouts.items()}
        assert facts["folder"] == facts["csv"] == facts["list"], facts
        hard = ("mining.start_fraction=0", "search.trials=6")
        figures = {
            "command": f"python tests/benchmarks/sources.py FOLDER {to}",
            "machine": {
                "processor": processor(),
                "system": platform.platform(),
                "load_average_before": load_before,
            },
            "versions": versions(),
            "git_commit": git_commit(),
            "images": {**facts["folder"], "named_hard": HARD_IMAGES},
            "searches": [
                measure(
                    here,
                    ("space=csv_mining", "data.root=as_csv", *hard, *SMALL),
                    ("images=as_csv/label/valid_label.csv", "root=as_csv/train"),
                ),
                measure(
                    here,
                    ("space=cifar10_lenet", *layouts["list"], *SMALL),
                    ("images=as_list/val.txt",),
                ),
            ],
        }
    to.write_text(json.dumps(figures, indent=2) + "\n")


def lay_out_csv(root: Path, images: list[Image]) -> None:
    """Writes all images flat into `train/`, and the three label files."""
    (root / "label").mkdir(parents=True)
    rows: dict[str, list[tuple[str, str]]] = {"train": [], "val": []}
    for number, (split, label, path) in enumerate(images):
        name = f"{number:05d}{path.suffix}"
        put(path, root / "train" / name)
        rows[split].append((name, label))
    hard = rows["train"][:: len(rows["train"]) // HARD_IMAGES][:HARD_IMAGES]
    for name, separator, table in (
        ("train_label", ",", rows["train"]),
        ("valid_label", ";", rows["val"]),
        ("mining_label", ",", hard),
    ):
        with (root / f"label/{name}.csv").open("w", newline="") as file:
            csv.writer(file, delimiter=separator).writerows([("path", "label"), *table])


def lay_out_list(root: Path, images: list[Image]) -> None:
    """Writes all images below a folder whose name holds a blank, and a list of each split."""
    lines: dict[str, list[str]] = {"train": [], "val": []}
    for number, (split, label, path) in enumerate(images):
        name = f"{LIST_FOLDER}/{number:05d}{path.suffix}"
        put(path, root / name)
        lines[split].append(f"{name} {label}\n")
    for split, of_split in lines.items():
        (root / f"{split}.txt").write_text("".join(of_split))


def put(path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, place)
    except OSError:  # another disk
        shutil.copyfile(path, place)


def look(here: Path, name: str, layout: tuple[str, ...]) -> dict[str, Any]:
    """Returns what makes a data set, but for the paths: classes, counts, and contents by label."""
    run(here, "dataset", "space=cifar10_lenet", f"name=look-{name}", *layout)
    record = json.loads((here / f"results/look-{name}/dataset.json").read_text())
    at = {column: place for place, column in enumerate(record["columns"])}
    contents = sorted(
        (split, row[at["label"]], row[at["digest"]])
        for split, rows in record["images"].items()
        for row in rows
    )
    return {
        "counts": record["counts"],
        "sha256_of_contents": hashlib.sha256(json.dumps(contents).encode()).hexdigest(),
        "unreadable": len(record["unreadable"]),
    }


def measure(here: Path, searched: tuple[str, ...], predicted: tuple[str, ...]) -> dict[str, Any]:
    """Searches, predicts the validation images with the winner, and returns the figures."""
    name = searched[0].removeprefix("space=")
    seconds, lines = run(here, "search", *searched, f"name={name}")
    folder = here / "results" / name
    summary = json.loads((folder / "summary.json").read_text())
    best = read_yaml(folder / "best.yaml")
    with (folder / "leaderboard.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    predict = (f"model=results/{name}/best", *predicted, f"to={name}.csv")
    predict_s, told = run(here, "predict", *predict)
    with (here / f"{name}.csv").open(newline="") as file:
        right = [row["prediction"] == row["label"] for row in csv.DictReader(file)]
    recorded = [best["result"][key] for key in ("num_correct", "num_evaluated")]
    assert [sum(right), len(right)] == recorded, (told, recorded)
    return {
        "command": shown("search", *searched),
        "seconds_with_start": round(seconds, 1),
        "seconds_per_stage": summary["seconds_of_this_start"],
        "expected_s": summary["expected_s"],
        "trials": len(rows),
        "complete": sum(row["state"] == "complete" for row in rows),
        "images_trained": summary["images_trained"],
        "winner_settings": {
            key: best["settings"][key.split(".")[0]][key.split(".")[1]]
            for key in rows[0]
            if key.startswith(("optim.", "train.", "mining."))
        },
        "winner_top1_in_search": float(rows[0]["top1"]),
        "confirmed": summary["confirmed"],
        "handed_over": dict(zip(("num_correct", "num_evaluated"), recorded, strict=True)),
        "predict": {
            "command": shown("predict", *predict),
            "seconds": round(predict_s, 1),
            "num_correct": sum(right),
            "num_images": len(right),
        },
        "notes": [line for line in lines if "set aside" in line],
    }


def run(here: Path, command: str, *arguments: str) -> tuple[float, list[str]]:
    """Runs a command in a folder; returns its seconds and what it printed."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", f"tuner.{command}", *arguments],
        cwd=here,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    print(done.stdout, flush=True)
    return time.monotonic() - started, done.stdout.splitlines()


def shown(command: str, *arguments: str) -> str:
    return shlex.join(["python", "-m", f"tuner.{command}", *arguments])


if __name__ == "__main__":
    main()
