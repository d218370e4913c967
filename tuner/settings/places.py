"""Files and folders that a command is given: found, or refused before anything heavy is loaded."""

import os
from pathlib import Path

from tuner.errors import SettingsError
from tuner.settings.wording import shown

MODEL_FILES = ("model.safetensors", "classes.json", "preprocess.json", "best.yaml")
WHAT_TO_GIVE = "give best/ of a search, the output of a retrain, or an export"


def find_model_folder(key: str, text: str) -> Path:
    """The model folder that is meant, absolute: the folder itself, or `best/` in a search's.

    Raises:
        SettingsError: There is no such folder, or it is no model folder.
    """
    folder = Path(text).absolute()
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise SettingsError(f"{key}: {shown(text)} {what}; {WHAT_TO_GIVE}")
    # A search has a best.yaml of its own beside best/.
    found = folder / "best" if (folder / "best").is_dir() else folder
    if lacking := [name for name in MODEL_FILES if not (found / name).is_file()]:
        raise SettingsError(
            f"{key}: {shown(text)} is no model folder ({', '.join(lacking)} missing); "
            f"{WHAT_TO_GIVE}"
        )
    return found


def new_file(key: str, text: str) -> Path:
    """The file that is to be written, absolute; its folder is made.

    Raises:
        SettingsError: A folder is there, or nothing can be written.
    """
    path = Path(text).absolute()
    if path.is_dir():
        raise SettingsError(f"{key}: {shown(text)} is a folder; give the file to write")
    _make_folder(key, path.parent)
    return path


def new_folder(key: str, text: str) -> Path:
    """The folder that is to be made, absolute; the folder around it is made.

    Raises:
        SettingsError: Something is there, or nothing can be written.
    """
    path = Path(text).absolute()
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise SettingsError(f"{key}: {shown(text)} is there already; remove it or give another")
    _make_folder(key, path.parent)
    return path


def _make_folder(key: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"{key}: {folder} cannot be made ({error.strerror}); give another place"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"{key}: nothing can be written in {folder}; give another place")
