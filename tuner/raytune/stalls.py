"""Running jobs that no longer get on: each has a file that its process touches with every batch."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOOK_EVERY_S = 1.0
LONGEST_START_S = 120.0  # of a process, on a machine that is busy
LONGEST_LOOK_S = 2 * LOOK_EVERY_S  # what is longer was a pause of this program, and of its trials


def begin_beats(path: Path) -> None:
    """Makes a job's file, with the process that works on it; called by that process."""
    path.write_text(str(os.getpid()))


@dataclass(slots=True)
class Watched:
    """What is known of a running job.

    Attributes:
        beat: Time of its file, in ns, when it was last looked at; 0 before there was one.
        silent_s: How long it has not been seen to get on.
    """

    beat: int = 0
    silent_s: float = 0.0


class StallWatch:
    """Ends the process of a job that did not touch its file for too long.

    Time counts while this program looks, not while it is stopped or the machine sleeps.

    Args:
        folder: Of the files, named by Ray's trial ids.
        timeout_s: How long is too long; None is never.
    """

    def __init__(
        self, folder: Path, timeout_s: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.timeout_s = timeout_s
        self._folder = folder
        self._clock = clock
        self._looked_at = clock()
        self._watched: dict[str, Watched] = {}

    def begin(self, trial_id: str) -> None:
        """Watches a job from now on."""
        self._watched[trial_id] = Watched()

    def end(self, trial_id: str) -> None:
        """Watches it no longer."""
        self._watched.pop(trial_id, None)
        self._path(trial_id).unlink(missing_ok=True)

    def pid(self, trial_id: str) -> int | None:
        """Returns the process that works on a job; None where it has not begun."""
        try:
            return int(self._path(trial_id).read_text())
        except (OSError, ValueError):  # not written yet, or not to its end
            return None

    def end_stalled(self) -> list[str]:
        """Kills the process of each job that has stalled, and returns their trial ids.

        One that has not even begun is among them: there is no process of its own to end.
        """
        passed_s = self._clock() - self._looked_at
        if self.timeout_s is None or passed_s < LOOK_EVERY_S:
            return []
        self._looked_at += passed_s
        for trial_id, watched in self._watched.items():
            beat = self._beat(trial_id)
            is_new = beat != watched.beat
            watched.beat = beat
            watched.silent_s = 0.0 if is_new else watched.silent_s + min(passed_s, LONGEST_LOOK_S)
        longest_start_s = max(self.timeout_s, LONGEST_START_S)
        stalled = [
            trial_id
            for trial_id, watched in self._watched.items()
            if watched.silent_s > (self.timeout_s if watched.beat else longest_start_s)
        ]
        for trial_id in stalled:
            self._watched[trial_id].silent_s = 0.0  # its end will be heard; not twice
            pid = self.pid(trial_id)
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return stalled

    def _beat(self, trial_id: str) -> int:
        try:
            return self._path(trial_id).stat().st_mtime_ns
        except OSError:  # it has not begun
            return 0

    def _path(self, trial_id: str) -> Path:
        return self._folder / trial_id
