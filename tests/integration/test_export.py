"""An exported model as others get it: a folder like any other, a program that needs torch alone."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import SmallDisk
from tests.integration.conftest import SPACE, Told, errors
from tuner.data.worker import read_image

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
# What somebody else's machine need not have: importing any of these is an error here.
ABSENT = ("tuner", "ray", "optuna", "pydantic", "safetensors", "torchvision", "cv2", "rich")
PRELUDE = f"import sys; sys.modules.update(dict.fromkeys({ABSENT}))\n"

pytestmark = pytest.mark.filterwarnings("default")  # torch.export's own


@pytest.fixture
def model(here: Path, told: Told) -> Path:
    """Return the model folder of a retraining whose images are cut after they are resized."""
    (here / "tiny.yaml").write_text(SPACE.replace("crop: pad", "crop: resized"))
    arguments = ("space=tiny.yaml", "data.root=images", "train.epochs=1", "output=model")
    assert told.retrain(*arguments) == (0, [])
    return here / "model"


def run_alone(code: str, folder: Path) -> str:
    """Return what a program prints that has torch and nothing of ours."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PRELUDE + code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_program_gives_the_predictions_where_there_is_only_torch(
    model: Path, told: Told
) -> None:
    assert told.run("export", "run=model", "to=my_model", "format=safetensors,pt2") == (0, [])
    assert {path.name for path in Path("my_model").iterdir()} == {
        *("model.safetensors", "classes.json", "preprocess.json", "best.yaml", "model.pt2"),
    }
    assert told.run("predict", "model=my_model", "images=images") == (0, [])
    assert told.run("predict", "model=model", "images=images", "to=before.csv") == (0, [])
    assert Path("predictions.csv").read_bytes() == Path("before.csv").read_bytes()
    with open("predictions.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    resize_px = json.loads(Path("my_model/preprocess.json").read_text())["resize_px"]
    assert resize_px == 18
    pixels = [
        torch.from_numpy(read_image(f"images/{row['image']}", stored_px=resize_px, decoder="pil"))
        for row in rows
    ]
    torch.save(torch.stack(pixels), "images.pt")
    code = (
        "import torch\n"
        "run = torch.export.load('my_model/model.pt2').module()\n"
        "images = torch.load('images.pt')\n"
        "parts = [run(part) for part in images.split([1, 3, 17, len(images) - 21])]\n"
        "print(torch.cat(parts).softmax(1).max(1).values.tolist())\n"
    )
    found = torch.tensor(json.loads(run_alone(code, model.parent)))
    wanted = torch.tensor([float(row["probability"]) for row in rows])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_program_of_the_readme_runs(here: Path, told: Told) -> None:
    (here / "tiny.yaml").write_text(SPACE.replace("image_size: 16", "image_size: 64"))
    arguments = ("space=tiny.yaml", "data.root=images", "train.epochs=1", "output=model")
    assert told.retrain(*arguments) == (0, [])
    assert told.run("export", "run=model", "to=my_model") == (0, [])
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code.split("\n")) <= 7  # five lines, and an empty one below the import
    names = json.loads(run_alone(code, here).replace("'", '"'))
    assert len(names) == 3
    assert len(set(names)) == 1
    assert names[0] in ("class 1", "class 2", "class 10")


def test_an_export_is_whole_or_refused(model: Path, told: Told, small_disk: SmallDisk) -> None:
    assert told.run("export", "run=nowhere", "to=x") == errors(
        "run: nowhere does not exist; give best/ of a search, the output of a retrain, or an export"
    )
    assert told.run("export", "run=model", "to=images") == errors(
        "to: images is there already; remove it or give another"
    )
    assert told.run("export", "run=model", "to=x", "format=onnx") == errors(
        "format: onnx comes with a later version; use safetensors,pt2"
    )
    small_disk.fill()
    code, lines = told.run("export", "run=model", f"to={small_disk.path}/x", "format=safetensors")
    assert (code, len(lines)) == (1, 1)
    assert "No space left on device" in lines[0]
    assert [path.name for path in small_disk.path.iterdir()] == ["filling"]
    damaged = model / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert told.run("export", "run=model", "to=x") == (
        1,
        [
            f"error: {damaged}: is damaged (no whole safetensors file); take it from a whole copy",
        ],
    )
    assert not Path("x").exists()
