"""A running stage as people see it: it fits the terminal, and a pipe gets few lines."""

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tests.unit.reporting.conftest import Stage, quick_folder, terminal, written
from tuner.reporting.live import LiveView
from tuner.study.record import SEED_KEY


def shown(view: LiveView, width: int = 80, height: int = 24) -> list[str]:
    """The lines of the view in a terminal of that size, without its colors."""
    console = Console(file=io.StringIO(), width=width, height=height, soft_wrap=True, _environ={})
    console.print(view)
    lines = written(console).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert len(lines) <= max(1, height - 1)
    return [line.rstrip() for line in lines]


def screen(text: str) -> list[str]:
    """What a terminal shows in the end of what was written to it, line by line."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if token == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif token == "\x1b[1A":
            row -= 1
        elif token == "\x1b[2K":
            lines[row] = ""
        elif token[0] not in "\x1b\r":
            lines[row] += token
    return [line.rstrip() for line in lines]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A search with a trial of every fate."""
    stage = Stage(tmp_path, terminal())
    for lr in (0.5, 0.03125, 0.001, 0.1):
        stage.begin(**{"optim.lr": lr})
    stage.report(0, 100, 0.5, goes_on=True)
    stage.report(0, 300, 0.875, goes_on=True)
    stage.report(0, 900, 0.75, end="complete")
    stage.report(1, 100, 0.25)
    stage.fail(2, "training loss is nan after 64 images, which says nothing good of this rate")
    stage.report(3, 100, 0.125, end="stopped")
    stage.report(stage.begin(), 110, 0.6, goes_on=True)
    stage.try_again(stage.begin(), "its process died")
    stage.clock.now_s += 5
    return stage


HEAD_80 = """\
✓ prepare  ✓ measure  ● search  ○ confirm  ○ hand over     0:00:05, 0:00:33 left
━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━───────────────────   63 %  1,265 of 2,000 images
6 of 20 trials: 1 complete, 1 stopped, 2 waiting, 1 failed          253 images/s
"""
VIEW_80 = f"""{HEAD_80}
epoch 1  4 trials  ████████████████████████████████████████████████████████████
epoch 3  1 trial   ███████████████
epoch 9  1 trial   ███████████████

1 of 2 slots   top-1     epoch  state           lr  batch_s…  weight_…      name
trial 4       60.0 %  1.6 of 9  running     0.0312        64  1.23e-05   resnet8
idle

best           top-1     epoch  state           lr  batch_s…  weight_…      name
trial 0       87.5 %         3  complete       0.5        64  1.23e-05   resnet8
trial 4       60.0 %       1.1  running     0.0312        64  1.23e-05   resnet8
trial 1       25.0 %         1  waiting     0.0312        64  1.23e-05   resnet8
trial 3       12.5 %         1  stopped        0.1        64  1.23e-05   resnet8

trial   2  failed: diverged, training loss is nan after 64 images, which says n…
trial   5  tried again: killed, its process died
"""
VIEW_80_LOW = f"""{HEAD_80}\
1 of 2 slots   top-1     epoch  state           lr  batch_s…  weight_…      name
trial 4       60.0 %  1.6 of 9  running     0.0312        64  1.23e-05   resnet8
best           top-1     epoch  state           lr  batch_s…  weight_…      name
trial 0       87.5 %         3  complete       0.5        64  1.23e-05   resnet8
trial 4       60.0 %       1.1  running     0.0312        64  1.23e-05   resnet8
trial 1       25.0 %         1  waiting     0.0312        64  1.23e-05   resnet8
trial 3       12.5 %         1  stopped        0.1        64  1.23e-05   resnet8
"""
VIEW_40 = """\
✓ prepare  ✓ mea…  0:00:05, 0:00:33 left
━━━━━━────   63 %  1,265 of 2,000 images
6 of 20 trials: 1 complet…  253 images/s
epoch 1  4 trials  █████████████████████
epoch 3  1 trial   █████
epoch 9  1 trial   █████
1 of 2 slots   top-1     epoch  …
trial 4       60.0 %  1.6 of 9
idle
best           top-1     epoch  …
trial 0       87.5 %         3
trial 4       60.0 %       1.1
trial 1       25.0 %         1
trial 3       12.5 %         1
"""


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(80, 24, VIEW_80), (80, 12, VIEW_80_LOW), (80, 4, HEAD_80), (40, 16, VIEW_40)],
    ids=["80x24", "80x12", "80x4", "40x16"],
)
def test_the_view_is_cut_to_the_terminal(
    stage: Stage, width: int, height: int, expected: str
) -> None:
    assert shown(stage.view, width, height) == expected.splitlines()


def test_a_wide_terminal_has_room_for_names_and_messages(stage: Stage) -> None:
    lines = shown(stage.view, 160, 45)
    assert (
        "best           top-1     epoch  state           lr  batch_size  weight_decay      name"
        in (lines)
    )
    assert lines[-2:] == [
        "trial   2  failed: diverged, training loss is nan after 64 images, "
        "which says nothing good of this rate",
        "trial   5  tried again: killed, its process died",
    ]


@pytest.mark.parametrize("height", [20, 24, 30, 45])
def test_lines_stay_where_they_are_while_trials_come_and_fail(tmp_path: Path, height: int) -> None:
    stage = Stage(tmp_path, terminal(), slots=4)
    heights = []
    for _ in range(6):
        numbers = [stage.begin(), stage.begin()]
        stage.report(numbers[0], 100, 0.5)
        stage.fail(numbers[1], "nan")
        lines = shown(stage.view, 80, height)
        heights.append(len(lines))
        assert sum(line.startswith("best") for line in lines) == 1
    assert heights == sorted(heights)


