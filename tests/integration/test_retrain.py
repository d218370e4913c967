"""Retraining as a user does it: in processes of their own, killed and started again."""

import hashlib
import json
import random
import shutil
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.conftest import SmallDisk
from tests.integration.conftest import SPACE, Command, Told, errors
from tuner import cli, retrain
from tuner.settings.text import read_yaml, yaml_text

IMAGES = ("data.root=images", "train.epochs=30")


SAVING_EACH_STEP = """
import sys
import tuner.assemble
from tuner import cli, retrain
tuner.assemble.CHECKPOINT_EVERY_S = 0
sys.exit(cli.run("retrain", retrain.RetrainKeys, retrain.main))
"""


def start_saving_each_step(folder: Path, output: Path) -> Popen[str]:
    """Return a running retraining that can be gone on with from any step."""
    arguments = ("space=tiny.yaml", *IMAGES, f"output={output}")
    return Popen(
        [sys.executable, "-c", SAVING_EACH_STEP, *arguments],
        cwd=folder,
        stdout=PIPE,
        stderr=PIPE,
        text=True,
    )


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def num_reports(output: Path) -> int:
    metrics = output / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def kill_after_reports(process: Popen[str], output: Path, count: int, delay_s: float) -> None:
    """SIGKILL some time after `count` reports are written; ending before that is an error."""
    while num_reports(output) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    time.sleep(delay_s)
    assert process.poll() is None, process.communicate()
    process.kill()
    process.communicate()


def test_a_killed_retrain_ends_with_the_weights_of_one_that_was_not(command: Command) -> None:
    whole, torn = command.folder / "whole", command.folder / "torn"
    done = command.run("retrain", "space=tiny.yaml", *IMAGES, f"output={whole}")
    assert (done.returncode, done.stderr) == (0, "")
    moments = random.Random(0)
    for kill in range(3):
        process = start_saving_each_step(command.folder, torn)
        kill_after_reports(process, torn, 8 * kill + moments.randint(2, 8), moments.random() / 20)
    # Another number of loader workers and another decoder must not show either.
    others = ("loader.num_workers=2", "data.decoder=pil")
    done = command.run("retrain", "space=tiny.yaml", *IMAGES, *others, f"output={torn}")
    assert (done.returncode, done.stderr) == (0, "")
    assert sha256(torn / "model.safetensors") == sha256(whole / "model.safetensors")
    scores = [
        [
            {key: value for key, value in json.loads(line).items() if not key.endswith("_s")}
            | {"peak_memory_bytes": 0, "seconds": 0}
            for line in (output / "metrics.jsonl").read_text().splitlines()
        ]
        for output in (whole, torn)
    ]
    assert scores[0] == scores[1]
    assert len(scores[0]) == 30


