"""What native libraries print: a panic of polars on a damaged file becomes a one-line error, without its trace."""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STDERR = 2
PANIC = re.compile(
    rb"\n?thread '[^\n]*panicked at [^\n]*\n.*?(?:note: run with `RUST_BACKTRACE=1`[^\n]*\n|(?=\nthread ')|\Z)",
    re.DOTALL,
)

_lock = threading.Lock()
_readers = 0
_kept, _pipe = -1, -1


def speak_past_native_code() -> None:
    """Give Python a standard error of its own, so that descriptor 2 is left to native libraries."""
    with suppress(OSError, AttributeError):  # it is closed
        sys.stderr = os.fdopen(os.dup(STDERR), "w", 1, encoding="utf-8", errors="replace")


def stderr_fd() -> int:
    """Where messages go, for who cannot print."""
    with suppress(OSError, AttributeError, ValueError):
        return sys.stderr.fileno()
    return STDERR


@contextmanager
def without_panics() -> Iterator[None]:
    """While a file is read, panics do not reach the terminal; all else that native code prints does, at the end.

    Only where Python itself does not use descriptor 2: what a program prints that uses us must not wait.
    """
    if stderr_fd() == STDERR:
        yield
        return
    _hold()
    try:
        yield
    finally:
        _let_go()


def _hold() -> None:
    """The first of several threads that read."""
    global _readers, _kept, _pipe
    with _lock:
        _readers += 1
        if _readers == 1:
            _kept = os.dup(STDERR)
            _pipe, full = os.pipe()  # a full disk may be what goes wrong
            os.set_blocking(_pipe, False)
            os.set_blocking(full, False)  # who says more than it takes is cut short, and does not wait
            os.dup2(full, STDERR)
            os.close(full)


def _let_go() -> None:
    """The last of several threads that read."""
    global _readers
    with _lock:
        _readers -= 1
        if _readers:
            return
        os.dup2(_kept, STDERR)
        with os.fdopen(_pipe, "rb", 0) as pipe:
            said = pipe.read() or b""
        os.close(_kept)
        if rest := PANIC.sub(b"", said):
            os.write(STDERR, rest)
