"""The first signal interrupts, later ones leave the cleaning up in peace, the exit code tells."""

import os
import pty
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tuner.raytune.interrupts import SIGNALS, Interrupts


@pytest.fixture(autouse=True)
def signals_as_in_a_terminal() -> Iterator[None]:
    """Ignore no signal, whatever starts the tests: nohup and background jobs ignore some."""
    defaults = {signal.SIGINT: signal.default_int_handler}
    before = {
        number: signal.signal(number, defaults.get(number, signal.SIG_DFL)) for number in SIGNALS
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_end_becomes_its_exit_code(number: int, code: int) -> None:
    with pytest.raises(SystemExit) as caught, Interrupts():
        send(number)

    assert caught.value.code == code


def test_ctrl_c_stays_a_keyboard_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        send(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_disturb_the_cleaning_up(number: int) -> None:
    cleaned = []

    def be_ended_twice() -> None:
        with Interrupts():
            try:
                send(signal.SIGTERM)
            finally:
                send(number)
                cleaned.append(number)

    with pytest.raises(SystemExit):
        be_ended_twice()
    assert cleaned == [number]


def test_an_end_without_a_signal_lets_none_disturb_its_cleaning_up() -> None:
    with Interrupts() as interrupts:
        interrupts.close()
        send(signal.SIGTERM)


@pytest.mark.parametrize("first", [*SIGNALS, None])
def test_ctrl_c_while_it_cleans_up_ends_the_process_at_once(first: int | None) -> None:
    pid = os.fork()
    if pid == 0:
        with Interrupts() as interrupts:
            with suppress(KeyboardInterrupt):
                if first:
                    send(first)
            interrupts.close()
            send(signal.SIGINT)
            time.sleep(60)
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130


def test_the_terminal_that_hung_up_can_still_be_written_to() -> None:
    pid = os.fork()
    if pid == 0:
        terminal, ours = pty.openpty()
        os.dup2(ours, 1)
        os.close(ours)
        os.close(terminal)
        with suppress(SystemExit), Interrupts():
            try:
                os.write(1, b"?")
                os._exit(1)  # it has not hung up
            except OSError:
                send(signal.SIGHUP)
            finally:
                os.write(1, b"stopped")
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]

    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before

    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_what_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            send(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signals_are_taken_back_from_a_call_that_took_them() -> None:
    def lose_and_take_back() -> None:
        with Interrupts() as interrupts:
            with interrupts.replaced():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            send(signal.SIGTERM)

    with pytest.raises(SystemExit) as caught:
        lose_and_take_back()
    assert caught.value.code == 143


def test_the_exit_of_a_call_that_took_the_signal_is_the_signal() -> None:
    with pytest.raises(SystemExit) as caught, Interrupts() as interrupts, interrupts.replaced():
        raise SystemExit(int(signal.SIGTERM))

    assert caught.value.code == 143
