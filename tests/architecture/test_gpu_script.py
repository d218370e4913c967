"""The script for a GPU runs where little is installed, and says where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What a machine with a GPU need not have: importing any of these is an error here.
PROGRAM = """
import runpy, sys

forbidden = ("ray", "optuna", "pydantic", "pytest", "hypothesis", "safetensors", "rich")
sys.modules.update(dict.fromkeys(forbidden))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_script(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Return what the script does on a machine without a GPU."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT / "tests/gpu/run.py"), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    done = run_script(tmp_path, "results/gpu.json")
    assert (done.returncode, done.stdout) == (
        0,
        "there is no CUDA device here: nothing was checked, and nothing written\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_what_a_cpu_tries_is_no_result(tmp_path: Path) -> None:
    to = str(ROOT / "results/benchmarks/tried.json")
    done = run_script(tmp_path, to, "device=cpu")
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"{to}: a CPU has no figures for results/; give another path\n",
    )
