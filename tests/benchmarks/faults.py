"""Searches whose processes are killed at random moments, beside searches that nobody disturbed.

    python tests/benchmarks/faults.py results/benchmarks/faults.json

One slot and a fixed seed, so that both must end with the same tables, winner and weights. The
driver is killed at any moment of a start and the command given again; trials and Ray's node are
killed under a search that goes on; without Ray's head it ends, and the command is given again.
After every kill what the process has started must be gone within 15 s, folders too.
"""

import argparse
import csv
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from ray.thirdparty_files import psutil

from tuner.planning.environment import git_commit, processor, versions
from tuner.settings.text import read_yaml
from tuner.study.journal import EventJournal

ARGUMENTS = (
    *("space=imagenet_small", "data.limit=400", "train.batch_size=64", "search.trials=8"),
    *("search.max_concurrent=1", "resources.cpus_per_trial=1", "search.confirm_seeds=1"),
    *("throughput.loader.num_workers=[1]", "throughput.train.accumulate_steps=[1]"),
    *("search.max_failures=1000", "search.max_restarts=1000"),
)
TIMES = ("seconds", "images_per_s")
LONGEST_START_S = 30.0  # a driver is killed within this time of its start
GONE_WITHIN_S = 15.0
KILLED_AFTER_S = {"trial": (0.1, 3.0), "raylet": (0.1, 5.0), "gcs": (0.0, 5.0)}


@dataclass
class Search:
    """One search in a folder of its own, started again and again.

    Attributes:
        kept: What of its journal must never change any more.
    """

    folder: Path
    seed: int
    kept: bytes = b""
    problems: list[str] = field(default_factory=list)

    @property
    def run(self) -> Path:
        return self.folder / "results" / "imagenet_small"

    def start(self) -> subprocess.Popen[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "tuner.search", *ARGUMENTS, f"search.seed={self.seed}"],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "stderr.txt").open("w"),
            text=True,
        )

    def finish(self) -> None:
        code = self.start().wait()
        said = (self.folder / "stderr.txt").read_text()
        assert (code, said) == (0, ""), f"exit code {code}: {said}"

    def look_at_journal(self) -> None:
        """Check that all that was recorded before is still there, and keep what is there now."""
        journal = self.run / "study.journal"
        if not journal.exists():
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / journal.name
            shutil.copy(journal, copy)
            EventJournal(copy)  # cuts off an event that is not whole
            now = copy.read_bytes()
        if not now.startswith(self.kept):
            self.problems.append("the journal lost what it had")
        self.kept = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("to", type=Path, help="the JSON file to write")
    parser.add_argument("--driver", type=int, default=100, help="kills of the driver")
    parser.add_argument("--trial", type=int, default=50, help="kills of trial processes")
    parser.add_argument("--raylet", type=int, default=20, help="kills of Ray's node manager")
    parser.add_argument("--gcs", type=int, default=5, help="kills of Ray's head process")
    asked = parser.parse_args()
    shm_before = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as two:
        world = World(Path(folder), lambda told: write(asked.to, told, shm_before))
        inside = two.submit(world.kill_inside, trial=asked.trial, raylet=asked.raylet)
        drivers = [two.submit(world.kill_starts, kind, getattr(asked, kind)) for kind in KINDS]
        for each in (inside, *drivers):
            each.result()
    write(asked.to, world.told(), shm_before)
    print(asked.to.read_text())


def write(to: Path, told: Mapping[str, Any], shm_before: set[str]) -> None:
    """Write the figures as far as searches have been compared."""
    figures = {
        "command": f"python tests/benchmarks/faults.py {to}",
        "arguments": ARGUMENTS,
        "kills": told,
        "left_in_shared_memory": sorted(set(os.listdir("/dev/shm")) - shm_before),
        "processor": processor(),
        "versions": versions(),
        "git_commit": git_commit(),
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")


KINDS = ("driver", "gcs")  # whose death ends a start


class World:
    """Searches by seed: each undisturbed one is made once, by whoever needs it first."""

    def __init__(self, folder: Path, on_compared: Callable[[Mapping[str, Any]], None]) -> None:
        self._folder = folder
        self._on_compared = on_compared
        self._lock = Lock()
        self._whole: dict[int, dict[str, Any]] = {}
        self._tallies: list[Tally] = []

    def told(self) -> dict[str, Any]:
        """Return what came of the kills so far, by kind."""
        return {tally.kind: tally.told for tally in self._tallies}

    def whole(self, seed: int) -> dict[str, Any]:
        """Return the outcome of the search that nobody disturbs."""
        with self._lock:
            if seed not in self._whole:
                search = Search(self._folder / f"whole-{seed}", seed)
                search.finish()
                self._whole[seed] = outcome(search.run)
            return self._whole[seed]

    def kill_starts(self, kind: str, num_kills: int) -> None:
        """Kill the driver, or Ray's head, start after start, until there were so many kills."""
        tally, moments = self._tally(kind), random.Random(kind)
        for search in self._searches(tally):
            while tally.num_kills < num_kills:
                process = search.start()
                if not disturb_start(process, search, kind, tally, moments):
                    break  # it was done before
            else:
                search.finish()
            self._compare(search, tally)
            if tally.num_kills >= num_kills:
                return

    def kill_inside(self, **num_kills: int) -> None:
        """Kill processes of each kind under searches that go on."""
        for kind, number in num_kills.items():
            tally, moments = self._tally(kind), random.Random(kind)
            for search in self._searches(tally):
                while disturb_inside(search, kind, number, tally, moments) != 0:
                    tally.num_ended += 1
                self._compare(search, tally)
                if tally.num_kills >= number:
                    break

    def _tally(self, kind: str) -> "Tally":
        self._tallies.append(Tally(kind))
        return self._tallies[-1]

    def _searches(self, tally: "Tally") -> Iterator[Search]:
        for seed in range(100):
            yield Search(self._folder / f"{tally.kind}-{seed}", seed)

    def _compare(self, search: Search, tally: "Tally") -> None:
        search.look_at_journal()
        whole, torn = self.whole(search.seed), outcome(search.run)
        tally.searches += 1
        tally.problems += search.problems
        tally.problems += [
            f"seed {search.seed}: {part} differs" for part in whole if whole[part] != torn[part]
        ]
        tally.tell()
        self._on_compared(self.told())


@dataclass
class Tally:
    """What came of the kills of one kind.

    Attributes:
        num_ended: Kills that ended the start too, where the search should have gone on.
        told: The figures when a search was last compared.
    """

    kind: str
    num_kills: int = 0
    num_ended: int = 0
    searches: int = 0
    gone_after_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)

    def see_gone(self, processes: list[psutil.Process], folders: list[Path]) -> None:
        """Wait until the processes and folders are gone; it is a problem if they stay."""
        started = time.monotonic()
        left: list[Any] = []
        while time.monotonic() < started + GONE_WITHIN_S:
            left = [process for process in processes if lives(process)]
            left += [folder for folder in folders if folder.exists()]
            if not left:
                break
            time.sleep(0.02)
        self.gone_after_s.append(time.monotonic() - started)
        if left:
            self.problems.append(f"left: {left}")

    def say_killed(self, search: Search) -> None:
        self.num_kills += 1
        search.look_at_journal()
        events = search.kept.count(b"\n")
        print(f"{self.kind} {self.num_kills}: killed at {events} lines of the record", flush=True)

    def tell(self) -> None:
        self.told = {
            "kills": self.num_kills,
            "searches": self.searches,
            "problems": list(self.problems),
            "kills_that_ended_the_start_too": self.num_ended,
            "all_gone_after_s_at_most": round(max(self.gone_after_s), 2),
        }


