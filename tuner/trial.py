"""What a trial's process does with a job: train it on from its checkpoint, result by result."""

import os
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tuner.assemble import build_loader, open_run
from tuner.data.loader import Loader
from tuner.data.prepare import PreparedData, load_prepared
from tuner.settings.config import Config

# A process serves one job after another: its images and loader workers stay from job to job.
KEPT: dict[tuple[Any, ...], tuple[PreparedData, Loader]] = {}


@dataclass(frozen=True, slots=True)
class TrialContext:
    """What all jobs of a search share, as values that travel between processes.

    Args:
        run_folder: Folder of the search.
        images_root: Folder that the image paths are relative to.
        config_json: The settings of the space; a job's own go over them.
        threads: Torch threads of each trial.
    """

    run_folder: str
    images_root: str
    config_json: str
    threads: int


def trial_folder(run_folder: Path, trial_number: int) -> Path:
    """Returns where the checkpoints of a trial lie."""
    return run_folder / "trials" / f"{trial_number:04d}"


def run_job(
    job: Mapping[str, Any], context: Mapping[str, Any]
) -> Generator[dict[str, Any], None, None]:
    """Trains one job and yields its results as plain values.

    A result has the fields of an `EpochResult` and, to tell where a slot's time goes,
    `worker_pid`, `started_at` and `reported_at` (Unix seconds: this job's first line, this result)
    and `setup_s` (seconds from the first line to the first step).
    """
    started_at = time.time()
    shared = TrialContext(**context)
    torch.set_num_threads(shared.threads)
    config = Config.from_json(shared.config_json).with_overrides(job["settings"])
    data, loader = kept_data(shared, config)
    damaged: list[str] = []
    folder = trial_folder(Path(shared.run_folder), job["trial_number"])
    run = open_run(config, data, loader, folder, on_damaged=damaged.append)
    stamps = {
        "worker_pid": os.getpid(),
        "device": run.state.device.type,
        "started_at": started_at,
        "setup_s": time.time() - started_at,
    }
    # A process killed between a checkpoint and its report left a report that nobody has heard.
    for report in [*run.state.history]:
        if report["samples_seen"] > job["start_samples"]:
            yield report | stamps | {"reported_at": time.time()}
    with closing(run.results(job["until_samples"])) as results:
        for result in results:
            plain = result.to_plain()
            plain["message"] = "; ".join(filter(None, [*damaged, plain["message"]]))
            damaged.clear()
            yield plain | stamps | {"reported_at": time.time()}


def kept_data(shared: TrialContext, config: Config) -> tuple[PreparedData, Loader]:
    """Returns the images and the loader of an earlier job where they are the same, or new ones."""
    key = (shared, config.data, config.loader, config.augment.crop)
    if key not in KEPT:
        for _, loader in KEPT.values():
            loader.close()
        KEPT.clear()
        dataset_json = Path(shared.run_folder) / "dataset.json"
        data = load_prepared(dataset_json, Path(shared.images_root))
        KEPT[key] = (data, build_loader(config, data))
    return KEPT[key]
