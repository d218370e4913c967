"""How much the settings of the default space matter on the generated images, at full length.

python tests/benchmarks/settings_matter.py results/benchmarks/settings_matter.json
"""

import json
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import torch

from tuner.assemble import open_run
from tuner.images import prepare_images
from tuner.planning.environment import git_commit, processor, versions
from tuner.reading import build_loader
from tuner.settings.load import load_space

SETTINGS = {
    "defaults": [],
    "lr 0.1, batch 64": ["optim.lr=0.1", "train.batch_size=64"],
    "lr 0.05, batch 32": ["optim.lr=0.05", "train.batch_size=32"],
    "lr 0.3, batch 128": ["optim.lr=0.3", "train.batch_size=128"],
    "lr 1, batch 256": ["optim.lr=1", "train.batch_size=256"],
    "lr 0.01, batch 128": ["optim.lr=0.01", "train.batch_size=128"],
    "lr 0.001, batch 256": ["optim.lr=0.001", "train.batch_size=256"],
}


def main() -> None:
    to = Path(sys.argv[1])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        top1 = {
            name: best_top1(overrides, Path(folder), str(number))
            for number, (name, overrides) in enumerate(SETTINGS.items())
        }
    figures = {
        "command": f"python tests/benchmarks/settings_matter.py {to}",
        "space": "imagenet_small",
        "best_top1": top1,
        "points_between_best_and_worst": round(100 * (max(top1.values()) - min(top1.values())), 1),
        "processor": processor(),
        "versions": versions(),
        "git_commit": git_commit(),
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(top1, indent=2))


def best_top1(overrides: list[str], folder: Path, name: str) -> float:
    config = load_space("imagenet_small", overrides).config
    data = prepare_images(
        config,
        folder / ".cache",
        report_path=folder / "dataset.json",
        num_processes=2,
        progress=lambda done, total: None,
    )
    with closing(build_loader(config, data, folder)) as loader:
        run = open_run(config, data, loader, folder / name, on_damaged=print)
        with closing(run.results(run.total_samples)) as results:
            return max(result.top1 for result in results)


if __name__ == "__main__":
    main()
