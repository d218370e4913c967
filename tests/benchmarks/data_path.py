"""Images to a training step: decoded cache, loader and first batch, each beside what it replaces.

    python tests/benchmarks/data_path.py FOLDER results/benchmarks/data_path.json

FOLDER holds the unpacked `cifar10-small/` and `imagenette-small/`. What is compared runs in turns,
so that a machine that slows down favours nobody. About ten minutes on two cores.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from tuner.assemble import build_recipe, build_state, open_run
from tuner.data.prepare import PreparedData
from tuner.images import prepare_images
from tuner.planning.environment import git_commit, processor, versions
from tuner.probe import HeldBatches
from tuner.reading import ClosableSource, build_loader, decode_images
from tuner.settings.config import Config
from tuner.settings.load import load_space
from tuner.training.feed import BatchSource
from tuner.training.speed import time_steps
from tuner.trial import KeptData, TrialContext

SPACES = {"cifar10-small": "cifar10", "imagenette-small": "imagenet_small"}
CACHES = ("none", "decoded")
SIZES_PX = (64, 160, 224)
TURNS = 5
WINDOW_S = 4.0
BATCH_SIZE = 128
WORKERS = (0, 1, 2, 4)


def main() -> None:
    folder, to = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    figures: dict[str, Any] = {
        "command": f"python tests/benchmarks/data_path.py FOLDER {to}",
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "versions": versions(),
        "git_commit": git_commit(),
    }
    import ray

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    parts = {
        "first_batch_in_a_ray_actor": [
            partial(first_batches, folder, name, cache) for name in SPACES for cache in CACHES
        ],
        "cache_beside_jpeg_per_core": [partial(cache_beside_jpeg, folder, px) for px in SIZES_PX],
        "training_beside_synthetic": [
            partial(training_beside_synthetic, folder, n) for n in SPACES
        ],
        "data_wait_of_a_trial": [partial(data_wait_share, folder, name) for name in SPACES],
        "jpeg_loader_beside_stock": [partial(jpeg_beside_stock, folder, name) for name in SPACES],
    }
    for name, measurements in parts.items():
        figures[name] = []
        for measure in measurements:
            figures[name].append(measure())
            print(name, json.dumps(figures[name][-1]), flush=True)
            to.write_text(json.dumps(figures, indent=2) + "\n")
        ray.shutdown()


def config_of(folder: Path, name: str, **overrides: Any) -> Config:
    images = ["data.source=folder", f"data.root={folder / name}"]
    return load_space(SPACES[name], images).config.with_overrides(overrides)


class Prepared:
    """A data set with a cache of its own, gone with the object's `with`."""

    def __init__(self, config: Config) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.root = Path(self._folder.name)
        self.data: PreparedData = prepare_images(
            config,
            self.root,
            report_path=self.root / "dataset.json",
            num_processes=2,
            progress=lambda done, total: None,
        )

    def decode(self, config: Config) -> None:
        decode_images(
            config,
            self.data,
            self.root,
            memory_bytes=2**40,
            num_processes=2,
            progress=lambda done, total: None,
        )

    def loader(self, config: Config, cache: str) -> ClosableSource:
        root = None if cache == "none" else self.root
        return build_loader(config.with_overrides({"data.cache": cache}), self.data, root)

    def loading_rate(self, config: Config, cache: str) -> float:
        """Return images per second of loading alone."""
        with closing(self.loader(config, cache)) as loader:
            wanted = requests(len(self.data.train))
            with closing(loader.batches("train", wanted)) as batches:
                return rate(batches)

    def __enter__(self) -> "Prepared":
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def requests(num_images: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    while True:
        yield rng.integers(0, num_images, BATCH_SIZE)


def rate(batches: Iterable[torch.Tensor], seconds: float = WINDOW_S) -> float:
    """Return images per second between the first batch and the last within the time."""
    iterator = iter(batches)
    next(iterator)
    num_images, started = 0, time.perf_counter()
    for batch in iterator:
        num_images += len(batch)
        if time.perf_counter() - started >= seconds:
            break
    return num_images / (time.perf_counter() - started)


def in_turns(contenders: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Return the median of each over `TURNS` turns, every other one backwards."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(TURNS):
        names = list(contenders) if turn % 2 == 0 else list(contenders)[::-1]
        for name in names:
            found[name].append(contenders[name]())
    return {name: round(statistics.median(each), 1) for name, each in found.items()}


def cache_beside_jpeg(folder: Path, size_px: int) -> dict[str, Any]:
    """One thread, no worker: images read decoded, and decoded from their JPEGs."""
    config = config_of(folder, "imagenette-small", **{"data.image_size": size_px})
    with Prepared(config) as prepared:
        prepared.decode(config)
        speeds = in_turns(
            {
                "jpeg": lambda: prepared.loading_rate(config, "none"),
                "cache": lambda: prepared.loading_rate(config, "decoded"),
            }
        )
    return {"size_px": size_px, "images_per_s": speeds, "ratio": ratio(speeds, "cache", "jpeg")}


class StockDataset(Dataset):
    """What most people write with OpenCV."""

    def __init__(self, paths: list[str], size_px: int) -> None:
        self._paths = paths
        self._size_px = size_px

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, position: int) -> torch.Tensor:
        image = cv2.imread(self._paths[position], cv2.IMREAD_COLOR_RGB)
        height, width, _ = image.shape
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        square = image[top : top + side, left : left + side]
        size = (self._size_px, self._size_px)
        return torch.from_numpy(cv2.resize(square, size, interpolation=cv2.INTER_AREA))


def jpeg_beside_stock(folder: Path, name: str) -> dict[str, Any]:
    """Loading alone, each at its best number of workers."""
    config = config_of(folder, name)
    with Prepared(config) as prepared:
        index = prepared.data.train
        paths = [str(index.absolute(position)) for position in range(len(index))]

        def ours(num_workers: int) -> float:
            with_workers = config.with_overrides({"loader.num_workers": num_workers})
            return prepared.loading_rate(with_workers, "none")

        def stock(num_workers: int) -> float:
            cv2.setNumThreads(0)
            loader = DataLoader(
                StockDataset(paths, config.data.image_size),
                batch_sampler=[each.tolist() for each in islice(requests(len(paths)), 4000)],
                num_workers=num_workers,
            )
            return rate(loader)

        speeds = in_turns(
            {
                f"{who.__name__} {num_workers}": partial(who, num_workers)
                for num_workers in WORKERS
                for who in (ours, stock)
            }
        )
    best = {
        who: max(speed for key, speed in speeds.items() if key.startswith(who))
        for who in ("ours", "stock")
    }
    return {"set": name, "images_per_s": speeds, "ratio": ratio(best, "ours", "stock")}


def training_beside_synthetic(folder: Path, name: str) -> dict[str, Any]:
    """Whole training steps with the cache, and with one batch that is given again and again."""
    config = config_of(folder, name)
    with Prepared(config) as prepared:
        prepared.decode(config)
        train = prepared.data.train
        state = build_state(config, len(train.classes))
        recipe = build_recipe(config, len(train))

        def speed(source: BatchSource) -> float:
            found = time_steps(state, loader=source, train=train, recipe=recipe, seconds=WINDOW_S)
            return found.images_per_s

        with closing(prepared.loader(config, "decoded")) as loader:
            held = HeldBatches(loader)
            speeds = in_turns({"cache": lambda: speed(loader), "synthetic": lambda: speed(held)})
    return {"set": name, "images_per_s": speeds, "ratio": ratio(speeds, "cache", "synthetic")}


def data_wait_share(folder: Path, name: str) -> dict[str, Any]:
    """One epoch of a trial with default settings: what it waits for images."""
    config = config_of(folder, name, **{"train.epochs": 1})
    with Prepared(config) as prepared:
        prepared.decode(config)
        with closing(prepared.loader(config, "auto")) as loader:
            place = prepared.root / "checkpoints"
            run = open_run(config, prepared.data, loader, place, on_damaged=print)
            with closing(run.results(run.total_samples)) as results:
                (result,) = results
    share = result.data_wait_s / (result.train_s + result.data_wait_s)
    return {"set": name, "data_wait_share": round(share, 5)}


def first_batches(folder: Path, name: str, cache: str) -> dict[str, Any]:
    """Seconds in a Ray actor, once torch is there, to the first batch of its jobs."""
    import ray

    config = config_of(folder, name, **{"loader.num_workers": 2, "data.cache": cache})
    with Prepared(config) as prepared:
        prepared.decode(config)
        root = str(prepared.root)
        decoded_root = None if cache == "none" else root
        context = asdict(
            TrialContext(root, str(config.data.root), config.to_json(), 1, decoded_root)
        )
        actor = ray.remote(num_cpus=1)(FirstBatches).remote(context)
        seconds = ray.get([actor.first_batch_s.remote() for _ in range(3)])
        ray.kill(actor)
    return {"set": name, "cache": cache, "seconds_of_jobs": [round(each, 4) for each in seconds]}


class FirstBatches:
    """What a trial's process does before its first step, job after job."""

    def __init__(self, context: dict[str, Any]) -> None:
        self._shared = TrialContext(**context)
        self._config = Config.from_json(self._shared.config_json)
        self._kept = KeptData()

    def first_batch_s(self) -> float:
        started = time.perf_counter()
        data, loader = self._kept.get(self._shared, self._config)
        with closing(loader.batches("train", requests(len(data.train)))) as batches:
            next(batches)
        return time.perf_counter() - started


def ratio(speeds: Mapping[str, float], one: str, other: str) -> float:
    return round(speeds[one] / speeds[other], 3)


if __name__ == "__main__":
    main()
