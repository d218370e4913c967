"""What a trial's process does with a job: train it on from its checkpoint, result by result."""

import os
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tuner.assemble import open_run
from tuner.data.prepare import PreparedData, load_prepared
from tuner.reading import ClosableSource, build_loader
from tuner.settings.config import Config
from tuner.training.feed import BatchSource

BEAT_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class TrialContext:
    """What all jobs of a search share, as values that travel between processes.

    Args:
        run_folder: Folder of the search.
        images_root: Folder that the image paths are relative to.
        config_json: The settings of the space; a job's own go over them.
        threads: Torch threads of each trial.
        decoded_root: Folder of the caches where images are decoded; None where they are not.
        stage: "search", or "confirm", whose runs are numbered apart.
        device_bytes: What decoded images may take of the GPU.
    """

    run_folder: str
    images_root: str
    config_json: str
    threads: int
    decoded_root: str | None
    stage: str = "search"
    device_bytes: int = 0

    def open_loader(self, config: Config, data: PreparedData) -> ClosableSource:
        """Returns a loader of these images for these settings."""
        root = Path(self.decoded_root) if self.decoded_root else None
        return build_loader(config, data, root, device_bytes=self.device_bytes)


def checkpoint_folder(run_folder: Path, stage: str, number: int) -> Path:
    """Returns where the checkpoints of a trial lie, or of a confirm run."""
    return run_folder / {"search": "trials", "confirm": "confirm"}[stage] / f"{number:04d}"


def run_job(
    job: Mapping[str, Any], context: Mapping[str, Any]
) -> Generator[dict[str, Any], None, None]:
    """Trains one job and yields its results as plain values, touching its beat file meanwhile.

    A result has the fields of an `EpochResult`, the `device` and `threads` it was trained with and,
    to tell where a slot's time goes, `worker_pid`, `started_at` and `reported_at` (Unix seconds:
    this job's first line, this result) and `setup_s` (seconds from that line to `fit`). What it has
    to say of checkpoints passed over or gone is in `message`.
    """
    started_at = time.time()
    shared = TrialContext(**context)
    torch.set_num_threads(shared.threads)
    config = Config.from_json(shared.config_json).with_overrides(job["settings"])
    data, loader = KEPT.get(shared, config)
    said: list[str] = []
    folder = checkpoint_folder(Path(shared.run_folder), shared.stage, job["trial_number"])
    run = open_run(config, data, loader, folder, on_damaged=said.append)
    if not said:
        said.append(run.what_is_lost(job["start_samples"]))
    stamps = {
        "worker_pid": os.getpid(),
        "device": run.state.device.type,
        "threads": shared.threads,
        "started_at": started_at,
        "setup_s": time.time() - started_at,
    }
    # A process killed between a checkpoint and its report left a report that nobody has heard.
    unheard = [each for each in run.state.history if each["samples_seen"] > job["start_samples"]]
    beating = BeatingLoader(loader, Path(job["beat_path"]))
    with closing(run.results(job["until_samples"], beating)) as results:
        for report in chain(unheard, (result.to_plain() for result in results)):
            message = "; ".join(filter(None, [*said, report["message"]]))
            said.clear()
            yield report | stamps | {"message": message, "reported_at": time.time()}


class BeatingLoader:
    """A loader that touches a file, once a second at most, when it is asked for a batch.

    Training and evaluation ask for one when the one before is done: they get on.
    """

    def __init__(self, loader: BatchSource, beat_path: Path) -> None:
        self._loader = loader
        self._beat_path = beat_path
        self._beat_at = -BEAT_EVERY_S

    def batches(
        self, split: str, positions: Iterable[NDArray[np.int64]]
    ) -> Generator[torch.Tensor, None, None]:
        """Yields what the loader does."""
        with closing(self._loader.batches(split, positions)) as batches:
            for batch in batches:
                yield batch
                self._beat()

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._beat_at >= BEAT_EVERY_S:
            self._beat_path.touch()
            self._beat_at = now


class KeptData:
    """The images and the loader of the last job: a process serves one job after another."""

    def __init__(self) -> None:
        self._key: tuple[Any, ...] = ()
        self._kept: tuple[PreparedData, ClosableSource] | None = None

    def get(self, shared: TrialContext, config: Config) -> tuple[PreparedData, ClosableSource]:
        """Returns those of the last job where this one's are the same, else new ones."""
        key = (shared, config.data, config.loader, config.augment.crop)
        if self._kept is None or self._key != key:
            self.close()
            dataset_json = Path(shared.run_folder) / "dataset.json"
            data = load_prepared(dataset_json, Path(shared.images_root))
            loader = shared.open_loader(config, data)
            self._key, self._kept = key, (data, loader)
        return self._kept

    def close(self) -> None:
        """Ends the loader."""
        if self._kept is not None:
            self._kept[1].close()
        self._kept = None


KEPT = KeptData()