def test_where_not_all_slots_fit_the_busy_ones_are_shown(tmp_path: Path) -> None:
    stage = Stage(tmp_path, terminal(), slots=9)
    for _ in range(9):
        stage.begin()
    stage.view.lost(range(7))
    lines = shown(stage.view, 80, 45)
    title = next(k for k, line in enumerate(lines) if "of 9 slots" in line)
    assert lines[title].startswith("2 of 9 slots")
    assert [line[:8].strip() for line in lines[title + 1 : title + 10]] == [
        "trial 7",
        "trial 8",
        *["idle"] * 6,
        "",
    ]


@pytest.mark.parametrize(
    ("metric", "direction", "best"),
    [
        ("top1", "maximize", ["trial 3  90.0 %", "trial 1  50.0 %", "trial 2  50.0 %"]),
        ("balanced_top1", "maximize", ["trial 3  90.0 %", "trial 1  50.0 %", "trial 2  50.0 %"]),
        ("validation_loss", "minimize", ["trial 0  0.100", "trial 1  0.500", "trial 2  0.500"]),
    ],
)
def test_the_best_come_first(tmp_path: Path, metric: str, direction: str, best: list[str]) -> None:
    stage = Stage(tmp_path, terminal(), metric=metric, direction=direction, num_trials=6)
    for score in (0.1, 0.5, 0.5, 0.9):
        stage.report(stage.begin(), 100, score)
    lines = shown(stage.view)
    title = next(k for k, line in enumerate(lines) if line.startswith("best"))
    first = [re.sub(r" {2,}", "  ", line) for line in lines[title + 1 : title + 4]]
    assert [line[: len(start)] for line, start in zip(first, best, strict=True)] == best


def test_confirm_runs_have_no_funnel_and_show_their_seed(tmp_path: Path) -> None:
    parameters = ["optim.lr", SEED_KEY]
    stage = Stage(
        tmp_path, terminal(), stage="confirm", rungs=[900], num_trials=4, parameters=parameters
    )
    stage.begin(**{SEED_KEY: 7})
    assert shown(stage.view) == [
        "✓ prepare  ✓ measure  ✓ search  ● confirm  ○ hand over     0:00:00, 0:01:40 left",
        "──────────────────────────────────────────────────────    0 %  0 of 2,000 images",
        "1 of 4 runs: 0 complete, 0 stopped, 0 waiting, 0 failed",
        "",
        "1 of 2 slots   top-1     epoch  state           lr      seed",
        "run 0              –  0.0 of 9  running     0.0312         7",
        "idle",
        "",
        "best           top-1     epoch  state           lr      seed",
    ]


def test_two_keys_that_end_alike_are_shown_in_full(tmp_path: Path) -> None:
    stage = Stage(tmp_path, terminal(), parameters=["model.name", "optim.name", "optim.lr"])
    assert shown(stage.view, 100)[-1].split()[4:] == ["model.name", "optim.name", "lr"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("[red]x[/red]", "[red]x[/red]"),
        ("漢字" * 20, "漢字漢字漢字漢字漢 …"),
        ("\x1b[31mred\n", "�[31mred"),
    ],
    ids=["markup", "wide", "escape"],
)
def test_settings_and_messages_are_shown_as_they_are(
    tmp_path: Path, name: str, expected: str
) -> None:
    stage = Stage(tmp_path, terminal())
    number = stage.begin(**{"model.name": name})
    stage.report(number, 100, 0.5)
    stage.try_again(number, f"\t{name} :smile: [bold]\n\n  end")
    lines = shown(stage.view, 160)
    assert lines[-3].endswith(f" {expected}")
    assert lines[-1].replace("漢字" * 20, expected) == (
        f"trial   0  tried again: killed, {expected} :smile: [bold] end"
    )


TEXT = st.text(st.characters(codec="utf-8"), max_size=40) | st.text("漢é[/]\t\n\x1b", max_size=40)


@given(
    width=st.integers(1, 200),
    height=st.integers(1, 60),
    num_slots=st.integers(1, 20),
    num_trials=st.integers(1, 10),
    messages=st.lists(TEXT, max_size=4),
    rungs=st.lists(st.integers(1, 10**12), min_size=1, max_size=9, unique=True).map(sorted),
)
def test_no_line_is_wider_than_the_terminal_and_the_lines_are_fewer(
    width: int,
    height: int,
    num_slots: int,
    num_trials: int,
    messages: list[str],
    rungs: list[int],
) -> None:
    with quick_folder() as folder:
        stage = Stage(Path(folder), terminal(), slots=num_slots, num_trials=num_trials, rungs=rungs)
        for number in range(num_trials):
            stage.begin()
            if number % 2:
                stage.report(number, rungs[0], 0.5, goes_on=True)
        for message in messages:
            stage.view.fail(0, "error", message, is_final=False)
        shown(stage.view, width, height)


def test_in_a_terminal_nothing_is_left_but_what_was_said(tmp_path: Path) -> None:
    console = terminal()
    stage = Stage(tmp_path, console)
    console.print("before")
    with stage.view:
        console.print("while it runs")
        for _ in range(3):
            stage.report(stage.begin(), 100, 0.5, message="[a] damaged\ncheckpoint")
        stage.fail(stage.begin(), "nan")
        stages = "✓ prepare  ✓ measure  ● search  ○ confirm  ○ hand over"
        assert sum(line.startswith(stages) for line in screen(written(console))) == 1
    console.print("after")
    assert screen(written(console))[:6] == [
        "before",
        "while it runs",
        *(f"search    trial   {number}  [a] damaged checkpoint" for number in range(3)),
        "after",
    ]
    assert not any(screen(written(console))[6:])
