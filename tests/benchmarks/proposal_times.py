"""What one proposal costs, after histories of several lengths.

    python tests/benchmarks/proposal_times.py results/benchmarks/proposal_times.json

The histories are those of successive halving over a space of every kind: a third of the trials at
each next rung, some failed, some too large, four running. Times are of one thread, and the least
and the median of the repeats: the machine's own noise adds to them.
"""

import argparse
import json
import math
import os
import platform
import time
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np

from tuner.search_logic.cube import Settings, settings_key
from tuner.search_logic.history import Observation
from tuner.search_logic.rung_data import Lengths
from tuner.search_logic.sampling import Sampler, cube_of, propose
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec

LENGTHS = (1000, 3000, 9000)
SPACE = {
    "optim.lr": FloatSpec(1e-4, 1.0, log=True),
    "optim.weight_decay": FloatSpec(1e-5, 1e-2, log=True),
    "train.batch_size": ChoiceSpec((32, 64, 128, 256)),
    "optim.name": ChoiceSpec(("sgd", "adam", "adamw")),
    "optim.momentum": FloatSpec(0.5, 0.99, when=(("optim.name", "sgd"),)),
    "model.depth": IntSpec(1, 5),
    "model.width": IntSpec(16, 512, log=True),
}


def score(settings: Settings) -> float:
    best = -((math.log10(settings["optim.lr"]) + 1.5) ** 2)
    return best - 0.2 * (settings["optim.name"] == "adamw") + math.log2(settings["model.width"]) / 9


def history_of(num_trials: int) -> list[Observation]:
    cube = cube_of(SPACE)
    rng = np.random.default_rng(num_trials)
    trials = [cube.settings_at(rng.random(len(SPACE))) for _ in range(num_trials)]
    ranked = sorted(range(num_trials), key=lambda i: -score(trials[i]))
    places = {number: place for place, number in enumerate(ranked)}

    def seen(number: int) -> Observation:
        if number >= num_trials - 4:
            return Observation(trials[number], state="running")
        if number % 20 in (7, 9):
            return Observation(trials[number], state="failed" if number % 20 == 7 else "infeasible")
        reached = [each for k, each in enumerate(LENGTHS) if places[number] * 3**k < num_trials]
        noise = 0.02 * rng.standard_normal()
        return Observation(
            trials[number], {each: score(trials[number]) - 500 / each + noise for each in reached}
        )

    return [seen(number) for number in range(num_trials)]


def measure(sampler: Sampler, num_trials: int, repeats: int) -> dict[str, Any]:
    history = history_of(num_trials)
    tried = {settings_key(seen.settings) for seen in history}
    seconds = []
    for seed in range(repeats):
        before = time.perf_counter()
        propose(
            SPACE,
            history,
            sampler=sampler,
            seed=seed,
            trial_number=num_trials,
            tried=tried,
            lengths=Lengths(LENGTHS[0], LENGTHS[-1]),
        )
        seconds.append(time.perf_counter() - before)
    return {
        "sampler": sampler,
        "trials": num_trials,
        "least_ms": round(1000 * min(seconds), 2),
        "median_ms": round(1000 * median(seconds), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("to", type=Path, help="the JSON file to write")
    parser.add_argument("--sampler", choices=get_args(Sampler), default="rung_gp")
    parser.add_argument("--trials", type=int, nargs="+", default=[10, 30, 100, 300, 1000, 3000])
    parser.add_argument("--repeats", type=int, default=50)
    arguments = parser.parse_args()
    figures = {
        "command": f"python tests/benchmarks/proposal_times.py {arguments.to}",
        "proposals": [
            measure(arguments.sampler, num_trials, arguments.repeats)
            for num_trials in arguments.trials
        ],
        "repeats": arguments.repeats,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    arguments.to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
