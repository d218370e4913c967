"""What makes settings wrong beyond one value's own bounds: unknown names and conflicts."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf, isclose
from pathlib import PurePath
from typing import Any

from pydantic.fields import FieldInfo

from tuner.errors import did_you_mean
from tuner.settings.wording import allowed, is_text, listed, shown

LATER_KEYS = {
    "data.use": "the hand-over on all images",
    "mining.score": "mining by other scores",
    "mining.noise_guard": "suspect labels",
    "resources.address": "clusters",
}
LATER_ABOVE = {
    "resources.gpus_per_trial": (1, "a trial on several GPUs"),
}
# As torchvision names its weights, alone or behind their class.
WEIGHTS_NAME = re.compile(r"(\w+_Weights\.)?(DEFAULT|[A-Z][A-Z0-9]*(_[A-Z0-9]+)*_V\d+)")
# As YAML writes what is no text: in quotes it looks right and is not.
NO_TEXT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|true|false|null")
LARGEST_SEED = 2**31 - 1  # numpy takes 32 bits, torch's CPU generator no sign


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: the keys it stands on and the line that tells it."""

    keys: tuple[str, ...]
    line: str


def unknown_key(key: str, known: Iterable[str]) -> str:
    """The line for a key that is no setting: what it waits for, or the nearest one."""
    if key in LATER_KEYS:
        return f"{key}: not available yet (comes with {LATER_KEYS[key]}); remove it"
    known = list(known)
    near = did_you_mean(key, known)
    same_name = tuple(name for name in known if name.split(".")[-1] == key.split(".")[-1])
    if same_name and not near:
        near = f"; did you mean {listed(same_name)}?"
    return f"{shown(key)}: no such setting{near or '; --help lists them all'}"


def wrong_value(key: str, field: FieldInfo, value: Any) -> str:
    """The line for a value that its key does not take: why, and what it takes."""
    reason, words = "not allowed", allowed(field)
    limit, feature = LATER_ABOVE.get(key, (inf, ""))
    if isinstance(value, int | float) and value > limit:
        reason = f"{feature} comes with a later version"
    if is_text(field) and value is not None and not isinstance(value, str):
        words = f"{words} (in quotes where it looks like something else)"
    elif isinstance(value, str) and NO_TEXT.fullmatch(value) and not is_text(field):
        words = f"{words}, without quotes"
    return f"{key}: {reason} ({shown(value)}); use {words}"


def find_conflicts(possible: Mapping[str, Sequence[Any]]) -> list[Problem]:
    """The rules between settings that some combination of the possible values breaks.

    Args:
        possible: For each dotted key the values it may have, one where it is fixed. A rule
            whose keys are not all given is not asked.
    """
    found = []
    for keys, rule in RULES.items():
        combinations = product(*(possible.get(key, ()) for key in keys))
        line = next((line for values in combinations if (line := rule(*values))), None)
        if line:
            found.append(Problem(keys, line))
    return found


def unused_by_source(values: Mapping[str, Any], source: Any) -> dict[str, Any]:
    """Those of the values by key that only another `data.source` has a use for."""
    rules = {keys[0]: rule for keys, rule in RULES.items() if keys[1:] == ("data.source",)}
    given = {key: value for key, value in values.items() if key in rules and value}
    return {key: value for key, value in given.items() if rules[key](value, source)}


def grace_epochs(asked: float | str, epochs: int) -> float:
    """`search.grace_epochs` in epochs: ``auto`` is a seventeenth of the run, at least one."""
    return max(1, round(epochs / 17)) if isinstance(asked, str) else asked


def _grace_within_run(grace: float | str, epochs: int) -> str | None:
    if grace_epochs(grace, epochs) <= epochs:
        return None
    return f"search.grace_epochs: {grace} is above train.epochs ({epochs}); use at most {epochs}"


def _reports_meet_rungs(report: float | None, grace: float | str, epochs: int) -> str | None:
    if report is None:
        return None
    if report > epochs:
        return (
            f"train.report_epochs: {report} is above train.epochs ({epochs}); use at most {epochs}"
        )
    length = grace_epochs(grace, epochs)
    if isclose(round(length / report) * report, length):
        return None
    return (
        f"train.report_epochs: {report} does not divide search.grace_epochs ({length}); "
        f"use {length} or {length} divided by a whole number"
    )


def _slices_within_batch(accumulate: int | str, batch: int) -> str | None:
    if isinstance(accumulate, str) or accumulate <= batch:
        return None
    return (
        f"train.accumulate_steps: {accumulate} is above train.batch_size ({batch}); "
        f"use at most {batch}"
    )


def _seeds_within_range(seed: int, num_seeds: int) -> str | None:
    largest = LARGEST_SEED - num_seeds
    if seed <= largest:
        return None
    return (
        f"train.seed: {seed} leaves no room for {num_seeds} confirm seeds above it; "
        f"use at most {largest}"
    )


def _mining_ends_after_start(start: float, end: float) -> str | None:
    if start < end:
        return None
    return (
        f"mining.end_fraction: {end} is not above mining.start_fraction ({start}); "
        f"use more than {start}"
    )


def _root_with_source(root: str | None, source: str) -> str | None:
    if source != "generated" and root is None:
        return f"data.root: missing (null); data.source={source} needs a folder, data.root=FOLDER"
    if source == "generated" and root is not None:
        return (
            f"data.root: not used by data.source=generated ({shown(root)}); "
            "add data.source=folder or data.root=null"
        )
    return None


def _labels_with_source(key: str, labels: str | None, source: str) -> str | None:
    if labels is None or source in ("csv", "list"):
        return None
    return (
        f"{key}: not used by data.source={source} ({shown(labels)}); "
        f"add data.source=csv or data.source=list, or {key}=null"
    )


def _dataset_with_source(dataset: str | None, source: str) -> str | None:
    if source == "torchvision" and dataset is None:
        return (
            "data.dataset: missing (null); "
            "data.source=torchvision needs the name of a set, data.dataset=CIFAR10"
        )
    if source != "torchvision" and dataset is not None:
        return (
            f"data.dataset: not used by data.source={source} ({shown(dataset)}); "
            "add data.source=torchvision or data.dataset=null"
        )
    return None


def _download_with_source(download: bool, source: str) -> str | None:
    if not download or source == "torchvision":
        return None
    return (
        f"data.download: not used by data.source={source} (true); "
        "add data.source=torchvision or data.download=false"
    )


def _weights_in_a_file(weights: str | None) -> str | None:
    name = PurePath(weights or "").name
    if not WEIGHTS_NAME.fullmatch(name):
        return None
    return (
        f"model.weights: weights by name are not downloaded ({shown(name)}); "
        "use the path of a safetensors file or a state dict"
    )


RULES: Mapping[tuple[str, ...], Callable[..., str | None]] = {
    ("search.grace_epochs", "train.epochs"): _grace_within_run,
    ("train.report_epochs", "search.grace_epochs", "train.epochs"): _reports_meet_rungs,
    ("train.accumulate_steps", "train.batch_size"): _slices_within_batch,
    ("train.seed", "search.confirm_seeds"): _seeds_within_range,
    ("mining.start_fraction", "mining.end_fraction"): _mining_ends_after_start,
    ("data.root", "data.source"): _root_with_source,
    **{
        (key, "data.source"): partial(_labels_with_source, key)
        for key in ("data.train_labels", "data.validation_labels")
    },
    ("data.dataset", "data.source"): _dataset_with_source,
    ("data.download", "data.source"): _download_with_source,
    ("model.weights",): _weights_in_a_file,
}
