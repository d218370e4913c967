"""Every command of the README, run in its order, each on few images and for few epochs."""

import csv
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import Told, errors
from tests.unit.data.small_sets import cifar10
from tuner.data.prepare import load_prepared
from tuner.images import images_root
from tuner.settings.load import load_settings, load_space
from tuner.settings.text import read_yaml
from tuner.stages import measure

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"^    (?:.* && )?python -m tuner\.(\w+)(.*)$", re.MULTILINE)
COMMANDS = COMMAND.findall(README)

# Instead of what the README says, or has by default: a search of seconds.
SMALL = {"search.trials": "2", "train.epochs": "1", "data.limit": "40", "search.confirm_top": "0"}
SMALLER = {"search.trials=30": "search.trials=3", "search.confirm_seeds=4": "search.confirm_top=1"}
# And one that measures nothing, but for the images that are rendered.
SMALLEST = {"search.trials": "1", "loader.num_workers": "0", "train.accumulate_steps": "1"}


def small(name: str, arguments: list[str]) -> list[str]:
    """Return the arguments with everything that takes long made small."""
    if arguments == ["--help"] or name in ("predict", "export"):
        return arguments
    arguments = [SMALLER.get(argument, argument) for argument in arguments]
    kept = [each for each in arguments if not each.startswith("train.epochs=")]
    given = {argument.partition("=")[0] for argument in kept}
    changed = {"train.epochs": "1"} if "config" in given else SMALL
    if name == "search" and ("data.source" in given or "space=imagenet_small" not in kept):
        changed = changed | SMALLEST
    return [*kept, *(f"{key}={value}" for key, value in changed.items() if key not in given)]


def ways() -> dict[str, list[tuple[str, str]]]:
    """Return the commands from labels to predictions, by the source of the images."""
    found: dict[str, list[tuple[str, str]]] = {}
    for block in re.findall(r"(?:^    .*\n)+", README, re.MULTILINE):
        commands = COMMAND.findall(block)
        if [name for name, _ in commands] == ["search", "predict"]:
            space, *overrides = shlex.split(commands[0][1])
            source = load_space(space.removeprefix("space="), overrides).config.data.source
            found[source] = commands
    return found


WAYS = ways()


def test_there_is_a_way_from_labels_to_predictions_for_each_source() -> None:
    assert WAYS.keys() == {"folder", "csv", "list", "torchvision"}
    assert (
        "predict",
        " model=results/imagenet_small/best images=results/.cache/generated-1/val",
    ) in COMMANDS


def write_csv(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write flat folders, and CSV files whose separators, headers and line ends differ."""
    root = (here / "images").rename(here / "my_csv")
    for split, separator, header in (("train", ",", "path,label\r\n"), ("valid", ";", "")):
        folder = root / ("val" if split == "valid" else split)
        names = []
        for path in sorted(folder.rglob("*.jpg")):
            flat = path.rename(folder / f"{path.parent.name}-{path.name}")
            names.append(f"{flat.name}{separator}{path.parent.name}\r\n")
        (root / "label").mkdir(exist_ok=True)
        (root / f"label/{split}_label.csv").write_text(header + "".join(names), newline="")
    (root / "label/mining_label.csv").write_text("class 2-0.jpg,class 2\n")
    (root / "test").mkdir()
    (root / "test/unknown.jpg").write_bytes((root / "val/class 1-0.jpg").read_bytes())


def write_list(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write lists of paths that hold blanks."""
    root = here / "my_list"
    root.mkdir()
    photos = (here / "images").rename(root / "photos")
    for split in ("train", "val"):
        paths = sorted((photos / split).rglob("*.jpg"))
        lines = [f"{path.relative_to(root)}\t{path.parent.name}\n" for path in paths]
        (root / f"{split}.txt").write_text("".join(lines))


def write_set(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a set as torchvision has it."""
    cifar10(here / "data/cifar10", monkeypatch)
    (here / "images").rename(here / "my_images")


WRITE: dict[str, Callable[[Path, pytest.MonkeyPatch], None]] = {
    "csv": write_csv,
    "list": write_list,
    "torchvision": write_set,
}
COUNTS = {"csv": (24, 12), "list": (24, 12), "torchvision": (12, 6)}


@pytest.mark.parametrize("source", WRITE)
def test_the_way_from_labels_to_predictions_is_as_the_readme_says(
    here: Path, told: Told, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    WRITE[source](here, monkeypatch)
    (_, searched), (_, predicted) = WAYS[source]
    assert told.run("search", *small("search", shlex.split(searched))) == (0, [])
    assert told.run("predict", *shlex.split(predicted)) == (0, [])
    (run,) = here.glob("results/[!.]*")
    assert num_right(here, told, run, COUNTS[source]) == recorded(run)
    assert told.run_only("retrain", f"config={run}/best.yaml") == 0
    assert "repeated: " in told.capsys.readouterr().out


def num_right(here: Path, told: Told, run: Path, counts: tuple[int, int] | None = None) -> str:
    """Return what `predict` counts as right of the validation images of a search."""
    config = load_settings(read_yaml(run / "best.yaml")["settings"], run, [])
    root = images_root(config, here / "results/.cache")
    data = load_prepared(run / "dataset.json", root)
    assert counts in (None, (len(data.train), len(data.validation)))
    with (here / "validation.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("image", "label"))
        for path, label in zip(data.validation.paths(), data.validation.labels, strict=True):
            rows.writerow((path, data.validation.classes[label]))
    arguments = (f"model={run}/best", "images=validation.csv", f"root={root}", "to=told.csv")
    assert told.run_only("predict", *arguments) == 0
    return told.capsys.readouterr().out.rpartition("(")[2].rstrip(")\n")


def recorded(run: Path) -> str:
    """Return what the search had counted as right."""
    result = read_yaml(run / "best.yaml")["result"]
    return f"{result['num_correct']}/{result['num_evaluated']}"


def test_every_command_of_the_readme_does_what_it_says(
    here: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "NO_SPEED_BUDGET_S", 1.0)
    (here / "images").rename(here / "my_images")
    elsewhere = [command for source in WRITE for command in WAYS[source]]
    commands = [command for command in COMMANDS if command not in elsewhere]
    assert len(commands) >= 15
    for name, text in commands:
        done = told.run(name, *small(name, shlex.split(text)))
        if "gpus_per_trial=0.5" in text:  # `here` hides every GPU
            assert done == errors(
                "resources.gpus_per_trial: 0.5 wanted, torch finds no GPU here; use 0"
            )
        else:
            assert done == (0, []), (name, text)
    assert {path.name for path in here.iterdir()} == {
        *("my_images", "results", "my_model", "predictions.csv", "out"),
    }
    results = here / "results"
    assert {path.name for path in results.iterdir()} == {
        *(".cache", "imagenet_small", "imagenet_small-2", "imagenet_small-my_images"),
        *("longer", "quick"),
    }
    left = {path.name for path in (results / "imagenet_small").iterdir()}
    named = re.findall(r"`(\w+\.(?:json|csv|yaml|journal)|\w+/)`", section("The five stages"))
    assert {name.rstrip("/") for name in named} - left == {"confirm.csv"}  # with the last start
    for run in (results / "imagenet_small", results / "imagenet_small-my_images"):
        assert num_right(here, told, run) == recorded(run)


def section(title: str) -> str:
    """Return the text of one section of the README."""
    return README.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("name", sorted({name for name, _ in COMMANDS}))
def test_every_command_is_in_the_table(name: str) -> None:
    assert f"`python -m tuner.{name} " in section("Commands")
