"""Runs the commands as a user does: in processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

SPACE = """
data: {source: folder, image_size: 16}
augment: {crop: pad, flip: true, rotate90: true}
model: {name: resnet8_s2, ghost_batch_size: 4}
optim: {lr: 0.05}
train: {epochs: 9, batch_size: 10, accumulate_steps: 2}
search: {trials: 7, grace_epochs: 1}
parameters:
  optim.lr: {log: [1.0e-3, 1]}
  train.batch_size: {choices: [6, 10, 24]}
  optim.weight_decay: {log: [1.0e-5, 1.0e-2]}
"""


@pytest.fixture
def space_file(image_folder: Path) -> Path:
    """Return a small space over `image_folder`, beside it; its folder is a place to work in."""
    path = image_folder.parent / "tiny.yaml"
    path.write_text(SPACE + f"\n# {image_folder.name}\n", encoding="utf-8")
    return path


@pytest.fixture
def command(image_folder: Path, space_file: Path) -> "Command":
    """Return a starter of commands in the folder of `space_file`."""
    return Command(space_file.parent)


class Command:
    """Starts `python -m tuner.<name>` in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """Return the running process, its output piped."""
        return subprocess.Popen(
            [sys.executable, "-m", f"tuner.{name}", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Return the finished process."""
        with self.start(name, *arguments) as process:
            out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
