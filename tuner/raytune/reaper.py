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
    """Returns the processes that were started with this session's login, as all of Ray's are."""
    mark = f"RAY_AUTH_TOKEN_PATH={folder}/".encode()
    found = set()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile, or is another user's
            if any(entry.startswith(mark) for entry in environment.read_bytes().split(b"\0")):
                found.add(int(environment.parts[2]))
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
