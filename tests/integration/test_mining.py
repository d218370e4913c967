"""Runs that mine and average: what they hand over, and how the next one goes on from it."""

import csv
import json
from pathlib import Path

import torch

from tests.integration.conftest import Told, errors
from tuner.settings.text import read_yaml

SETTINGS = (
    *("space=imagenet_small", "data.source=folder", "data.root=images", "data.image_size=16"),
    *("train.batch_size=10", "train.epochs=4", "mining.hard_fraction=0.2", "mining.ratio=2"),
)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_hard_images_are_handed_over_and_read_by_the_next_run(told: Told, here: Path) -> None:
    assert told.retrain(*SETTINGS, "output=first")[0] == 0
    hard = rows(here / "first/mining_label.csv")
    assert len(hard) == round(0.2 * 24)
    assert {row["label"] for row in hard} == {"class 1", "class 2", "class 10"}
    assert all(row["path"].startswith(f"train/{row['label']}/") for row in hard)
    losses = [float(row["loss"]) for row in hard]
    assert losses == sorted(losses, reverse=True)

    more = ("data.mining_labels=first/mining_label.csv", "mining.start_fraction=0")
    assert told.retrain(*SETTINGS, *more, "output=second")[0] == 0
    record = json.loads((here / "second/dataset.json").read_text())
    names = [record["images"]["train"][position][0] for position in record["first_hard"]]
    assert sorted(names) == sorted(row["path"] for row in hard)
    before, after = (read_yaml(here / name / "best.yaml") for name in ("first", "second"))
    assert before["data_fingerprint"] != after["data_fingerprint"]
    assert len(list((here / ".cache/decoded").glob("*.pixels"))) == 1  # the images are the same

    assert told.run_only("retrain", "config=second/best.yaml", "output=third") == 0
    assert "\nrepeated: " in told.capsys.readouterr().out
    (here / "first/mining_label.csv").write_text(f"{hard[0]['path']},{hard[0]['label']}\n")
    lost = f"{here}/second: holds another run (the images are others); "
    assert told.retrain(*SETTINGS, *more, "output=second") == errors(
        f"{lost}use another output=… or remove that folder"
    )


def test_the_average_that_was_judged_is_handed_over(told: Told, here: Path) -> None:
    assert told.retrain(*SETTINGS, "train.ema_decay=0.7", "output=averaged")[0] == 0
    result = read_yaml(here / "averaged/best.yaml")["result"]
    assert told.run("predict", "model=averaged", "images=images/val", "to=all.csv")[0] == 0
    right = [row["label"] == row["prediction"] for row in rows(here / "all.csv")]
    assert (sum(right), len(right)) == (result["num_correct"], result["num_evaluated"])
    checkpoints = sorted((here / "averaged/checkpoints").glob("*.pt"))
    kept = torch.load(checkpoints[-1])
    assert any(
        not torch.equal(kept["average"][name], kept["model"][name]) for name in kept["model"]
    )


def test_a_run_without_mining_leaves_no_hard_images_behind(told: Told, here: Path) -> None:
    assert told.run_only("retrain", *SETTINGS, "train.epochs=1", "output=too_short") == 0
    assert told.capsys.readouterr().out.splitlines()[0] == (
        "mining.ratio: no mining epoch begins between 0.5 and 0.875 of train.epochs=1; "
        "it changes nothing"
    )
    assert told.retrain(*SETTINGS, "mining.ratio=0", "output=without")[0] == 0
    assert not (here / "without/mining_label.csv").exists()
