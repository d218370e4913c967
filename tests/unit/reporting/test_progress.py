"""A stage's figures follow from its events as they would from the whole record."""

import tempfile
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.reporting.progress import NUM_BEST, Failure, StageProgress, Standing
from tuner.settings.space import FloatSpec
from tuner.study.record import Direction, Record

RUNGS = (100, 300, 900)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def open_record(folder: Path, direction: Direction = "maximize") -> Record:
    return Record.open(
        folder,
        name="x",
        metric="top1",
        direction=direction,
        parameters={"optim.lr": FloatSpec(0.0, 1.0)},
        data_fingerprint="",
        settings_plain={},
    )


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return open_record(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def open_progress(
    record: Record,
    clock: Clock,
    *,
    expected: int = 2000,
    images_per_s: float | None = 10.0,
    seconds_left: float = inf,
) -> StageProgress:
    return StageProgress(
        record,
        rungs=RUNGS,
        expected_samples=expected,
        slots=2,
        images_per_s=images_per_s,
        seconds_left=seconds_left,
        clock=clock,
    )


def begin(progress: StageProgress, record: Record) -> int:
    trial = record.add_trial({"optim.lr": 0.5})
    progress.begin(trial.number, trial.settings, 0)
    return trial.number


def report(
    progress: StageProgress, record: Record, number: int, samples: int, top1: float, goes_on: bool
) -> None:
    result = {"samples_seen": samples, "top1": top1, "seconds": 10.0}
    record.add_report(number, result)
    progress.report(number, result, goes_on=goes_on)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["new", "go", "stop", "complete", "stopped", "failed", "again", "lost"]),
        st.integers(0, 20),
        st.sampled_from([0.1, 0.2, 0.3, 0.4]),
    ),
    max_size=40,
)


@given(EVENTS, st.sampled_from(["maximize", "minimize"]))
def test_after_any_events_the_figures_are_those_of_the_record(
    events: list[tuple[str, int, float]], direction: Direction
) -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        record = open_record(Path(folder), direction)
        progress = open_progress(record, Clock())
        running: set[int] = set()
        for kind, which, top1 in events:
            open_trials = [each.number for each in record.trials if each.state == "running"]
            if kind == "new" or not open_trials:
                running.add(begin(progress, record))
                continue
            number = open_trials[which % len(open_trials)]
            if number not in running:
                progress.begin(number, {}, record.trials[number].samples_seen)
            play(progress, record, number, kind, top1)
            running = running | {number} if kind == "go" else running - {number}
        assert_follows(progress, record, running)
        assert_follows(open_progress(record, Clock()), record, set())


def play(progress: StageProgress, record: Record, number: int, kind: str, top1: float) -> None:
    if kind == "lost":
        progress.lost([number])
    elif kind == "again":
        record.add_failure(number, "killed", "gone")
        progress.fail(Failure(number, "killed", "gone", is_final=False))
    elif kind == "failed":
        record.end(number, "failed", "diverged", "nan")
        progress.fail(Failure(number, "diverged", "nan", is_final=True))
    else:
        samples = record.trials[number].samples_seen + 100
        result = {"samples_seen": samples, "top1": top1, "seconds": 1.0}
        record.add_report(number, result)
        if kind == "complete":
            record.end(number, "complete")
        elif kind == "stopped":
            record.end(number, "stopped")
        progress.report(number, result, goes_on=kind == "go")


def assert_follows(progress: StageProgress, record: Record, running: set[int]) -> None:
    figures, trials = progress.figures(), record.trials
    ranked = [each.number for each in record.ranked() if record.best_score(each.number) is not None]
    assert [each.trial_number for each in figures.best] == ranked[:NUM_BEST]
    assert {each.trial_number for each in figures.slots if each} == running
    assert figures.num_begun == len(trials)
    assert figures.done_samples == sum(each.samples_seen for each in trials)
    assert figures.reached == [sum(each.samples_seen >= k for each in trials) for k in RUNGS]
    states = [each.state for each in trials]
    assert figures.counts == {
        "complete": states.count("complete"),
        "stopped": states.count("stopped"),
        "waiting": states.count("running") - len(running),
        "failed": states.count("failed"),
    }


