"""Every command of the README, run in its order, each on few images and for few epochs."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from tests.integration.conftest import Command

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (?:.* && )?python -m tuner\.(\w+)(.*)$", README, re.MULTILINE)

# Instead of what the README says, or has by default: a search of seconds.
SMALL = {"search.trials": "2", "train.epochs": "1", "data.limit": "40"}
OF_SEARCHES = {"search.confirm_seeds": "1", "search.confirm_top": "1"}
SMALLER = {
    "search.trials=30": "search.trials=3",
    "search.confirm_seeds=4": "search.confirm_seeds=2",
}


def small(name: str, arguments: list[str]) -> list[str]:
    """Return the arguments with everything that takes long made small."""
    if arguments == ["--help"]:
        return arguments
    arguments = [SMALLER.get(argument, argument) for argument in arguments]
    kept = [each for each in arguments if not each.startswith("train.epochs=")]
    given = {argument.partition("=")[0] for argument in kept}
    defaults = SMALL | (OF_SEARCHES if name != "retrain" else {})
    if any(argument.startswith("config=") for argument in kept):
        defaults = {"train.epochs": "1"}
    return [*kept, *(f"{key}={value}" for key, value in defaults.items() if key not in given)]


def test_every_command_of_the_readme_does_what_it_says(image_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new user"
    shutil.copytree(image_folder, folder / "my_images")
    command = Command(folder)
    assert len(COMMANDS) >= 12
    for name, text in COMMANDS:
        done = command.run(name, *small(name, shlex.split(text)))
        if "gpus_per_trial=0.5" in text and not torch.cuda.is_available():
            assert (done.returncode, done.stderr) == (
                2,
                "error: resources.gpus_per_trial: 0.5 wanted, torch finds no GPU here; use 0\n",
            )
            continue
        assert (done.returncode, done.stderr) == (0, ""), (name, text)
    results = {path.name for path in (folder / "results").iterdir()}
    assert results == {
        *(".cache", "imagenet_small", "imagenet_small-2", "imagenet_small-my_images", "wide"),
        *("longer", "quick"),
    }
    left = {path.name for path in (folder / "results" / "imagenet_small").iterdir()}
    told = re.findall(r"`(\w+\.(?:json|csv|yaml|journal)|\w+/)`", section("The five stages"))
    assert {name.rstrip("/") for name in told} <= left


def section(title: str) -> str:
    """Return the text of one section of the README."""
    return README.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("name", sorted({name for name, _ in COMMANDS}))
def test_every_command_is_in_the_table(name: str) -> None:
    assert f"`python -m tuner.{name} " in section("Commands")
