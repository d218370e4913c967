"""Which settings a run may change when it goes on, and which make it another run."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import SettingsError
from tuner.files import file_sha256
from tuner.settings.config import Config, flatten

WEIGHTS_KEY = "model.weights_sha256"
BINDING_NAME = "run.json"  # what a retraining must keep, in its output

# Speed, room, patience, and where things lie: none of them changes a result. What the images
# are is told by their fingerprint, wherever the folder; and so it is with first weights.
FREE_KEYS = (
    "data.root",
    "data.train_labels",
    "data.validation_labels",
    "data.mining_labels",
    "data.test_root",
    "data.download",
    "data.cache",
    "data.decoder",
    "data.on_bad_image",
    "model.weights",
    "loader.",
    "resources.",
    "search.trials",
    "search.time_budget_s",
    "search.patience",
    "search.max_concurrent",
    "search.max_failures",
    "search.max_restarts",
    "search.stall_timeout_s",
    "search.points",
    "search.keep_best",
    "search.confirm_",
)


def binding_settings(config: Config) -> dict[str, Any]:
    """Returns the settings, by dotted key, that a run once begun must keep."""
    return {key: value for key, value in flatten(config).items() if not key.startswith(FREE_KEYS)}


def weights_sha256(path: str | None) -> str | None:
    """Returns the SHA-256 of a file of first weights; None where there is none.

    Raises:
        SettingsError: It cannot be read.
    """
    if path is None:
        return None
    try:
        return file_sha256(Path(path))
    except OSError as error:
        raise SettingsError(
            f"model.weights: {path}: cannot be read ({error.strerror}); "
            "give a safetensors file or a state dict, or null"
        ) from error


def first_weights_sha256(config: Config, output: Path) -> str | None:
    """Returns the SHA-256 of the file of first weights; None without one.

    Of a file that is gone it is what the run in `output` was begun with: it may have checkpoints.

    Raises:
        SettingsError: The file cannot be read, and no run goes on that has used it.
    """
    recorded: str | None = None
    path, begun = config.model.weights, output / BINDING_NAME
    if is_gone(path) and begun.exists():
        recorded = json.loads(begun.read_text("utf-8")).get(WEIGHTS_KEY)
    return recorded or weights_sha256(path)


def is_gone(path: str | None) -> bool:
    """Says whether a file is named that is not there."""
    return path is not None and not os.path.exists(path)


def binding_weights(contents: Sequence[str | None]) -> dict[str, Any]:
    """Returns what the files of first weights add to that; nothing where there are none.

    Args:
        contents: The SHA-256 of each file that `model.weights` may name; None for null.
    """
    if not any(contents):
        return {}
    return {WEIGHTS_KEY: contents[0] if len(contents) == 1 else list(contents)}


def describe_changes(
    before: Mapping[str, Any], now: Mapping[str, Any], data_changes: str = ""
) -> list[str]:
    """Returns `key was x and is now y` for every plain value that differs.

    Of images, whose fingerprints say nothing to people, it returns `data_changes`.
    """
    others = f"the images are others: {data_changes}" if data_changes else "the images are others"
    return [
        others
        if key == "data_fingerprint"
        else f"model.weights was {_content(before)} and is now {_content(now)}"
        if key == WEIGHTS_KEY
        else f"{key} was {_shown(before, key)} and is now {_shown(now, key)}"
        for key in {**before, **now}
        if before.get(key) != now.get(key)
    ]


def _content(values: Mapping[str, Any]) -> str:
    of_files = values.get(WEIGHTS_KEY)
    texts = [
        f"a file of SHA-256 {each[:12]}…" if each else "null"
        for each in (of_files if isinstance(of_files, list) else [of_files])
    ]
    return " or ".join(dict.fromkeys(texts))


def _shown(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key], ensure_ascii=False) if key in values else "absent"
