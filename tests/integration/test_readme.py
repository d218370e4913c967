"""Every command of the README, run in its order, each on few images and for few epochs."""

import re
import shlex
from pathlib import Path

import pytest

from tests.integration.conftest import Told, errors
from tests.unit.data.small_sets import cifar10
from tuner.stages import measure

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (?:.* && )?python -m tuner\.(\w+)(.*)$", README, re.MULTILINE)

# Instead of what the README says, or has by default: a search of seconds.
SMALL = {"search.trials": "2", "train.epochs": "1", "data.limit": "40", "search.confirm_top": "0"}
SMALLER = {"search.trials=30": "search.trials=3", "search.confirm_seeds=4": "search.confirm_top=1"}


OTHER_SOURCES = [f"data.source={name}" for name in ("csv", "list", "torchvision")]


def write_labels(root: Path) -> None:
    """Write the label files that the README tells of, for images in folders of classes."""
    images = sorted((root / "train").rglob("*.jpg"))
    (root / "label").mkdir()
    rows = [f"{each.relative_to(root / 'train')},{each.parent.name}" for each in images]
    (root / "label" / "train_label.csv").write_text("\n".join(rows))
    lines = [f"{each.relative_to(root)}\t{each.parent.name}" for each in images]
    (root / "labels.txt").write_text("\n".join(lines))


def small(name: str, arguments: list[str]) -> list[str]:
    """Return the arguments with everything that takes long made small."""
    if arguments == ["--help"] or name in ("predict", "export"):
        return arguments
    arguments = [SMALLER.get(argument, argument) for argument in arguments]
    kept = [each for each in arguments if not each.startswith("train.epochs=")]
    given = {argument.partition("=")[0] for argument in kept}
    changed = {"train.epochs": "1"} if "config" in given else SMALL
    if any(each in OTHER_SOURCES for each in kept):  # test_sources.py searches over them
        changed = changed | {"dry_run": "true"}
    return [*kept, *(f"{key}={value}" for key, value in changed.items() if key not in given)]


def test_every_command_of_the_readme_does_what_it_says(
    here: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "NO_SPEED_BUDGET_S", 1.0)
    (here / "images").rename(here / "my_images")
    write_labels(here / "my_images")
    cifar10(here / "sets", monkeypatch)
    assert len(COMMANDS) >= 11
    for name, text in COMMANDS:
        done = told.run(name, *small(name, shlex.split(text)))
        if "gpus_per_trial=0.5" in text:  # `here` hides every GPU
            assert done == errors(
                "resources.gpus_per_trial: 0.5 wanted, torch finds no GPU here; use 0"
            )
        else:
            assert done == (0, []), (name, text)
    assert {path.name for path in here.iterdir()} == {
        *("my_images", "sets", "results", "my_model", "predictions.csv", "out"),
    }
    results = here / "results"
    assert {path.name for path in results.iterdir()} == {
        *(".cache", "imagenet_small", "imagenet_small-2", "imagenet_small-my_images"),
        *("longer", "quick"),
    }
    left = {path.name for path in (results / "imagenet_small").iterdir()}
    named = re.findall(r"`(\w+\.(?:json|csv|yaml|journal)|\w+/)`", section("The five stages"))
    assert {name.rstrip("/") for name in named} - left == {"confirm.csv"}  # with the last start


def section(title: str) -> str:
    """Return the text of one section of the README."""
    return README.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("name", sorted({name for name, _ in COMMANDS}))
def test_every_command_is_in_the_table(name: str) -> None:
    assert f"`python -m tuner.{name} " in section("Commands")
