"""A process killed with SIGKILL two hundred times while it saves one checkpoint after another.

    python tests/benchmarks/checkpoint_kills.py results/benchmarks/checkpoint_kills.json

Each process goes on from the newest checkpoint and announces every save that has returned, which is
to say that is durable. The moments are random; the checkpoints lie beside the result, so that their
fsyncs are those of a disk. After each kill the newest one must load, whole, and be the last that
was announced or the one after it; and the next save must leave no more files than a run may have.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from tuner.assemble import build_state
from tuner.planning.environment import git_commit, processor, versions
from tuner.settings.load import load_space
from tuner.training.checkpoint import CheckpointFolder

KILLS = 200
LONGEST_LIFE_IN_SAVES = 20
BEST_EVERY = 10  # a report is the best so far: its checkpoint is kept
MOST_FILES = 3  # the newest two and the best


def main() -> None:
    to = Path(sys.argv[1])
    torch.set_num_threads(1)  # a fork has none of the others
    payload = build_state(load_space("imagenet_small", []).config, 10).to_plain()
    moments = random.Random(0)
    damaged: list[str] = []
    counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=to.parent) as name:
        folder = CheckpointFolder(Path(name), damaged.append)
        save_s = time_of_a_save(folder, payload)
        while counts["kills"] < KILLS:
            announced = save_and_be_killed(
                folder, payload, moments.uniform(0, LONGEST_LIFE_IN_SAVES * save_s)
            )
            counts["kills"] += 1
            check(folder, payload, announced, counts)
            if counts["kills"] % 20 == 0:
                print(dict(counts), flush=True)
        file_bytes = max(path.stat().st_size for path in Path(name).iterdir())
    assert not damaged, damaged
    figures = {
        "command": f"python tests/benchmarks/checkpoint_kills.py {to}",
        **counts,
        "damaged": len(damaged),
        "checkpoint_bytes": file_bytes,
        "ms_per_save": round(1000 * save_s, 1),
        "seconds": round(time.monotonic() - started, 1),
        "processor": processor(),
        "versions": versions(),
        "git_commit": git_commit(),
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


def time_of_a_save(folder: CheckpointFolder, payload: dict[str, Any]) -> float:
    """Seconds of one save, the best of three."""
    times = []
    for number in (1, 2, 3):
        begun = time.perf_counter()
        save(folder, payload, number)
        times.append(time.perf_counter() - begun)
    return min(times)


def save(folder: CheckpointFolder, payload: dict[str, Any], number: int) -> None:
    keep = {number - number % BEST_EVERY} - {0}
    folder.save({**payload, "samples_seen": number}, number, keep=keep)


def save_and_be_killed(folder: CheckpointFolder, payload: dict[str, Any], life_s: float) -> int:
    """Let a process save from the newest checkpoint on, kill it, and return its last announced."""
    found = folder.newest()
    assert found is not None
    number, announcing = found[0], os.pipe()
    child = os.fork()
    if child == 0:
        while True:
            number += 1
            save(folder, payload, number)
            os.write(announcing[1], number.to_bytes(8, "big"))
    os.close(announcing[1])
    time.sleep(life_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open(announcing[0], "rb") as heard:
        told = heard.read()
    return int.from_bytes(told[-8:], "big") if told else number


def check(
    folder: CheckpointFolder, payload: dict[str, Any], announced: int, counts: Counter[str]
) -> None:
    """Check what a kill has left, count it, and check that the next save tidies up."""
    counts["temporary_left"] += bool(list(folder.folder.glob(".*.tmp")))
    found = folder.newest()
    assert found is not None, "none loads"
    newest, loaded = found
    assert newest - announced in (0, 1), (newest, announced)
    assert loaded["samples_seen"] == newest
    assert all(torch.equal(loaded["model"][key], payload["model"][key]) for key in payload["model"])
    counts["newest_is_the_last_announced"] += newest == announced
    counts["newest_is_one_more"] += newest == announced + 1
    save(folder, payload, newest + 1)
    names = os.listdir(folder.folder)
    assert len(names) <= MOST_FILES, names
    assert folder.saved()[-1] == newest + 1
    counts["saves"] = newest + 1
    counts["most_files_after_the_next_save"] = max(
        counts["most_files_after_the_next_save"], len(names)
    )


COUNTED = (
    "kills",
    "saves",
    "newest_is_the_last_announced",
    "newest_is_one_more",
    "temporary_left",
    "most_files_after_the_next_save",
)


if __name__ == "__main__":
    main()
