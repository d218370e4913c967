"""The clock by which searches are compared: slots, starts, time, and what is seen when."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mode

import pytest

from tests.benchmarks.search import deepobs
from tests.benchmarks.search.algorithms import Algorithm, find_algorithm
from tests.benchmarks.search.ours import SAMPLES_PER_EPOCH, Choice, TunerSearch, parse_choice
from tests.benchmarks.search.peers_simple import OneEpochTopK, RandomSearch
from tests.benchmarks.search.play import play
from tests.benchmarks.search.results import Case, Setting, Store, cases
from tests.benchmarks.search.simulate import Run, Search, Setup, Stint, simulate
from tests.benchmarks.search.tasks import Curve, Reference, Settings, Task
from tuner.search_logic.sampling import START_UP_TRIALS
from tuner.settings.space import ChoiceSpec, FloatSpec, ParameterSpec
from tuner.study.record import JOURNAL_NAME

PACE_S = 2.0
START_S = 0.5


class Straight(Task):
    """Nine epochs of two seconds; the score grows evenly up to `height`, best at 0.3."""

    def __init__(self) -> None:
        specs: dict[str, ParameterSpec] = {
            "height": FloatSpec(0.0, 1.0),
            "pace": ChoiceSpec((1, 2)),
        }
        super().__init__("straight", specs, num_epochs=9)

    def reference(self) -> Reference:
        return Reference(best=1.0, median=0.5, floor=0.0, full_s=9 * PACE_S)

    def _look_up(self, settings: Settings) -> Curve:
        epochs = range(1, self.num_epochs + 1)
        height = 1 - abs(settings["height"] - 0.3)
        return Curve(
            [settings["pace"] * epoch * PACE_S / 2 for epoch in epochs],
            [height * epoch / self.num_epochs for epoch in epochs],
        )


class Script:
    """Plays stints in their order, and remembers what happened when."""

    def __init__(self, stints: Sequence[Stint | None], stops: Sequence[tuple[int, int]] = ()):
        self._stints = list(stints)
        self._stops = stops
        self.begun: list[tuple[object, float]] = []
        self.told: list[tuple[object, int, float]] = []
        self.seconds: list[float] = []
        self.ended: list[tuple[object, int, float]] = []

    def next(self, now: float) -> Stint | None:
        stint = self._stints.pop(0) if self._stints else None
        if stint is not None:
            self.begun.append((stint.trial, now))
        return stint

    def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
        self.told.append((stint.trial, epoch, now))
        self.seconds.append(seconds)
        return (stint.trial, epoch) in self._stops

    def end(self, stint: Stint, epoch: int, now: float) -> None:
        self.ended.append((stint.trial, epoch, now))


def stint(trial: int, start: int, stop: int, *, height: float = 0.3, every: int = 1) -> Stint:
    return Stint(trial, {"height": height, "pace": 2}, start, stop, every)


def played(search: Search, *, slots: int = 1, budget_s: float = 100.0) -> Run:
    return simulate(Straight(), search, slots=slots, budget_s=budget_s, start_s=START_S)


def setup(folder: Path, *, slots: int = 1, seed: int = 3, budget_s: float = 180.0) -> Setup:
    task = Straight()
    return Setup(task.specs, task.num_epochs, slots, seed, budget_s, folder)


def test_a_score_falls_due_after_the_start_and_its_epochs() -> None:
    script = Script([stint(0, 0, 3)])
    played(script)
    assert script.told == [(0, 1, 2.5), (0, 2, 4.5), (0, 3, 6.5)]
    assert script.seconds == [2.0, 2.0, 2.0]
    assert script.ended == [(0, 3, 6.5)]


def test_a_trial_that_goes_on_pays_its_start_again_and_not_its_epochs() -> None:
    script = Script([stint(0, 0, 2), stint(0, 2, 3)])
    run = played(script)
    assert script.begun == [(0, 0.0), (0, 4.5)]
    assert script.told[-1] == (0, 3, 7.0)
    assert (run.trials, run.stints, run.epochs, run.full_trainings) == (1, 2, 3, 0)


def test_a_stint_that_is_stopped_gives_its_slot_to_the_next_at_once() -> None:
    script = Script([stint(0, 0, 9), stint(1, 0, 1)], stops=[(0, 2)])
    played(script)
    assert script.ended == [(0, 2, 4.5), (1, 1, 7.0)]
    assert script.begun[1] == (1, 4.5)


def test_the_slots_run_side_by_side_and_no_more_than_there_are() -> None:
    script = Script([stint(0, 0, 2), stint(1, 0, 1), stint(2, 0, 1), stint(3, 0, 1)])
    played(script, slots=2)
    assert script.begun == [(0, 0.0), (1, 0.0), (2, 2.5), (3, 4.5)]


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_a_search_that_always_has_work_keeps_every_slot_busy(slots: int, tmp_path: Path) -> None:
    run = played(RandomSearch(setup(tmp_path)), slots=slots)
    assert run.busy_share == pytest.approx(1)
    assert run.stints >= 100 * slots / (9 * PACE_S + START_S)


def test_an_idle_slot_is_asked_again_when_something_happens_in_another() -> None:
    script = Script([stint(0, 0, 2), None, stint(1, 0, 1)])
    run = played(script, slots=2, budget_s=10)
    assert script.begun == [(0, 0.0), (1, 2.5)]
    assert run.busy_share == pytest.approx((4.5 + 2.5) / 20)


def test_a_score_counts_until_the_time_is_over_and_not_after() -> None:
    for budget_s, num_told in ((4.4, 1), (4.5, 2), (4.6, 2)):
        script = Script([stint(0, 0, 9)])
        run = played(script, budget_s=budget_s)
        assert len(script.told) == num_told
        assert run.busy_share == pytest.approx(1)


def test_scores_between_two_reports_are_not_seen() -> None:
    script = Script([stint(0, 0, 8, every=3)])
    run = played(script)
    assert script.told == [(0, 3, 6.5), (0, 6, 12.5), (0, 8, 16.5)]
    assert script.seconds == [6.0, 6.0, 4.0]
    assert run.epochs == 8


def test_the_trial_with_the_best_score_seen_is_judged_by_its_score_at_full_length() -> None:
    stints = [stint(0, 0, 2, height=0.3), stint(1, 0, 1, height=0.4), stint(2, 0, 4, height=0.8)]
    run = played(Script(stints))
    shares, scores = zip(*run.seen, strict=True)
    assert shares == (0.025, 0.045)
    assert scores == pytest.approx((1 / 9, 2 / 9))
    assert run.handed_over == [(0.025, 1.0)]


def test_one_epoch_top_k_trains_in_full_the_best_of_those_it_tried(tmp_path: Path) -> None:
    told: list[tuple[object, int, float]] = []

    class Watched(OneEpochTopK):
        def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
            told.append((stint.trial, epoch, score))
            return super().tell(stint, epoch, score, seconds, now)

    played(Watched(setup(tmp_path, budget_s=100.0), share=0.25))
    first = {trial: score for trial, epoch, score in told if epoch == 1}
    full = [trial for trial, epoch, _ in told if epoch == 9]
    assert len(first) > 8
    assert full == sorted(first, key=lambda trial: -first[trial])[: len(full)]


@pytest.mark.parametrize("name", ["tuner-auto", "tuner-random+stopping"])
def test_two_runs_of_a_seed_are_equal_and_two_seeds_are_not(name: str, tmp_path: Path) -> None:
    runs = []
    for number, seed in enumerate((3, 3, 4)):
        folder = tmp_path / str(number)
        folder.mkdir()
        search = TunerSearch(setup(folder, seed=seed), parse_choice(name))
        run = played(search, budget_s=90.0)
        assert run.trials > START_UP_TRIALS  # the model has its say
        runs.append((run.seen, run.stints, [(t.settings, t.reports) for t in search.record.trials]))
    assert runs[0] == runs[1]
    assert runs[0][2] != runs[2][2]


def test_our_search_is_the_real_one_with_its_journal(tmp_path: Path) -> None:
    search = TunerSearch(setup(tmp_path, slots=2), Choice(sampler="random", grace_epochs=2))
    run = played(search, slots=2)
    assert run.trials == len(search.record.trials) > 20
    assert run.stints > run.trials  # some were promoted later
    assert mode(trial.samples_seen for trial in search.record.trials) == 2 * SAMPLES_PER_EPOCH
    assert run.full_trainings == sum(t.state == "complete" for t in search.record.trials) > 0
    reports = sum(len(trial.reports) for trial in search.record.trials)
    assert reports == run.epochs
    journal = (tmp_path / JOURNAL_NAME).read_text()
    assert journal.count('"report:') == reports


def test_a_name_says_how_our_search_is_set() -> None:
    assert parse_choice("tuner-tpe+stopping+grace2+report3") == Choice(
        "tpe", "asha_stopping", grace_epochs=2, report_epochs=3
    )
    with pytest.raises(ValueError, match=r"^tuner-best: no such sampler \(best\); use one of "):
        parse_choice("tuner-best")
    with pytest.raises(ValueError, match=r"^tuner-qmc\+fast: no such option \(fast\); use one of "):
        parse_choice("tuner-qmc+fast")


def test_what_is_in_the_store_is_not_played_again(tmp_path: Path) -> None:
    runs = [
        {"optimizer": "sgd", "lr": 10.0**-power, "seed": 42, "test_acc": [0, 0.1 * power, 0.5]}
        for power in range(1, 5)
    ]
    (tmp_path / "deepobs").mkdir()
    (tmp_path / "deepobs" / f"{deepobs.TASKS[0]}.json").write_text(json.dumps(runs))
    store = Store(tmp_path / "store")
    every = list(cases(Setting(2, 3), ["random", "tuner-random"], deepobs.TASKS[:1], 2))
    assert [(case.algorithm.partition("@")[0], case.seed) for case in every] == [
        ("random", 0),
        ("tuner-random", 0),
        ("random", 1),
        ("tuner-random", 1),
    ]
    for case in every[:3]:
        assert play(case, tmp_path, store).error is None
    assert [case for case in every if not store.path(case).exists()] == every[3:]
    assert store.best_seen(deepobs.TASKS[0]) == pytest.approx(0.5, abs=0.1)


def test_a_result_is_of_the_code_it_depends_on_whatever_its_comments(tmp_path: Path) -> None:
    source = tmp_path / "it.py"
    versions = []
    for text in ("a = 1", "a  =  1  # one", "a = 2"):
        source.write_text(text)
        versions.append(Algorithm("it", RandomSearch, [str(source)]).code_version())
    assert versions[0] == versions[1] != versions[2]
    source.write_text("a = 1")
    assert Algorithm("it", RandomSearch, [str(tmp_path)]).code_version() == versions[0]
    assert (
        find_algorithm("tuner-random").code_version() == find_algorithm("tuner-qmc").code_version()
    )


def test_the_best_of_a_task_is_found_without_any_search(tmp_path: Path) -> None:
    assert 1 - 5e-5 < Store(tmp_path).optimum(Straight()) <= 1


def test_a_failed_search_is_told_with_its_traceback(tmp_path: Path) -> None:
    case = Case(Setting(2, 3), "random@0", deepobs.TASKS[0], 0)
    error = play(case, tmp_path, Store(tmp_path)).error
    assert error is not None
    assert "FileNotFoundError" in error
