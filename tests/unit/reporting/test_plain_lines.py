"""A pipe gets few lines, and the ones that matter."""

import io
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.unit.reporting.conftest import SETTINGS, Stage, pipe, quick_folder, written


def test_a_pipe_gets_lines_for_progress_for_the_best_and_for_failures(tmp_path: Path) -> None:
    console = pipe()
    stage = Stage(tmp_path, console)
    with stage.view:
        stage.begin()
        stage.begin()
        stage.clock.now_s += 10
        stage.report(0, 100, 0.5, goes_on=True, message="[b]100.pt :smile: damaged")
        stage.report(1, 100, 0.25)
        stage.fail(0, "training loss is nan\x1b[31m")
        stage.try_again(stage.begin(), "")
    best = "lr=0.0312 batch_size=64 weight_decay=1.23e-05 name=resnet8"
    assert written(console).splitlines() == [
        "search    trial   0  [b]100.pt :smile: damaged",
        f"search    best so far: trial   0  top-1 50.0 % at epoch 1  {best}",
        "search      5 %  100 of 2,000 images, 2 of 20 trials: 0 complete, 0 stopped, 0 waiting, "
        "0 failed, best 50.0 % (trial 0), 10 images/s, 10 s, 1 min 35 s left",
        "search     10 %  200 of 2,000 images, 2 of 20 trials: 0 complete, 0 stopped, 1 waiting, "
        "0 failed, best 50.0 % (trial 0), 20 images/s, 10 s, 1 min 30 s left",
        "search    trial   0  failed: diverged, training loss is nan�[31m",
        f"search    best so far: trial   1  top-1 25.0 % at epoch 1  {best}",
        "search    trial   2  tried again: killed",
    ]


def test_a_pipe_gets_ten_failures(tmp_path: Path) -> None:
    console = pipe()
    stage = Stage(tmp_path, console)
    with stage.view:
        for _ in range(13):
            stage.fail(stage.begin(), "nan")
    assert written(console).splitlines() == [
        *(f"search    trial {number:3d}  failed: diverged, nan" for number in range(10)),
        "search    further failures are not shown",
    ]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1), st.booleans()), max_size=120),
    st.integers(1, 20000),
)
def test_a_pipe_gets_few_lines_however_many_reports_there_are(
    events: list[tuple[int, float, bool]], expected_samples: int
) -> None:
    console = pipe()
    with quick_folder() as folder:
        stage = Stage(Path(folder), console, expected_samples=expected_samples, slots=6)
        with stage.view:
            for _ in range(6):
                stage.begin()
            for number, score, fails in events:
                if fails:
                    stage.try_again(number, "[red]gone[/red]\x1b[1m")
                    stage.view.begin(number, SETTINGS, 0)
                else:
                    samples = stage.record.trials[number].samples_seen + 100
                    stage.report(number, samples, score, goes_on=True)
    lines = written(console).splitlines()
    progress = [line for line in lines if re.match(r"search {4,}\d+ %  ", line)]
    best = [line for line in lines if line.startswith("search    best so far: ")]
    assert len(progress) <= 20
    assert len(best) <= 6
    assert len(lines) - len(progress) - len(best) <= 11
    assert "\x1b" not in written(console)


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(tmp_path: Path) -> None:
    console = Console(
        file=io.StringIO(), force_terminal=True, width=80, height=24, _environ={"TERM": "dumb"}
    )
    stage = Stage(tmp_path, console)
    with stage.view:
        stage.report(stage.begin(), 100, 0.5)
    assert [line[:40] for line in written(console).splitlines()] == [
        "search    best so far: trial   0  top-1 ",
        "search      5 %  100 of 2,000 images, 1 ",
    ]


def test_an_output_of_another_encoding_gets_what_it_can_show(tmp_path: Path) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=file, force_terminal=True, width=80, height=24, _environ={})
    stage = Stage(tmp_path, console)
    with stage.view:
        stage.fail(stage.begin(), "no such file: Ünï\udcff")
    file.seek(0)
    assert file.read() == "search    trial   0  failed: diverged, no such file: ?n??\n"
