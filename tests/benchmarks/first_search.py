"""Searches over real images, and what each winner gives when it is trained again.

    python tests/benchmarks/first_search.py FOLDER results/benchmarks/first_search.json

FOLDER holds the unpacked `cifar10-small/` and `imagenette-small/`, each with `train/` and `val/`.
Slot times come from the reports in the journals (`slot_times.py`).
"""

import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slot_times import DEFINITIONS, SLOTS, read_journal, slot_times

from tuner.planning.environment import git_commit, processor, versions

FILES = (
    "best.yaml",
    "best/model.safetensors",
    "best/classes.json",
    "best/preprocess.json",
    "best/best.yaml",
    "leaderboard.csv",
    "config.yaml",
    "dataset.json",
    "study.journal",
)
RUNS = {
    "cifar10-small": ["space=cifar10", "data.source=folder"],
    "imagenette-small": ["space=imagenet_small", "data.source=folder"],
}


def main() -> None:
    folder, to = Path(sys.argv[1]).absolute(), Path(sys.argv[2])
    figures = {
        "command": "python tests/benchmarks/first_search.py FOLDER " + str(to),
        "machine": {"processor": processor(), "system": platform.platform(), "slots": SLOTS},
        "versions": versions(),
        "git_commit": git_commit(),
        "searches": {
            name: measure(folder / name, [*arguments, f"data.root=FOLDER/{name}"])
            for name, arguments in RUNS.items()
        },
        "definitions": DEFINITIONS,
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")


def measure(images: Path, arguments: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as output:
        settings = [*arguments, "search.trials=12", f"search.max_concurrent={SLOTS}"]
        own = [each.replace("FOLDER", str(images.parent)) for each in settings]
        started = time.time()
        run("tuner.search", *own, "name=it", f"output={output}")
        seconds = time.time() - started
        search = Path(output) / "it"
        missing = [name for name in FILES if not (search / name).is_file()]
        assert not missing, missing
        retrained = run("tuner.retrain", f"config={search / 'best.yaml'}").splitlines()[-1]
        best = json.loads((search / "retrain" / "summary.json").read_text())["result"]
        return {
            "command": shown_command(settings),
            "seconds": round(seconds, 1),
            **slot_times(read_journal(search / "study.journal")),
            "best_top1": best["top1"],
            "retrain": retrained,
        }


def shown_command(settings: list[str]) -> str:
    return " ".join(["python -m tuner.search", *settings])


def run(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    print(done.stdout, flush=True)
    return done.stdout


if __name__ == "__main__":
    main()
