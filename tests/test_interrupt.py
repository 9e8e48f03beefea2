"""Ctrl-C and SIGTERM wait for a good moment, and come back."""

import os
import signal
import threading

import pytest

from at_infer.interrupt import Interrupt, signals_as_ctrl_c

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted_and_the_second_takes_effect(number: signal.Signals) -> None:
    with Interrupt() as interrupt:
        assert not interrupt.requested
        os.kill(os.getpid(), number)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


def test_the_former_handlers_come_back_after_success_and_failure() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupt():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with pytest.raises(ValueError, match="x"), Interrupt(), signals_as_ctrl_c():
        raise ValueError("x")
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_sigterm_is_a_keyboard_interrupt_while_asked_for() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), signals_as_ctrl_c():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_other_threads_may_use_them_without_touching_the_handlers() -> None:
    seen = []

    def work() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with signals_as_ctrl_c(), Interrupt() as interrupt:
            seen.append((interrupt.requested, signal.getsignal(signal.SIGTERM) == before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, True)]
