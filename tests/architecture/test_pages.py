"""The pages keep up with the program: commands mean something, links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest

from tuner import cli, retrain, search

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line)
    for line in re.findall(r"python -m tuner\.([^&\n`|]+)", README)
    if "config=results" not in line and "--help" not in line
]


def test_commands_are_found() -> None:
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_of_the_readme_is_understood(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *arguments = command
    if name == "search":
        search.open_search(*cli.parse_arguments(arguments, search.SearchKeys))
    else:
        assert name == "retrain"
        retrain.read_task(*cli.parse_arguments(arguments, retrain.RetrainKeys))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", ["search", "retrain"])
def test_help_fits_the_page_and_names_every_key(name: str) -> None:
    commands: dict[str, type[cli.Keys]] = {
        "search": search.SearchKeys,
        "retrain": retrain.RetrainKeys,
    }
    keys = commands[name]
    text = cli.help_text(name, keys)
    assert max(map(len, text.splitlines())) <= cli.HELP_COLUMNS
    assert all(f"\n  {key} " in text for key in keys.model_fields)
