"""A mistake in the settings is told before anything heavy is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from tuner import cli, dataset, export, predict, report, retrain, search, throughput

name, *arguments = sys.argv[1:]
keys, main = {
    "dataset": (dataset.DatasetKeys, dataset.main),
    "export": (export.ExportKeys, export.main),
    "predict": (predict.PredictKeys, predict.main),
    "report": (report.ReportKeys, report.main),
    "retrain": (retrain.RetrainKeys, retrain.main),
    "search": (search.SearchKeys, search.main),
    "throughput": (throughput.ThroughputKeys, throughput.main),
}[name]
code = cli.run(name, keys, main, arguments)
print("imported:", *sorted({"torch", "ray", "optuna", "pandas", "cv2"} & sys.modules.keys()))
sys.exit(code)
"""


def refusal(name: str, *arguments: str) -> str:
    """Return what a command says that is refused, having imported nothing heavy."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "imported:\n")
    return done.stderr


@pytest.mark.parametrize("name", ["search", "throughput", "dataset", "retrain"])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["space=imagenet_small", "optim.lrr=1"],
            "error: optim.lrr: no such setting; did you mean optim.lr?\n",
        ),
        (
            ["space=imagenet_small", "train.epochs=0"],
            "error: train.epochs: not allowed (0); use a whole number from 1 to 1000000000\n",
        ),
        (["spaec=x", "space=x.yaml"], "error: spaec: no such setting; did you mean space?\n"),
        (
            ["space=imagenet_smal"],
            "error: space: no such search space (imagenet_smal); use cifar10, cifar10_lenet, "
            "csv_mining, imagenet_small or the path of a .yaml file; "
            "did you mean imagenet_small?\n",
        ),
        (
            ["space=imagenet_small", "model.weights=gone.pt"],
            f"error: model.weights: {Path.cwd()}/gone.pt: cannot be read (No such file or "
            "directory); give a safetensors file or a state dict, or null\n",
        ),
    ],
)
def test_settings_are_checked_without_heavy_imports(
    name: str, arguments: list[str], told: str
) -> None:
    assert refusal(name, *arguments) == told


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        (
            "predict",
            ["model=nowhere", "images=."],
            "error: model: nowhere does not exist; give best/ of a search, the output of a "
            "retrain, or an export\n",
        ),
        (
            "predict",
            ["modle=best", "images=.", "optim.lr=1"],
            "error: modle: no such setting; did you mean model?\n"
            "error: optim.lr: no such setting; --help lists them all\n"
            "error: model: missing; add model=VALUE\n",
        ),
        (
            "export",
            ["run=tests", "to=x", "format=safetensors,onnx"],
            "error: format: onnx comes with a later version; use safetensors,pt2\n",
        ),
        (
            "export",
            ["run=tests", "to=x", "format=pt"],
            "error: format: no such format (pt); use safetensors or pt2, or both with a comma "
            "between; did you mean pt2?\n",
        ),
    ],
)
def test_a_model_is_looked_for_without_heavy_imports(
    name: str, arguments: list[str], told: str
) -> None:
    assert refusal(name, *arguments) == told


@pytest.mark.parametrize("name", ["search", "throughput", "dataset"])
def test_a_list_of_points_is_checked_without_heavy_imports(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("optim.lr\n7\n", encoding="utf-8")
    arguments = ["space=imagenet_small", f"search.points={tmp_path}/a.csv", f"output={tmp_path}"]
    assert refusal(name, *arguments) == (
        f"error: {tmp_path}/a.csv line 2: optim.lr: outside of the space (7); "
        'use a value of {"log": [0.001, 1.0]}\n'
    )


def test_a_report_is_refused_until_there_is_one() -> None:
    assert refusal("report", "run=results/x") == (
        "error: tuner.report: not available yet; leaderboard.csv, confirm.csv and summary.json "
        "are in results/x, and optuna-dashboard shows its study.journal\n"
    )
