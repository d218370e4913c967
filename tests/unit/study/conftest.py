"""A record on disk, and what plain Optuna sees of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

from tuner.settings.space import ChoiceSpec, FloatSpec, ParameterSpec
from tuner.study.record import JOURNAL_NAME, Record

SPACE: Mapping[str, ParameterSpec] = {
    "optim.lr": FloatSpec(1e-3, 1.0, log=True),
    "train.batch_size": ChoiceSpec((32, 64)),
}
SETTINGS = {"optim.lr": 0.1, "train.batch_size": 64}


def open_record(folder: Path, **changes: Any) -> Record:
    asked: dict[str, Any] = {
        "name": "small",
        "metric": "top1",
        "direction": "maximize",
        "parameters": SPACE,
        "data_fingerprint": "f00d",
        "settings_plain": {"train.epochs": 9},
    }
    folder.mkdir(exist_ok=True)
    return Record.open(folder, **{**asked, **changes})


def plain_trials(folder: Path, name: str = "small") -> list[FrozenTrial]:
    """What anyone sees who opens the journal with Optuna alone."""
    storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL_NAME)))
    return optuna.load_study(study_name=name, storage=storage).trials
