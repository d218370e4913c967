"""A rate that diverges costs a few steps, is counted apart, and wins nothing."""

import csv
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tests.integration.conftest import begin, train
from tuner.stages.hand_over import hand_over
from tuner.stages.tables import write_leaderboard

pytestmark = pytest.mark.usefixtures("nothing_kept")

DIVERGING = (
    *("space=tiny.yaml", "data.root=images", "model.name=lenet", "train.epochs=4"),
    *("parameters.optim.lr=[1e-3, 1e8]", "search.trials=6", "search.confirm_top=0"),
)


@pytest.mark.parametrize("metric", ["top1", "validation_loss"])
def test_a_rate_that_diverges_ends_its_trial_before_the_first_rung_and_is_never_the_best(
    here: Path, space_file: Path, metric: str
) -> None:
    course, data, record = begin(*DIVERGING, f"search.metric={metric}")
    train(course, data, record)
    diverged = [trial for trial in record.trials if trial.settings["optim.lr"] == 1e8]
    assert 0 < len(diverged) < 6
    for trial in diverged:
        assert (trial.state, trial.reason, trial.reports) == ("failed", "diverged", ())
    others = [trial for trial in record.trials if trial not in diverged]
    assert all(trial.state in ("complete", "stopped") for trial in others)
    assert record.ranked()[-len(diverged) :] == diverged
    assert hand_over(course, data, record, None).trial.settings["optim.lr"] == 1e-3

    write_leaderboard(course, record)
    folder = course.search.folder
    with (folder / "leaderboard.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["reason"] for row in rows] == [""] * len(others) + ["diverged"] * len(diverged)
    journal = folder / "study.journal"
    assert not {"NaN", "Infinity"} & set(journal.read_text().replace(":", " ").split())
    study = optuna.load_study(
        study_name=course.search.name, storage=JournalStorage(JournalFileBackend(str(journal)))
    )
    failed = {trial.number for trial in study.trials if trial.state == TrialState.FAIL}
    assert failed == {trial.number for trial in diverged}
    assert study.best_trial.params["optim.lr"] == 1e-3
