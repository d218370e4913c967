"""Commands read their own keys, hand settings on, help from the models, and fail in one line."""

import errno
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from tuner import cli
from tuner.errors import RunError, SettingsError
from tuner.settings.config import known_fields
from tuner.settings.load import load_space
from tuner.settings.sections import Text


class DemoKeys(cli.Keys):
    """Shows what a command is."""

    space: Text = Field(description="name of the space")
    name: cli.RunName | None = Field(default=None, description="name of the run")
    resume: Literal["auto", "never"] = Field(default="auto", description="whether to go on")
    dry_run: bool = Field(default=False, description="only say what would be done")


@pytest.fixture(autouse=True)
def kept_signal_handlers() -> Iterator[None]:
    """Put back the handlers that `cli.run` sets for the life of a process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def nothing(keys: DemoKeys, overrides: list[str]) -> None:
    """Do nothing, as a command that succeeds."""


def problems_of(*arguments: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        cli.parse_arguments(arguments, DemoKeys)
    return list(caught.value.problems)


def test_keys_without_a_dot_are_the_commands_own_and_the_rest_are_settings() -> None:
    arguments = ["optim.lr=1", "space=007", "dry_run=true", "parameters.optim.lr=[1, 2]"]
    keys, overrides = cli.parse_arguments(arguments, DemoKeys)
    assert keys == DemoKeys(space="007", dry_run=True)
    assert overrides == ["optim.lr=1", "parameters.optim.lr=[1, 2]"]


def test_all_mistakes_are_told_together() -> None:
    assert problems_of(
        "resume=maybe", "--dry-run", "nmae=x", "lr=1", "name=", "optim.lrr=1", "word"
    ) == [
        "--dry-run: no such option; write settings as key=value",
        "nmae: no such setting; did you mean name?",
        "lr: no such setting; did you mean optim.lr?",
        "name: no value given; write name=VALUE",
        "space: missing; add space=VALUE",
        "resume: not allowed (maybe); use auto or never",
        "word: not a setting; write key=value",
        "optim.lrr: no such setting; did you mean optim.lr?",
    ]


def test_a_key_without_a_value_is_told_once() -> None:
    assert problems_of("space=") == ["space: no value given; write space=VALUE"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../x", "../x"),
        ("a/b", "a/b"),
        (".", "."),
        ("..", ".."),
        (".cache", ".cache"),
        (" ", " "),
        ("é" * 51, "é" * 51),
        ("x" * 300, "x" * 80 + "…"),
    ],
)
def test_a_run_name_that_is_no_folder_name_is_refused(name: str, shown: str) -> None:
    assert problems_of("space=x", f"name={name}") == [
        f"name: not allowed ({shown}); use one folder name, not hidden, of at most 100 bytes"
    ]


@pytest.mark.parametrize(
    ("name", "shown"), [("a\nb", r"a\nb"), ("a\0b", r"a\x00b"), ("\udcff", r"\udcff")]
)
def test_a_run_name_that_is_no_text_is_refused(name: str, shown: str) -> None:
    assert problems_of("space=x", f"name={name}") == [
        f"name: not allowed ({shown}); use text or null"
    ]


@pytest.mark.parametrize("name", ["x", "my run, the 2nd", "é" * 50, "-x", "a.b"])
def test_any_other_name_is_a_run_name(name: str) -> None:
    assert cli.parse_arguments(["space=x", f"name={name}"], DemoKeys)[0].name == name


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "imagenet_small"),
        (["data.source=generated"], "imagenet_small"),
        (["data.source=folder", "data.root=/x/my imgs/"], "imagenet_small-my imgs"),
        (
            ["data.source=torchvision", "data.root=/x", "data.dataset=CIFAR10"],
            "imagenet_small-CIFAR10",
        ),
        (["data.source=folder", f"data.root=/x/{'é' * 99}"], f"imagenet_small-{'é' * 42}"),
    ],
)
def test_the_default_name_tells_the_space_and_the_images(overrides: list[str], name: str) -> None:
    assert cli.default_run_name(load_space("imagenet_small", overrides), overrides) == name


def test_a_folder_that_the_space_itself_names_is_not_in_the_name() -> None:
    assert cli.default_run_name(load_space("cifar10", []), []) == "cifar10"


@given(st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=60)))
def test_every_default_name_is_a_run_name(parts: list[str]) -> None:
    overrides = ["data.source=folder", f"data.root=/{'/'.join(parts)}"]
    name = cli.default_run_name(load_space("imagenet_small", overrides), overrides)
    assert DemoKeys(space="x", name=name).name == name


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_key_with_its_default_within_100_columns(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run("demo", DemoKeys, nothing, ["nonsense", flag]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:8] == [
        "usage: python -m tuner.demo key=value …",
        "",
        "Shows what a command is.",
        "",
        "  space    needed  name of the space (text)",
        "  name     null    name of the run (text or null)",
        "  resume   auto    whether to go on (auto or never)",
        "  dry_run  false   only say what would be done (true or false)",
    ]
    starts = {tuple(line.split()[:2]) for line in lines}
    assert {("optim.lr", "0.1"), ("data.root", "null"), ("augment.flip", "false")} <= starts
    assert known_fields().keys() <= {
        first for first, *_ in (line.split() or [""] for line in lines)
    }
    assert max(map(len, lines)) <= 100


def test_a_command_that_returns_nothing_is_done_and_a_code_is_passed_on() -> None:
    assert cli.run("demo", DemoKeys, nothing, ["space=x"]) == 0
    assert cli.run("demo", DemoKeys, lambda keys, overrides: 1, ["space=x"]) == 1


def test_a_mistake_is_told_a_line_each_with_its_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def main(keys: DemoKeys, overrides: list[str]) -> None:
        raise RunError("a: lost", "b: lost")

    assert cli.run("demo", DemoKeys, main, ["space=x"]) == 1
    assert cli.run("demo", DemoKeys, main, ["spaec=x"]) == 2
    assert capsys.readouterr() == (
        "",
        "error: a: lost\nerror: b: lost\n"
        "error: spaec: no such setting; did you mean space?\n"
        "error: space: missing; add space=VALUE\n",
    )


def test_an_interrupt_exits_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    def main(keys: DemoKeys, overrides: list[str]) -> None:
        raise KeyboardInterrupt

    assert cli.run("demo", DemoKeys, main, ["space=x"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_reader_that_is_gone_spoils_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def main(keys: DemoKeys, overrides: list[str]) -> None:
        raise KeyboardInterrupt

    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        assert cli.run("demo", DemoKeys, main, ["space=x"]) == 130
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # what is buffered can go


def test_a_full_disk_is_told_in_one_line_whoever_was_writing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def main(keys: DemoKeys, overrides: list[str]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert cli.run("demo", DemoKeys, main, ["space=x"]) == 1
    assert re.sub(r"[\d,]+ MB", "N MB", capsys.readouterr().err) == (
        f"error: {Path.cwd()}: a file cannot be read or written "
        "(No space left on device, N MB free); make room; the same command goes on\n"
    )


@pytest.mark.parametrize("bug", [ZeroDivisionError(), FileNotFoundError(errno.ENOENT, "gone")])
def test_a_bug_keeps_its_traceback(bug: Exception) -> None:
    def main(keys: DemoKeys, overrides: list[str]) -> None:
        raise bug

    with pytest.raises(type(bug)):
        cli.run("demo", DemoKeys, main, ["space=x"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_request_to_end_unwinds_the_command(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    signal.signal(number, signal.SIG_DFL)
    saved = tmp_path / "saved"

    def main(keys: DemoKeys, overrides: list[str]) -> None:
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            saved.touch()

    with pytest.raises(SystemExit) as caught:
        cli.run("demo", DemoKeys, main, ["space=x"])
    assert (caught.value.code, saved.exists()) == (code, True)


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    cli.run("demo", DemoKeys, nothing, ["space=x"])
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


class PlainKeys(cli.Keys):
    """Takes no settings."""

    takes_settings = False

    model: Text = Field(description="folder of the model")


def test_a_command_without_settings_refuses_them_and_its_help_has_none() -> None:
    assert cli.parse_arguments(["model=a.b"], PlainKeys) == (PlainKeys(model="a.b"), [])
    with pytest.raises(SettingsError) as caught:
        cli.parse_arguments(["modle=x", "optim.lr=1", "word"], PlainKeys)
    assert caught.value.problems == (
        "modle: no such setting; did you mean model?",
        "optim.lr: no such setting; --help lists them all",
        "word: no such setting; --help lists them all",
        "model: missing; add model=VALUE",
    )
    assert cli.help_text("plain", PlainKeys) == (
        "usage: python -m tuner.plain key=value …\n\nTakes no settings.\n\n"
        "  model  needed  folder of the model (text)\n"
    )
