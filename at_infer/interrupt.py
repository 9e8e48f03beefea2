"""Ctrl-C and SIGTERM that wait for a good moment."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from at_infer.native_stderr import stderr_fd
from at_infer.output import temporary_files


def end_quietly_on_signals() -> None:
    """Until `signals_as_ctrl_c`: a process that is just starting has nothing to tidy up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    os.write(stderr_fd(), b"interrupted\n")
    os._exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """A KeyboardInterrupt, but for a module that is just being imported: half of one is reported as missing."""
    at = frame
    while at is not None:
        if at.f_code.co_filename == "<frozen importlib._bootstrap>" and not temporary_files:
            _end(number, frame)
        at = at.f_back
    raise KeyboardInterrupt


@contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """While this is open, SIGTERM and SIGINT are a KeyboardInterrupt, so that temporary files are removed first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Interrupt:
    """While this is open, the first Ctrl-C or SIGTERM only sets `requested`; the second one takes effect at once."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
