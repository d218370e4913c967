"""A mistake in the settings is told before anything heavy is imported."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from tuner import cli, retrain, search

name, *arguments = sys.argv[1:]
keys, main = {
    "search": (search.SearchKeys, search.main),
    "retrain": (retrain.RetrainKeys, retrain.main),
}[name]
code = cli.run(name, keys, main, arguments)
print("imported:", *sorted({"torch", "ray", "optuna", "pandas", "cv2"} & sys.modules.keys()))
sys.exit(code)
"""


@pytest.mark.parametrize("name", ["search", "retrain"])
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
    ],
)
def test_settings_are_checked_without_heavy_imports(
    name: str, arguments: list[str], told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "imported:\n", told)