def test_a_job_is_estimated_up_to_its_next_rung_and_no_further(
    record: Record, clock: Clock
) -> None:
    progress = open_progress(record, clock)
    number = begin(progress, record)
    clock.now_s += 10
    assert progress.figures().done_samples == 0  # its process may still be starting
    report(progress, record, number, 104, 0.5, goes_on=True)
    clock.now_s += 5
    figures = progress.figures()
    assert figures.done_samples == 104 + 52  # 104 images in 10 s
    assert figures.slots == [Standing(0, 0.5, 156, "running", {"optim.lr": 0.5}), None]
    progress.lost([number])
    assert progress.figures().done_samples == 104
    begin(progress, record)
    clock.now_s += 4
    assert progress.figures().done_samples == 104 + 41
    clock.now_s += 60
    assert progress.figures().done_samples == 104 + 100


def test_the_expectation_covers_what_running_jobs_have_to_go(record: Record, clock: Clock) -> None:
    progress = open_progress(record, clock, expected=150)
    for _ in range(2):
        begin(progress, record)
    assert progress.figures().expected_samples == 200
    report(progress, record, 0, 100, 0.5, goes_on=False)
    report(progress, record, 1, 100, 0.5, goes_on=False)
    figures = progress.figures()
    assert (figures.done_samples, figures.expected_samples) == (200, 200)


def test_the_speed_is_that_of_the_last_half_minute(record: Record, clock: Clock) -> None:
    progress = open_progress(record, clock, images_per_s=None)
    assert progress.figures().images_per_s is None
    assert progress.figures().left_s is None
    number = begin(progress, record)
    clock.now_s += 10
    report(progress, record, number, 100, 0.5, goes_on=False)
    assert progress.figures().images_per_s == 10
    clock.now_s += 10
    assert progress.figures().images_per_s == 5
    clock.now_s += 20
    assert progress.figures().images_per_s == 0
    assert progress.figures().left_s is None


def test_the_time_left_goes_by_the_measured_speed_until_there_is_another(
    record: Record, clock: Clock
) -> None:
    progress = open_progress(record, clock, expected=1000)
    clock.now_s += 10
    assert progress.figures().left_s == 1000 / (2 * 10)
    number = begin(progress, record)
    clock.now_s += 20
    report(progress, record, number, 300, 0.5, goes_on=False)
    assert progress.figures().left_s == (1000 - 300) / (300 / 30)


def test_no_more_time_is_left_than_the_stage_may_take(record: Record, clock: Clock) -> None:
    progress = open_progress(record, clock, expected=1000, seconds_left=30.0)
    assert progress.figures().left_s == 30
    clock.now_s += 10
    assert progress.figures().left_s == 20
    clock.now_s += 21
    begin(progress, record)
    report(progress, record, 0, 100, 0.5, goes_on=True)
    assert progress.figures().left_s == 0


def test_a_job_keeps_its_slot_whatever_leaves_beside_it(record: Record, clock: Clock) -> None:
    progress = open_progress(record, clock)
    for _ in range(2):
        begin(progress, record)
    report(progress, record, 0, 100, 0.5, goes_on=False)
    assert [each and each.trial_number for each in progress.figures().slots] == [None, 1]
    begin(progress, record)
    assert [each and each.trial_number for each in progress.figures().slots] == [2, 1]


def test_a_report_without_a_score_is_a_failure_where_the_record_has_it_so(
    record: Record, clock: Clock
) -> None:
    progress = open_progress(record, clock)
    number = begin(progress, record)
    record.end(number, "failed", "diverged", "top1 is not a finite number")
    result = {"samples_seen": 100, "top1": None, "seconds": 1.0}
    failure = progress.report(number, result, goes_on=False)
    assert failure == Failure(0, "diverged", "top1 is not a finite number", is_final=True)
    assert progress.figures().failures == (failure,)


def test_failures_of_earlier_starts_are_there(record: Record, clock: Clock) -> None:
    for message in ("a", "b", "c", "d"):
        record.end(record.add_trial({"optim.lr": 0.1}).number, "failed", "error", message)
    shown = open_progress(record, clock).figures().failures
    assert [each.message for each in shown] == ["b", "c", "d"]
