"""One command through the real entry point, in this process or as the console script, and what became of it."""

import contextlib
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUTCOMES = ("one-line error", "accepted", "traceback", "hang", "crash", "wrong output")
FINDINGS = OUTCOMES[2:]
LIMIT_S = 60.0 * float(os.environ.get("ATTACK_PATIENCE", "1"))
"""After which a command hangs; a machine that is busy with other work needs patience."""
BUG = 70
"""Exit code of a process that an exception has left."""


@dataclass(frozen=True)
class Said:
    """How a command ended; a negative code is a signal."""

    code: int
    out: bytes
    err: str


def call(words: list[str], work: Path, stdin: Path | None = None) -> Said:
    """In this process, with files for its standard streams."""
    from at_infer.__main__ import main

    out, err = work / "stdout", work / "stderr"
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
    opened = [os.open(stdin or os.devnull, os.O_RDONLY), os.open(out, flags, 0o600), os.open(err, flags, 0o600)]
    for number, file in enumerate(opened):
        os.dup2(file, number)
        os.close(file)
    streams = [open(number, mode, closefd=False) for number, mode in enumerate(("r", "w", "w"))]  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = streams
    sys.argv = ["at-infer", *words]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        code = BUG
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr, *streams):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return Said(code, out.read_bytes(), err.read_text(errors="replace"))


def start(words: list[str], stdin: Path | None = None, limit_s: float = 2 * LIMIT_S) -> Said | None:
    """As the console script does it, in a process of its own; None if it does not end."""
    with Path(stdin or os.devnull).open("rb") as lines:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "at_infer", *words],
                stdin=lines,
                capture_output=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
    return Said(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def judge(said: Said | None, *, output: Path | None = None, codes: tuple[int, ...] = (0,)) -> str:
    """What a command did with what it was given, but for what an accepted input has led to."""
    if said is None:
        return "hang"
    if said.code < 0:
        return "crash"
    if said.code in codes:
        return "traceback" if _is_bug(said.err) else "accepted"
    if said.code != 1 or _is_bug(said.err):
        return "traceback"
    if output is not None and output.exists():
        return "wrong output"
    lines = said.err.splitlines()
    is_one_line = sum(line.startswith("error: ") for line in lines) == 1
    # inspect shows what is wrong among the rest that it found; evaluate and score may say notes first.
    return "one-line error" if is_one_line or (not lines and said.out) else "traceback"


def table(parts: Mapping[str, Any]) -> str:
    """All parts in markdown, as the documents show them."""
    lines = [f"| {' | '.join(('what', 'tried', *OUTCOMES))} |", f"|{' --- |' * (2 + len(OUTCOMES))}"]
    for part in (part for name, part in parts.items() if name != "benchmark"):
        for kind, row in part["table"].items():
            counts = [sum(row.values()), *(row.get(name, 0) for name in OUTCOMES)]
            lines.append(f"| {kind} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def _is_bug(text: str) -> bool:
    return "Traceback" in text or "panicked" in text or "RUST_BACKTRACE" in text
