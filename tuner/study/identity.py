"""What a search is made for: metric, direction, data, space and settings that must not change."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import JournalStorage
from optuna.study import StudyDirection

from tuner.errors import StudyError
from tuner.settings.identity import describe_changes
from tuner.settings.wording import shown_path
from tuner.study.journal import EventJournal, JournalView

# For who looks at the study with a tool that knows nothing of this program.
UNITS = {
    "step": "training images seen",
    "samples_seen": "training images",
    "top1": "fraction of 1",
    "top5": "fraction of 1",
    "balanced_top1": "fraction of 1, the mean over classes",
    "validation_loss": "nats",
    "train_loss": "nats",
    "seconds": "s",
    "images_per_s": "training images a second",
    "peak_memory_bytes": "bytes",
}


def check_name(storage: JournalStorage, name: str, run_folder: Path) -> None:
    """Checks that the journal is empty or holds the search of that name, its oldest study.

    Raises:
        StudyError: It holds another search: the folder was renamed.
    """
    held, _ = oldest_study(storage) or (name, {})
    if held != name:
        raise StudyError(
            f"{run_folder}: holds the search {held!r}, not {name!r}; "
            f"call the folder {held!r} again, or use another name=…"
        )


def oldest_study(storage: JournalStorage) -> tuple[str, Mapping[str, Any]] | None:
    """Name and attributes of the search itself: the study after it is of its confirm runs."""
    studies = storage.get_all_studies()
    if not studies:
        return None
    study = min(studies, key=lambda study: study._study_id)
    return study.study_name, study.user_attrs


def find_study(
    storage: JournalStorage,
    name: str,
    identity: Mapping[str, Any],
    run_folder: Path,
    data_changes: str,
) -> int | None:
    """The study's number in the journal, or None where it has not begun.

    `data_changes` tells how the images differ, where their fingerprint does.

    Raises:
        StudyError: One line for each difference between `identity` and what it was made for, and
            one that says what to do.
    """
    studies = {study.study_name: study for study in storage.get_all_studies()}
    if name not in studies:
        return None
    study = studies[name]
    if "identity" not in study.user_attrs:  # killed between the two appends of its beginning
        storage.delete_study(study._study_id)
        return None
    before = _flat(study.user_attrs["identity"])
    now = _flat(json.loads(json.dumps(identity)))
    if before["metric"] != now["metric"]:
        del before["direction"], now["direction"]  # it follows
    if changes := describe_changes(before, now, data_changes):
        is_comparable = before["metric"] == now["metric"]
        raise StudyError(
            *(f"{run_folder}: {change}" for change in changes),
            _another_search(run_folder, is_comparable=is_comparable),
        )
    return study._study_id


def begin_study(
    storage: JournalStorage,
    journal: EventJournal | JournalView,
    name: str,
    identity: Mapping[str, Any],
    points: Mapping[str, Any] | None,
) -> int:
    """The number of a new study, its metric named and its units said for Optuna's own tools.

    The settings that it begins with are kept with it, where there are any.
    """
    direction = StudyDirection[identity["direction"].upper()]
    study_id = storage.create_new_study([direction], name)
    study = optuna.load_study(study_name=name, storage=storage)
    with journal.event():
        with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
            study.set_metric_names([identity["metric"]])
        storage.set_study_user_attr(study_id, "units", UNITS)
        if points is not None:
            storage.set_study_user_attr(study_id, "points", points)
        storage.set_study_user_attr(study_id, "identity", identity)
    return study_id


def _another_search(run_folder: Path, *, is_comparable: bool) -> str:
    """What to do about a search that cannot go on; scores of another metric choose no points."""
    if not is_comparable:
        return "change it back, or begin a new search: resume=never"
    return (
        "change it back, or begin a new search from the best of this one: "
        f"resume=never search.points={shown_path(run_folder)}"
    )


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    """By key; a key that is searched now and was fixed before, or the reverse, differs once."""
    plain = {key: value for key, value in identity.items() if not isinstance(value, dict)}
    return {**plain, **identity["parameters"], **identity["settings"]}