def test_a_retrain_whose_checkpoints_are_gone_says_so_and_begins_anew(
    here: Path, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("space=tiny.yaml", "data.root=images", "train.epochs=2", "output=again")
    (here / "tiny.yaml").write_text(SPACE)
    assert told.retrain(*arguments) == (0, [])
    first = sha256(here / "again" / "model.safetensors")
    shutil.rmtree(here / "again" / "checkpoints")
    assert cli.run("retrain", retrain.RetrainKeys, retrain.main, arguments) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "images decoded before, 16 px, 0 MB in .cache/decoded"
    assert out[1] == f"{here}/again/checkpoints: no checkpoint is left; training begins anew"
    assert [line[:12] for line in out[2:4]] == ["epoch   1.00", "epoch   2.00"]
    assert sha256(here / "again" / "model.safetensors") == first


def test_a_retrain_on_a_full_disk_ends_in_one_line_and_goes_on_once_there_is_room(
    here: Path, told: Told, small_disk: SmallDisk
) -> None:
    (here / "tiny.yaml").write_text(SPACE)
    arguments = ("space=tiny.yaml", "data.root=images", "train.epochs=3")
    full = small_disk.path / "retrain"
    assert told.retrain(*arguments, f"output={full}") == (
        1,
        [
            f"error: {full}: no checkpoint can be written (No space left on device, 0 MB free); "
            "make room"
        ],
    )
    assert [path.name for path in (full / "checkpoints").iterdir()] == ["000000024.pt"]
    small_disk.resize(2**23)
    for output in (full, "whole"):
        assert told.retrain(*arguments, f"output={output}") == (0, [])
    assert sha256(full / "model.safetensors") == sha256(here / "whole" / "model.safetensors")


def test_best_yaml_trains_to_the_recorded_count(command: Command) -> None:
    validation = command.folder / "images" / "val"
    for number in (1, 2, 3):
        (validation / "class 2" / f"{number}.jpg").unlink()
    (validation / "class 1" / "3.jpg").replace(validation / "class 2" / "0.jpg")  # a wrong label
    command.run("retrain", "space=tiny.yaml", "data.root=images", "output=first")
    summary = json.loads((command.folder / "first" / "summary.json").read_text())
    best, evaluation = summary["result"], summary["evaluation"]
    done = command.run("retrain", "config=first/best.yaml")
    told = f"{best['num_correct']} of 8 right at epoch {best['epoch']:g}, as recorded"
    assert done.stdout.splitlines()[-1] == f"repeated: {told}"
    assert done.stdout.splitlines()[-3] == (
        f"top-1 {100 * best['top1']:.1f} %, balanced top-1 {100 * best['balanced_top1']:.1f} %; "
        "class 'class 2' is found least: 0.0 % of 1 validation image"
    )
    assert evaluation["num_images"] == [3, 1, 4]
    assert sum(evaluation["confusion"][k][k] for k in range(3)) == best["num_correct"]
    assert evaluation["balanced_top1"] == best["balanced_top1"]
    changed = command.run("retrain", "config=first/best.yaml", "optim.lr=0.06", "output=changed")
    assert changed.stdout.splitlines()[-1] == (
        "not compared with the recorded result: optim.lr was 0.05 and is now 0.06"
    )
    refused = command.run("retrain", "config=first/best.yaml", "train.seed=1", "output=changed")
    assert refused.returncode == 2
    assert refused.stderr == (
        f"error: {command.folder}/changed: holds another run (optim.lr was 0.06 and is now 0.05, "
        "train.seed was 0 and is now 1); use another output=… or remove that folder\n"
    )


def test_a_retrain_on_another_seed_is_told_by_the_interval_that_was_stated(
    here: Path, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "tiny.yaml").write_text(SPACE)
    arguments = ("space=tiny.yaml", "data.root=images", "train.epochs=2", "output=first")
    assert told.retrain(*arguments) == (0, [])
    path = here / "first" / "best.yaml"
    best = read_yaml(path)

    def last_line(interval: list[float] | None, *overrides: str) -> str:
        confirmed = {"metric": "top1", "seeds": [1, 2], "mean": 0.5, "interval": interval}
        path.write_text(yaml_text({**best, "confirmed": confirmed}))
        shutil.rmtree(here / "again", ignore_errors=True)
        assert told.run_only("retrain", f"config={path}", "output=again", *overrides) == 0
        return capsys.readouterr().out.splitlines()[-1]

    line = last_line([0.0, 1.0], "train.seed=7")
    summary = json.loads((here / "again" / "summary.json").read_text())
    metrics = (here / "again" / "metrics.jsonl").read_text().splitlines()
    top1 = max(json.loads(each)["top1"] for each in metrics)
    assert summary["settings"]["train"]["seed"] == 7
    assert line == (
        f"seed 7: {100 * top1:.1f} %, inside the interval stated for one more run (0.0 to 100.0 %, "
        "9 times in 10)"
    )
    assert "outside the interval" in last_line([1.5, 1.6], "train.seed=7")
    changed = "train.seed was 0 and is now 7"
    assert last_line(None, "train.seed=7") == f"not compared with the recorded result: {changed}"
    assert last_line([0.0, 1.0], "train.seed=7", "optim.lr=0.06") == (
        f"not compared with the recorded result: optim.lr was 0.05 and is now 0.06, {changed}"
    )
    assert last_line([0.0, 1.0]).startswith("repeated: ")


def test_a_model_and_weights_that_do_not_fit_the_classes_are_told_before_it_is_trained(
    here: Path, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "tiny.yaml").write_text(SPACE)
    (here / "net_of_two.py").write_text(
        "from torch import nn\n"
        "def build(classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(768, 2))\n"
    )
    arguments = ("space=tiny.yaml", "data.root=images", "train.epochs=1", "output=two")
    assert told.retrain(*arguments, "model.name=net_of_two:build") == errors(
        "model.name: net_of_two:build: gave outputs of shape (3, 2) for black images at "
        "evaluation; give (3, 3): a number for each image and class"
    )
    assert not (here / "two" / "run.json").exists()
    torch.save({"0.weight": torch.zeros(16, 3, 3, 3), "9.weight": torch.zeros(1)}, here / "w.pt")
    assert told.retrain(*arguments, "model.weights=w.pt") == errors(
        f"model.weights: {here}/w.pt: fits 1% of resnet8_s2's parameters (1 tensor loaded, 46 "
        "missing (1.weight, 1.bias, 1.running_mean, …), 1 unexpected (9.weight), 0 of another "
        "shape); use weights of this model: 50% must fit"
    )


def test_a_retrain_on_other_weights_is_not_compared(
    here: Path, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "tiny.yaml").write_text(SPACE)
    arguments = ("data.root=images", "train.epochs=1")
    assert told.retrain("space=tiny.yaml", *arguments, "output=first") == (0, [])
    shutil.copy(here / "first" / "model.safetensors", here / "w.safetensors")
    weights = ("model.weights=w.safetensors", "output=second")
    assert told.retrain("space=tiny.yaml", *arguments, *weights) == (0, [])
    again = ("config=second/best.yaml", "output=third")
    assert cli.run("retrain", retrain.RetrainKeys, retrain.main, again) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("repeated: ")
    save_file({name: 2 * each for name, each in load_file(here / "w.safetensors").items()},
              here / "w.safetensors")  # fmt: skip
    again = ("config=second/best.yaml", "output=fourth")
    assert cli.run("retrain", retrain.RetrainKeys, retrain.main, again) == 0
    out = capsys.readouterr().out.splitlines()
    assert "model.weights: not those of the recorded result, with which it is not compared" in out
    assert out[-1].startswith(
        "not compared with the recorded result: model.weights was a file of SHA-256 "
    )
