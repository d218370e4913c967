"""Where a session's own files lie: in the run's folder, under a short name for its sockets."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import ResourceError
from tuner.raytune.reaper import end_users

PREFIX = ".ray-"  # of the folder in the run's; gone when the session is
RAY = "ray"
SHORT_NAME = "short_name"
LONGEST_SOCKET_BYTES = 107  # what Linux takes
# Of Ray 2.60: "/session_2026-12-01_00-30-21_423351_1234567/sockets/dash_TaskEventsHead"
RAY_SOCKET_BYTES = 72


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder of one session.

    Attributes:
        folder: Of what is kept beside Ray: its login, Tune's snapshots, the trials' beats.
        ray_folder: What Ray is told to use; short, and in `folder` wherever sockets can lie there.
    """

    folder: Path
    ray_folder: Path

    @property
    def token_path(self) -> Path:
        """The file with the token that Ray's dashboard asks for; only this user can read it."""
        return self.folder / "auth_token"

    @property
    def beats_folder(self) -> Path:
        """Where each running job has a file that is touched as long as it gets on."""
        return self.folder / "beats"


@contextmanager
def scratch(run_folder: Path) -> Iterator[Scratch]:
    """Gives the session's folder in `run_folder`; it goes at the end, even if we are killed.

    What a dead session left there, files and processes, is removed first: the caller holds
    `run_folder`, so no other one lives. Its reaper may still be at it, so each has its own name.

    Raises:
        ResourceError: There is no place for Ray's sockets.
    """
    for left in run_folder.absolute().glob(f"{PREFIX}*"):
        remove_left(left)
    short_folder = make_short_folder()
    folder = run_folder.absolute() / f"{PREFIX}{secrets.token_hex(4)}"
    with reaper(folder, short_folder):
        folder.mkdir(mode=0o700)
        (folder / SHORT_NAME).write_text(str(short_folder))
        found = Scratch(folder, short_folder / RAY)
        point_to(found.ray_folder, folder / RAY)
        found.beats_folder.mkdir()
        found.token_path.touch(mode=0o600)
        found.token_path.write_text(secrets.token_hex(32))
        yield found
    if folder.exists():  # the reaper was killed
        remove_left(folder)


def remove_left(folder: Path) -> None:
    """Ends the processes of a session that lived in `folder`, and removes its files."""
    end_users(folder, but=os.getpid())
    with suppress(OSError):
        short_folder = Path((folder / SHORT_NAME).read_text())
        # In a copy of a run it is the name of another session, in a forged one anything.
        if (short_folder / RAY).readlink() == folder / RAY:
            (short_folder / RAY).unlink()
            short_folder.rmdir()
    shutil.rmtree(folder, ignore_errors=True)


def make_short_folder() -> Path:
    """Returns a new folder of this user's alone, with a path that leaves room for Ray's sockets.

    Raises:
        ResourceError: Nowhere can one be made.
    """
    longest = LONGEST_SOCKET_BYTES - RAY_SOCKET_BYTES - len(f"/tuner-12345678/{RAY}")
    places = [place for place in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp") if place]
    for place in places:
        with suppress(OSError):
            if len(os.fsencode(os.path.abspath(place))) <= longest:
                return Path(tempfile.mkdtemp(prefix="tuner-", dir=os.path.abspath(place)))
    raise ResourceError(
        f"TMPDIR: no place for Ray's sockets ({', '.join(places)}); set it to a folder that can be "
        f"written, with a path of at most {longest} bytes"
    )


def point_to(link: Path, folder: Path) -> None:
    """Makes `link` another name of the new `folder`, or a folder where that can hold no socket."""
    folder.mkdir()
    link.symlink_to(folder)
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.bind(str(link / "socket"))
        (link / "socket").unlink()
    except OSError:  # some network and shared file systems
        link.unlink()
        link.mkdir()


@contextmanager
def reaper(folder: Path, short_folder: Path) -> Iterator[None]:
    """Has the folders and all who use them removed at the end, even if this process is killed."""
    script = str(Path(__file__).with_name("reaper.py"))
    with subprocess.Popen(
        [sys.executable, "-I", script, str(folder), str(short_folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):
        yield
