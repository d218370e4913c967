"""Numbers and lines for people."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tuner.reporting import terminal
from tuner.reporting.terminal import (
    bytes_text,
    duration_text,
    metric_text,
    say,
    say_under,
    score_text,
)

WORDS = "12 trials of resnet8_s2 at 64 px, rungs at 1, 3, 9 epochs of 1000 images"


@pytest.fixture
def set_console(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool, int], None]:
    """Return what makes the console a terminal or a pipe of so many columns."""

    def set_to(is_terminal: bool, columns: int) -> None:
        # The terminal's colours and cursor moves are rich's; what is said is looked at without.
        console = Console(
            force_terminal=is_terminal,
            width=columns,
            highlight=False,
            soft_wrap=True,
            color_system=None,
            force_interactive=False,
        )
        monkeypatch.setattr(terminal, "CONSOLE", console)

    return set_to


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (8.4, "8 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (160, "2 min 40 s"),
        (3569, "59 min 29 s"),
        (3571, "1 h 0 min"),
        (3629, "1 h 0 min"),
        (3631, "1 h 1 min"),
        (18_600, "5 h 10 min"),
        (360_000, "100 h 0 min"),
    ],
)
def test_a_time_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.floats(0, 1e7))
def test_a_time_is_told_to_half_of_its_smaller_unit(seconds: float) -> None:
    units = {"s": 1, "min": 60, "h": 3600}
    words = duration_text(seconds).split()
    parts = [(int(n), unit) for n, unit in zip(words[::2], words[1::2], strict=True)]
    told = sum(n * units[unit] for n, unit in parts)
    smallest = units[parts[-1][1]]
    assert abs(told - seconds) <= smallest / 2 + 0.5
    assert all(n < 60 for n, unit in parts if unit != "h")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 MB"),
        (14_600_000, "15 MB"),
        (999_000_000, "999 MB"),
        (999_600_000, "1.0 GB"),
        (1_000_000_000, "1.0 GB"),
        (12_340_000_000, "12.3 GB"),
    ],
)
def test_a_size_is_told_in_powers_of_a_thousand(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("metric", "value", "unit", "text"),
    [
        ("top1", 0.4584, True, "45.8 %"),
        ("top5", 1.0, True, "100.0 %"),
        ("balanced_top1", 0.4584, True, "45.8 %"),
        ("top1", 0.0123, False, "1.2"),
        ("validation_loss", 1.5478, True, "1.548"),
        ("validation_loss", 0.0123, False, "0.012"),
        ("top1", None, True, "none"),
        ("validation_loss", None, True, "none"),
    ],
)
def test_a_share_is_told_in_percent_and_a_loss_as_it_is(
    metric: str, value: float | None, unit: bool, text: str
) -> None:
    assert metric_text(metric, value, unit=unit) == text


def test_the_scores_of_a_report_are_one_line() -> None:
    report: dict[str, Any] = {
        "top1": 0.458,
        "top5": 0.88,
        "validation_loss": 1.5478,
        "images_per_s": 261.4,
    }
    assert score_text(report) == "top-1  45.8 %  top-5  88.0 %  loss 1.548  261 images/s"


def test_lines_in_a_pipe_stay_whole(
    set_console: Callable[[bool, int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    set_console(False, 40)
    say_under("plan", WORDS, "second")
    assert capsys.readouterr().out == f"plan      {WORDS}\n          second\n"


def test_lines_in_a_terminal_are_wrapped_beside_their_head(
    set_console: Callable[[bool, int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    set_console(True, 40)
    say_under("plan", WORDS, "second")
    assert capsys.readouterr().out.splitlines() == [
        "plan      12 trials of resnet8_s2 at 64",
        "          px, rungs at 1, 3, 9 epochs of",
        "          1000 images",
        "          second",
    ]


def test_a_narrow_terminal_leaves_words_and_paths_whole(
    set_console: Callable[[bool, int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/a/very/long/path/without/any/space/in/it"
    set_console(True, 12)
    say_under("files", f"in {path} are twenty-one files")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "files     in",
        f"          {path}",
        "          are twenty-one files",
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_brackets_and_colons_are_no_markup(
    set_console: Callable[[bool, int], None],
    capsys: pytest.CaptureFixture[str],
    is_terminal: bool,
) -> None:
    set_console(is_terminal, 80)
    say("parameters.optim.lr=[red] :smile: [/]")
    assert capsys.readouterr().out == "parameters.optim.lr=[red] :smile: [/]\n"


def test_what_the_output_cannot_encode_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(terminal, "CONSOLE", Console(file=written, soft_wrap=True))
    say("71.3 % ± 0.6 in ./Ünï")
    written.flush()
    assert written.buffer.getvalue() == b"71.3 % ? 0.6 in ./?n?\n"


def test_a_reader_that_is_gone_ends_no_run() -> None:
    told = "from tuner.reporting.terminal import say; [say('line') for _ in range(3)]; exit(7)"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", told], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (7, b"")
