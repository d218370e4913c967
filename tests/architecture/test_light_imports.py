"""A mistake in the settings is told before anything heavy is imported."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pydantic import Field
from tuner import cli
from tuner.settings.load import load_space

class DemoKeys(cli.Keys):
    "Loads a space."
    space: str = Field(description="name of the space")

def main(keys, overrides):
    load_space(keys.space, overrides)

code = cli.run("demo", DemoKeys, main)
print("imported:", *sorted({"torch", "ray", "optuna", "pandas", "cv2"} & sys.modules.keys()))
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["space=imagenet_small"], 0, ""),
        (
            ["space=imagenet_small", "optim.lrr=1"],
            2,
            "error: optim.lrr: no such setting; did you mean optim.lr?\n",
        ),
        (["spaec=x", "space=x"], 2, "error: spaec: no such setting; did you mean space?\n"),
    ],
)
def test_settings_are_checked_without_heavy_imports(
    arguments: list[str], code: int, told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "imported:\n", told)
