"""Looks at the search in a folder without touching it."""

from pathlib import Path

from optuna.storages import JournalStorage

from tuner.errors import StudyError
from tuner.settings.space import parse_spec
from tuner.study.identity import oldest_study
from tuner.study.journal import JournalView
from tuner.study.record import JOURNAL_NAME, Record


def read_record(run_folder: Path) -> Record:
    """The record of the search in a folder as it stands, for reading alone.

    A search may be running there: nothing is written, repaired or locked.

    Raises:
        StudyError: There is no search, or its journal is damaged.
    """
    path = run_folder / JOURNAL_NAME
    try:
        return _read(path)
    except OSError as error:
        raise StudyError(
            f"{path}: cannot be read ({error.strerror}); give the folder of a search"
        ) from error
    except (ValueError, TypeError, LookupError) as error:
        raise StudyError(
            f"{path}: damaged ({error!r}); give the folder of another search"
        ) from error


def _read(path: Path) -> Record:
    view = JournalView(path)
    storage = JournalStorage(view)
    name, attributes = oldest_study(storage) or ("", {})
    if "identity" not in attributes:
        raise StudyError(f"{path}: holds no search; give the folder of one that was begun")
    identity = attributes["identity"]
    parameters = {key: parse_spec(key, plain) for key, plain in identity["parameters"].items()}
    return Record(storage, view, path.parent, name, identity, parameters)
