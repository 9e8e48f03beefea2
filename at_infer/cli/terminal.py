"""What reaches the terminal: texts of files, such as names of columns, may hold escape sequences."""

import sys

from at_infer.cli.messages import in_options


def printable(text: str) -> str:
    """The text with `?` for everything that a terminal would obey instead of show; lines stay lines."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def say(text: str) -> None:
    """A message, on stderr; parameters are named as options."""
    print(f"{printable(in_options(text))}\n", end="", file=sys.stderr, flush=True)  # in one piece: threads speak too


def show(text: str) -> None:
    """A result, on stdout."""
    print(printable(text))
