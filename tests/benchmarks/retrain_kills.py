"""A retraining killed with SIGKILL thirty times at random moments beside one that was not.

    python tests/benchmarks/retrain_kills.py results/benchmarks/retrain_kills.json

Moments are drawn from the whole life of the process: start-up, checking, steps, evaluation, saves.
A checkpoint is written every 0.2 s, so that most runs go on from the middle of an epoch.
"""

import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tuner.planning.environment import git_commit, processor, versions

KILLS = 30
LONGEST_LIFE_S = 9.0
PROGRAM = """
import sys
import tuner.assemble
from tuner import cli, retrain
tuner.assemble.CHECKPOINT_EVERY_S = 0.2
sys.exit(cli.run("retrain", retrain.RetrainKeys, retrain.main))
"""
ARGUMENTS = ("space=imagenet_small", "train.epochs=100")


def main() -> None:
    to = Path(sys.argv[1])
    moments = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        whole, torn = Path(folder) / "whole", Path(folder) / "torn"
        start(whole, folder).wait()
        kills = []
        while len(kills) < KILLS:
            process = start(torn, folder)
            time.sleep(moments.uniform(0, LONGEST_LIFE_S))
            assert process.poll() is None, "it ended before it was killed: take more epochs"
            process.kill()
            process.wait()
            kills.append(samples_saved(torn))
            print(f"kill {len(kills)}: newest checkpoint at {kills[-1]} images", flush=True)
        assert start(torn, folder).wait() == 0
        digests = {name: weights_sha256(Path(folder) / name) for name in ("whole", "torn")}
    figures = {
        "command": f"python tests/benchmarks/retrain_kills.py {to}",
        "arguments": ARGUMENTS,
        "kills": KILLS,
        "newest_checkpoint_after_each_kill": kills,
        "weights_sha256": digests,
        "same": digests["whole"] == digests["torn"],
        "processor": processor(),
        "versions": versions(),
        "git_commit": git_commit(),
    }
    to.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(digests, indent=2))


def start(output: Path, folder: str) -> subprocess.Popen[bytes]:
    own = (f"output={output}", f"data.cache_root={folder}/cache")
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *ARGUMENTS, *own], stdout=subprocess.DEVNULL
    )


def samples_saved(output: Path) -> int:
    return max((int(path.stem) for path in output.glob("checkpoints/*.pt")), default=0)


def weights_sha256(output: Path) -> str:
    return hashlib.sha256((output / "model.safetensors").read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
