"""What reaches the terminal: texts of files, such as names of columns, may hold escape sequences."""

import json
import sys
from datetime import UTC, datetime
from typing import Literal

from at_infer.cli.messages import in_options

LEVELS = {"error": "error", "interrupted": "warning", "warning": "warning"}
"""By the word before the first colon of a message; all others are `info`."""
_log_format: Literal["text", "json"] = "text"


def set_log_format(form: Literal["text", "json"]) -> None:
    """How the messages of this process, errors included, are written from now on."""
    global _log_format
    _log_format = form


def logs_json() -> bool:
    """Are messages JSON lines?"""
    return _log_format == "json"


def printable(text: str) -> str:
    """The text with `?` for everything that a terminal would obey instead of show; lines stay lines."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def counted(count: int, what: str) -> str:
    """`1 gap`, `2 gaps`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def say(text: str) -> None:
    """A message, on stderr; parameters are named as options."""
    line = printable(in_options(text))
    if _log_format == "json":
        level, _, rest = line.partition(": ")
        known = level in LEVELS
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "level": LEVELS.get(level, "info"), "message": rest if known else line})
    print(f"{line}\n", end="", file=sys.stderr, flush=True)  # in one piece: threads speak too


def show(text: str) -> None:
    """A result, on stdout."""
    print(printable(text))
