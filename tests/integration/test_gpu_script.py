"""The script for a GPU, as far as a CPU gets: it keeps up with what it checks."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_cpu_tries_every_check_and_figure(tmp_path: Path) -> None:
    to = tmp_path / "tried.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/gpu/run.py"), str(to), "device=cpu"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("tiny sizes on a CPU, to try the script: nothing below is")
    written = json.loads(to.read_text(encoding="utf-8"))
    assert written["is_complete"]
    assert (len(written["checks"]), len(written["figures"])) == (8, 3)
    for part in written["checks"] + written["figures"]:
        assert part["error"] is None
        assert part["findings"]
        assert part["title"] in done.stdout
