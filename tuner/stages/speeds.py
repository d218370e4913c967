"""Measured speeds: kept in the run, and remembered for this machine and this data set."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tuner.errors import RunError
from tuner.files import write_json, write_text
from tuner.handover import describe_code
from tuner.planning.environment import processor, versions
from tuner.planning.machine import Machine
from tuner.planning.resources import Plan
from tuner.settings.space import spec_to_plain
from tuner.stages.opening import Search
from tuner.stages.work import largest_step


@dataclass(frozen=True, slots=True)
class Speeds:
    """What the measure stage has found.

    Attributes:
        pinned: The throughput settings that all trials get.
        images_per_s: Of one trial beside the others.
        gpus_per_trial: The share that trains most images/s; None where it was not searched.
        data_fingerprint: Of the images.
        is_decoded: Whether the images came decoded from the cache.
        limit: What to speed up first, as `what_limits` says; nothing where it was not measured.
        measured_on: The day, as 2026-11-30.
        table: The text of `throughput.csv`.
    """

    pinned: dict[str, Any]
    images_per_s: float
    gpus_per_trial: float | None
    data_fingerprint: str
    is_decoded: bool
    limit: str
    measured_on: str
    table: str


def recall(search: Search, plan: Plan, machine: Machine) -> Speeds | None:
    """Returns what was measured for such a search on such a machine; None where nothing is known.

    The images may have changed since: their fingerprint tells.
    """
    return read_speeds(memory_path(search, plan, machine))


def remember(search: Search, plan: Plan, machine: Machine, speeds: Speeds) -> None:
    """Keeps what was measured for the next search of this kind.

    Raises:
        RunError: The cache cannot be written.
    """
    path = memory_path(search, plan, machine)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path.parent}: cannot be written ({error.strerror})") from error
    write_json(path, asdict(speeds))


def speeds_of_run(run_folder: Path) -> Speeds | None:
    """Returns what the search in this folder has pinned; None where nothing is."""
    return read_speeds(run_folder / "throughput.json")


def keep_in_run(run_folder: Path, speeds: Speeds) -> None:
    """Writes what a search pins into its folder: what it begins with it ends with."""
    write_text(run_folder / "throughput.csv", speeds.table)
    write_json(run_folder / "throughput.json", asdict(speeds))


def read_speeds(path: Path) -> Speeds | None:
    """Returns what the file holds; None where it is missing or damaged."""
    try:
        return TypeAdapter(Speeds).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def memory_path(search: Search, plan: Plan, machine: Machine) -> Path:
    """Returns the file for all that the speed depends on but the content of the images."""
    known = json.dumps(what_decides(search, plan, machine), sort_keys=True)
    return search.cache_root / "throughput" / f"{sha256(known.encode()).hexdigest()[:16]}.json"


def what_decides(search: Search, plan: Plan, machine: Machine) -> Mapping[str, Any]:
    """Returns what the speed of a trial depends on, as plain values."""
    config = largest_step(search)
    return {
        "processor": processor(),
        "versions": versions(),
        "machine": {
            "cpus": machine.cpus,
            "gpus": [(gpu.name, gpu.memory_bytes) for gpu in machine.gpus],
        },
        "plan": asdict(plan),
        "gpus_per_trial": config.resources.gpus_per_trial,
        "data": config.data.model_dump(exclude={"cache_root", "test_root"}),
        "augment": config.augment.model_dump(),
        "loader": config.loader.model_dump(),
        "model": config.model.model_dump(exclude={"weights"}),
        "model_code": describe_code(config.model.name),
        "train": config.train.model_dump(include={"batch_size", "accumulate_steps", "precision"}),
        "optim": config.optim.name,
        "throughput": {key: spec_to_plain(spec) for key, spec in search.space.throughput.items()},
    }
