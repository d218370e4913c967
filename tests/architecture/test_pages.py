"""The pages keep up with the program: commands mean something, links lead somewhere."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner import cli, dataset, export, predict, report, retrain, search, throughput
from tuner.stages.opening import open_search

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line)
    for line in re.findall(r"python -m tuner\.([^&\n`|]+)", README)
    if "config=results" not in line and "--help" not in line and "…" not in line
]
KEYS: dict[str, type[cli.Keys]] = {
    "search": search.SearchKeys,
    "throughput": throughput.ThroughputKeys,
    "dataset": dataset.DatasetKeys,
    "retrain": retrain.RetrainKeys,
    "predict": predict.PredictKeys,
    "export": export.ExportKeys,
    "report": report.ReportKeys,
}


def understand_search(keys: Any, overrides: list[str]) -> None:
    """Open the search as if there were one to go on with."""
    name = getattr(keys, "name", None)
    open_search(keys.space, overrides, name=name, output=keys.output, resume="auto")


def understand_only(keys: Any, overrides: list[str]) -> None:
    """Take the keys for understood: the model is not there yet."""


UNDERSTAND: dict[str, Callable[[Any, list[str]], object]] = {
    "search": understand_search,
    "throughput": understand_search,
    "dataset": understand_search,
    "retrain": retrain.read_task,
    "predict": understand_only,
    "export": understand_only,
}


def test_commands_are_found() -> None:
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_of_the_readme_is_understood(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *arguments = command
    UNDERSTAND[name](*cli.parse_arguments(arguments, KEYS[name]))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", KEYS)
def test_help_fits_the_page_and_names_every_key(name: str) -> None:
    text = cli.help_text(name, KEYS[name])
    assert max(map(len, text.splitlines())) <= cli.HELP_COLUMNS
    assert all(f"\n  {key} " in text for key in KEYS[name].model_fields)
