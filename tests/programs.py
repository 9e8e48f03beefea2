"""`python` and `at-infer` that need no time to start; tests/warm.py says when to use them."""

import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from tests import warm

ROOT = Path(__file__).parents[1]
_opened = ExitStack()


@cache
def programs() -> Path:
    """A folder with both. What they ask starts with the first call, and ends with the tests."""
    name = _opened.enter_context(tempfile.TemporaryDirectory())  # the path of a socket may have 107 characters
    folder, address = Path(name), f"{name}/socket"
    for program, words in (("python", ""), ("at-infer", "-m at_infer")):
        ask = shlex.join([sys.executable, "-IS", warm.__file__, address])
        (folder / program).write_text(f'#!/bin/sh\nexec {ask} {words} "$@"\n')
        (folder / program).chmod(0o755)
    serve = [sys.executable, "-m", "tests.warm", "serve", address]
    server = subprocess.Popen(serve, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _opened.enter_context(server)
    assert server.stdin is not None
    assert server.stdout is not None
    _opened.callback(server.stdin.close)  # it goes on until its input ends; its forks may hold its output open
    assert server.stdout.readline() == "ready\n"
    return folder


def stop_programs() -> None:
    """End what was started."""
    _opened.close()
