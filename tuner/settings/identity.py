"""Which settings a run may change when it goes on, and which make it another run."""

import json
from collections.abc import Mapping
from typing import Any

from tuner.settings.config import Config, flatten

# Speed, room, patience, and where things lie: none of them changes a result. What the images
# are is told by their fingerprint, wherever the folder.
FREE_KEYS = (
    "data.root",
    "data.train_labels",
    "data.validation_labels",
    "data.download",
    "data.cache",
    "data.decoder",
    "data.on_bad_image",
    "loader.",
    "resources.",
    "search.trials",
    "search.time_budget_s",
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
        else f"{key} was {_shown(before, key)} and is now {_shown(now, key)}"
        for key in {**before, **now}
        if before.get(key) != now.get(key)
    ]


def _shown(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key], ensure_ascii=False) if key in values else "absent"
