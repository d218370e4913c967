"""Signals as one KeyboardInterrupt, and the exit code that each of them deserves."""

import errno
import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """While entered, the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt.

    Later ones leave the cleaning up in peace, but for SIGINT: who presses Ctrl-C again is gone at
    once, and the reaper cleans up. KeyboardInterrupt because it is what Ray's C++ passes on, and no
    `except Exception` stops it. On leaving, SIGTERM and SIGHUP become SystemExit with 128 + their
    number, SIGINT stays as it is. A signal that was ignored before (nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._received = 0
        self._is_closing = False
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        self._before = {
            number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN
        }

    def __enter__(self) -> Self:
        self._install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, KeyboardInterrupt) and self._received not in (0, signal.SIGINT):
            raise SystemExit(128 + self._received) from None

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Takes the signals back from a call that installs handlers of its own, as ray.init does.

        Ray's handler ends in SystemExit with the signal's number.
        """
        try:
            yield
        except SystemExit as exit_request:
            if exit_request.code == signal.SIGTERM:
                self._receive(signal.SIGTERM, None)
            raise
        self._install()

    def close(self) -> None:
        """Lets nothing but a Ctrl-C interrupt what follows: the cleaning up."""
        self._is_closing = True

    def _install(self) -> None:
        for number in self._before:
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            forget_dead_terminal()
        if not (self._received or self._is_closing):
            self._received = number
            raise KeyboardInterrupt
        if number == signal.SIGINT:
            leave(128 + number)


def forget_dead_terminal() -> None:
    """Lets what is still to be said go nowhere, where the terminal it would go to is gone."""
    for descriptor in (1, 2):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def leave(exit_code: int, last_words: str = "") -> None:
    """Ends this process at once; whoever waits for its end cleans up."""
    with suppress(OSError):
        if sys.stdout.isatty():  # a view may have been there
            os.write(sys.stdout.fileno(), f"{SHOW_CURSOR}\n".encode())
        os.write(sys.stderr.fileno(), last_words.encode())
    os._exit(exit_code)
