"""One command in a forked child of its own, to be killed or to be limited."""

import contextlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks.attack.command import BUG, LIMIT_S, Said


class Forked:
    """A command under way; what it prints goes nowhere, or to a file, and its messages come through a pipe."""

    def __init__(
        self,
        words: list[str],
        stdin: Path | None = None,
        stdout: Path | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self.said = b""
        self.pipe, writes = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _run(words, stdin, stdout, writes, before)
        os.close(writes)
        self.ended: int | None = None

    def wait(self, limit_s: float = LIMIT_S) -> Said | None:
        """How it ended; None if it had to be killed because it did not."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end and not self.poll(0.05):
            pass
        if self.ended is None:
            self.kill(signal.SIGKILL)
            self.finish()
            return None
        return Said(self.ended, b"", self.said.decode(errors="replace"))

    def poll(self, wait_s: float) -> bool:
        """Has it ended?"""
        if self.ended is not None:  # its pipe is closed
            return True
        ready, _, _ = select.select([self.pipe], [], [], wait_s)
        if ready:
            piece = os.read(self.pipe, 1 << 16)
            self.said += piece
            if not piece:
                self.finish()
        return self.ended is not None

    def kill(self, number: signal.Signals) -> None:
        """At once; it may have ended already."""
        if self.ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def finish(self) -> int:
        """Its exit code, or the negative number of the signal that has ended it."""
        if self.ended is None:
            _, status = os.waitpid(self.pid, 0)
            self.ended = os.waitstatus_to_exitcode(status)
            os.close(self.pipe)
        return self.ended


def _run(words: list[str], stdin: Path | None, stdout: Path | None, said: int, before: Callable[[], None]) -> None:
    code = BUG
    try:
        out = os.open(stdout or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for number, opened in enumerate((os.open(stdin or os.devnull, os.O_RDONLY), out, said)):
            os.dup2(opened, number)
            os.close(opened)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", 1)  # noqa: SIM115 - descriptors
        sys.argv = ["at-infer", *words]
        from at_infer.__main__ import main

        before()
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)  # nothing of the parent's may be tidied up here
