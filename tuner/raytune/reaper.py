"""Ends what a session of Ray's leaves when it dies: a process beside it, started by its file.

A killed driver takes most of Ray along, but two of its agents look for their head for a minute
(Ray 2.60), and nobody removes the folder.
"""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

TRIES = 50
PAUSE_S = 0.1


def main(folder: Path) -> None:
    """Waits until the session closes this process's input or dies, then ends what is left of it."""
    session = os.getppid()
    sys.stdin.read()
    for _ in range(TRIES):
        left = users(folder) - {session}  # alive, if it closed the input itself
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        time.sleep(PAUSE_S)
    shutil.rmtree(folder, ignore_errors=True)


def users(folder: Path) -> set[int]:
    """Returns the processes that hold a file in `folder`, as all of Ray's do for their logs."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it ended meanwhile, or is another user's
            if os.readlink(link).startswith(f"{folder}/"):
                found.add(int(link.parts[2]))
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
