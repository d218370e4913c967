"""Three searches over real images at equal wall time: stock Ray Tune, plain Optuna, and ours.

    python tests/benchmarks/real_search.py FOLDER results/benchmarks/search/real.json
    python tests/benchmarks/real_search.py FOLDER TO seconds=40 seeds=1

FOLDER holds the unpacked `cifar10-small/`, with `train/` and `val/`. All search the same space with
the same model and recipe, two trials side by side on one torch thread each; the two stock searches
(`stock_search.py`, `optuna_search.py`) once with stock loaders and once with this program's data
path. The time runs from the start of the command: start-up, checks and measuring are in it. TO is
written after every run, and a rerun does only the runs that it lacks. `seconds=420 seeds=3`: 15
runs, an hour and three quarters, with both cores free. `num_workers=0` loader workers were the
fastest in `stock_ray.json`.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ray  # noqa: F401  (its psutil is found only then)
from ray.thirdparty_files import psutil
from real_figures import DEFINITIONS, compare, run_figures, split
from slot_times import SLOTS, Trial, read_journal, read_reports

from tuner.files import write_json_rows
from tuner.planning.environment import git_commit, processor, versions

EPOCHS = 9
STOCK = {"ray": "stock_search.py", "optuna": "optuna_search.py"}
SYSTEMS = (
    ("tuner", "ours"),
    ("ray", "stock"),
    ("optuna", "stock"),
    ("ray", "ours"),
    ("optuna", "ours"),
)
OUR_COMMAND = (
    "space=cifar10",
    "data.source=folder",
    "data.root=IMAGES",
    f"train.epochs={EPOCHS}",
    f"search.max_concurrent={SLOTS}",
    "search.trials=1000",  # more than there is time for
    "search.time_budget_s=SECONDS",
    "search.confirm_top=0",
    "search.seed=SEED",
    "train.seed=SEED",
    "name=it",
    "output=OUTPUT",
)
STOCK_COMMAND = ("images=IMAGES", "output=OUTPUT", f"epochs={EPOCHS}", "seed=SEED")
SHOWN = {"HERE": "tests/benchmarks", "IMAGES": "FOLDER/cifar10-small"}
END_S = 30.0  # for a command to end after SIGTERM
GRACE_S = 10.0  # then for what it has started, before SIGKILL


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    system: str
    data_path: str
    seed: int

    def command(self, settings: Mapping[str, int], folders: Mapping[str, str]) -> list[str]:
        """Returns what is run after `python`, with these folders for HERE, IMAGES and OUTPUT."""
        if self.system == "tuner":
            words = ["-m", "tuner.search", *OUR_COMMAND]
        else:
            own = (f"data_path={self.data_path}", f"num_workers={settings['num_workers']}")
            words = [f"{folders['HERE']}/{STOCK[self.system]}", *STOCK_COMMAND, *own]
        values = {"SEED": str(self.seed), "SECONDS": str(settings["seconds"]), **folders}
        return [filled(word, values) for word in words]


def main() -> None:
    folder, to = Path(sys.argv[1]).absolute(), Path(sys.argv[2])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else a search would stay
    settings = {"seconds": 420, "seeds": 3, "num_workers": 0}
    for each in sys.argv[3:]:
        key, value = each.split("=")
        assert key in settings, f"{key}: no such key; {', '.join(settings)}"
        settings[key] = int(value)
    runs = read_runs(to, settings)
    cases = [Case(*system, seed) for seed in range(settings["seeds"]) for system in SYSTEMS]
    missing = [case for case in cases if not is_there(case, runs)]
    print(f"{len(cases)} runs, {len(cases) - len(missing)} of them there", flush=True)
    write(to, settings, runs)
    for number, case in enumerate(missing):
        minutes = (len(missing) - number) * (settings["seconds"] + 10) / 60
        name = f"{case.system}, {case.data_path} data path, seed {case.seed}"
        line = f"run {number + 1} of {len(missing)} ({name}), about {minutes:.0f} min left"
        print(line, flush=True)
        try:
            runs.append(run_case(case, folder / "cifar10-small", settings))
        except KeyboardInterrupt:
            sys.exit(130)
        write(to, settings, runs)
        print(f"  {json.dumps({**runs[-1], 'command': None, 'curve': None})}", flush=True)
    print(json.dumps(figures_of(runs, settings["seconds"]), indent=2))


def read_runs(to: Path, settings: Mapping[str, int]) -> list[dict[str, Any]]:
    """Returns the runs that a file has.

    Raises:
        SystemExit: They were made with other settings.
    """
    if not to.exists():
        return []
    there = json.loads(to.read_text())
    for key in ("seconds", "num_workers"):
        if there["settings"][key] != settings[key]:
            sys.exit(f"{to}: {key} is {there['settings'][key]} there; write to another file")
    return there["runs"]


def is_there(case: Case, runs: Sequence[Mapping[str, Any]]) -> bool:
    return any(asdict(case).items() <= run.items() for run in runs)


def run_case(case: Case, images: Path, settings: Mapping[str, int]) -> dict[str, Any]:
    """Runs one search for its time; returns its figures."""
    seconds = settings["seconds"]
    with tempfile.TemporaryDirectory() as output:
        own = {"HERE": str(Path(__file__).parent), "IMAGES": str(images), "OUTPUT": output}
        command = [sys.executable, *case.command(settings, own)]
        began = run_for(command, seconds, Path(output) / "log.txt")
        trials = read_trials(case, Path(output))
    shown = case.command(settings, SHOWN)
    histories = [(trial.reports, trial.is_complete) for trial in trials]
    return {
        **asdict(case),
        "command": " ".join(["python", *shown]),
        "git_commit": git_commit(),
        **run_figures(histories, began, seconds),
    }


def filled(word: str, values: Mapping[str, str]) -> str:
    """Returns `key=NAME` with the value of that name; other words as they are."""
    key, _, value = word.partition("=")
    return f"{key}={values[value]}" if value in values else word


def read_trials(case: Case, output: Path) -> list[Trial]:
    if case.system != "tuner":
        return read_reports(output / "reports", EPOCHS)
    journal = output / "it" / "study.journal"
    return read_journal(journal) if journal.exists() else []  # too little time to begin


def run_for(command: Sequence[str], seconds: float, log: Path) -> float:
    """Runs a command for so long and ends all that it has started; returns its start, Unix seconds.

    One that finds no time for another rung may end a little before.

    Raises:
        SystemExit: It failed.
    """
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
    with log.open("wb") as file:
        began = time.time()
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=environment, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return began
        finally:
            end(process)
    if process.returncode == 0:
        return began
    print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
    sys.exit(f"{' '.join(command)}: failed, {process.returncode}")


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the command, all that it has started, and waits until they are gone."""
    family = list(family_of(process.pid))
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)  # it ends the rest, which Ray starts in groups of their own
    _, left = psutil.wait_procs(family, timeout=GRACE_S)
    for each in left:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()
    _, left = psutil.wait_procs(left, timeout=GRACE_S)
    assert not left, left


def family_of(pid: int) -> "Iterator[psutil.Process]":
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        yield from (process, *process.children(recursive=True))


def figures_of(runs: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    comparisons = {path: compare(runs, path, seconds) for path in ("stock", "ours")}
    return {"comparisons": comparisons, "split": split(runs, seconds)}


def write(to: Path, settings: Mapping[str, int], runs: Sequence[Mapping[str, Any]]) -> None:
    shown = "TO" if to.is_absolute() else to
    given = " ".join(f"{key}={value}" for key, value in settings.items())
    to.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "command": f"python tests/benchmarks/real_search.py FOLDER {shown} {given}",
        "machine": {"processor": processor(), "system": platform.platform(), "slots": SLOTS},
        "versions": versions(),
        "git_commit": git_commit(),
        "settings": {**settings, "epochs": EPOCHS},
        **figures_of(runs, settings["seconds"]),
        "runs": list(runs),
        "definitions": DEFINITIONS,
    }
    write_json_rows(to, figures)


if __name__ == "__main__":
    main()
