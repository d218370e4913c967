"""Folders that are made once, whole or not at all, for whoever asks."""

import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from tuner.errors import DataError


def ensure_folder(folder: Path, write: Callable[[Path], None]) -> Path:
    """Return `folder`, made by `write` under another name where it is not there.

    Several processes may ask at once; one writes, the others wait.

    Raises:
        DataError: Nothing can be written there.
    """
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                unfinished = folder.with_name(f"{folder.name}.unfinished")
                shutil.rmtree(unfinished, ignore_errors=True)
                write(unfinished)
                unfinished.rename(folder)
    except OSError as error:
        raise DataError(
            f"data.cache_root: cannot write to {folder.parent} ({error.strerror}); "
            "use another folder"
        ) from error
    return folder