def disturb_inside(
    search: Search, kind: str, num_kills: int, tally: Tally, moments: random.Random
) -> int:
    """Kill processes of a kind under one start of a search; return its exit code."""
    process = search.start()
    while tally.num_kills < num_kills and process.poll() is None:
        time.sleep(moments.uniform(*KILLED_AFTER_S[kind]))
        if victim := found(process.pid, search, kind):
            its_own = descendants(victim)
            victim.kill()
            tally.see_gone(its_own, [])
            tally.say_killed(search)
            wait_for_another(process, search, kind, victim)
    code = process.wait()
    if code:
        print((search.folder / "stderr.txt").read_text(), flush=True)
    return code


def disturb_start(
    process: subprocess.Popen[str],
    search: Search,
    kind: str,
    tally: Tally,
    moments: random.Random,
) -> bool:
    """Kill the driver or its head at a random moment; False where the start ended before."""
    if kind == "driver":
        delay_s = moments.uniform(0, LONGEST_START_S)
    else:
        wait_for_another(process, search, kind, None)
        delay_s = moments.uniform(*KILLED_AFTER_S[kind])
    time.sleep(delay_s)
    if process.poll() is not None:
        assert process.returncode == 0
        return False
    others = descendants(psutil.Process(process.pid))
    folders = session_folders(search)
    victim = process if kind == "driver" else found(process.pid, search, kind)
    if victim is None:  # Ray is being ended
        assert process.wait() == 0
        return False
    victim.kill()
    code = process.wait()
    if code == 0:  # it was done
        return False
    if kind == "gcs":
        said = (search.folder / "stderr.txt").read_text()
        if code != 1 or not said.startswith("error: ray: its head process (gcs_server) died"):
            tally.problems.append(f"exit code {code}: {said}")
    tally.see_gone(others, folders)
    tally.say_killed(search)
    return True


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Return the processes that one and its children have started; none where it has ended."""
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def lives(process: psutil.Process) -> bool:
    """Say whether a process has not ended; one whose end nobody has heard of has."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def session_folders(search: Search) -> list[Path]:
    """Return the folders of the search's Ray that must go with it."""
    found = []
    for folder in search.run.glob(".ray-*"):
        with suppress(OSError):  # it is being made, or removed
            found += [folder, Path((folder / "short_name").read_text())]
    return found


def found(pid: int, search: Search, kind: str) -> psutil.Process | None:
    """Return the running process of a kind that belongs to a search, if there is one now."""
    try:
        if kind == "trial":
            beats = search.run.glob(".ray-*/beats/*")
            return next((psutil.Process(int(beat.read_text())) for beat in beats), None)
        name = {"raylet": "raylet", "gcs": "gcs_server"}[kind]
        children = psutil.Process(pid).children()
        return next((each for each in children if each.name() == name), None)
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None


def wait_for_another(
    process: subprocess.Popen[str], search: Search, kind: str, before: psutil.Process | None
) -> None:
    """Return when a process of the kind is there that is not the one before, or at the end."""
    while process.poll() is None:
        now = found(process.pid, search, kind)
        if now is not None and now != before:
            return
        time.sleep(0.02)


def outcome(run: Path) -> dict[str, Any]:
    """Return all that must be the same: tables without times, the winner and its weights."""
    best = read_yaml(run / "best.yaml")
    weights = (run / "best" / "model.safetensors").read_bytes()
    return {
        "leaderboard": rows(run / "leaderboard.csv"),
        "confirm_table": rows(run / "confirm.csv"),
        "winner": {"result": best["result"], "confirmed": best["confirmed"]},
        "settings": best["settings"],
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [{key: row[key] for key in row if key not in TIMES} for row in csv.DictReader(file)]


if __name__ == "__main__":
    main()
