"""Ends what a session of Ray's leaves when it dies: a process beside it, started by its file.

A killed driver takes most of Ray along, but two of its agents look for their head for a minute
(Ray 2.60), and nobody removes the folders.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

TRIES = 50
PAUSE_S = 0.1


def main(folder: Path, short_folder: Path) -> None:
    """Waits until the session closes this process's input or dies, then removes what is left."""
    session = os.getppid()
    sys.stdin.read()
    end_users(folder, short_folder, but=session)  # alive, if it closed the input itself
    for each in (short_folder, folder):
        shutil.rmtree(each, ignore_errors=True)


def end_users(*folders: Path, but: int) -> None:
    """Ends all processes of the session that has these folders, except `but`."""
    for _ in range(TRIES):
        left = users(folders) - {but}
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        time.sleep(PAUSE_S)


def users(folders: Iterable[Path]) -> set[int]:
    """Returns the processes that were started with a login in these folders or write into them.

    All of Ray's were started with it, but those that change their title overwrite the environment
    it is read from; each of them has a log open.
    """
    marks = [f"RAY_AUTH_TOKEN_PATH={folder}/".encode() for folder in folders]
    inside = [f"{folder.resolve()}/" for folder in folders]
    return {
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if has_login(process, marks) or writes_into(process, inside)
    }


def has_login(process: Path, marks: Iterable[bytes]) -> bool:
    """Says whether an entry of a process's environment begins with one of `marks`."""
    try:
        entries = (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it ended meanwhile, or is another user's
        return False
    return any(entry.startswith(tuple(marks)) for entry in entries)


def writes_into(process: Path, inside: Iterable[str]) -> bool:
    """Says whether a process has a file open for writing whose path begins with one of these."""
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                if os.readlink(descriptor).startswith(tuple(inside)):
                    info = (process / "fdinfo" / descriptor.name).read_text()
                    flags = int(info.split("flags:")[1].split()[0], base=8)
                    if flags & os.O_ACCMODE != os.O_RDONLY:
                        return True
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
