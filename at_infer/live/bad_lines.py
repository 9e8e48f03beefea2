"""Messages about invalid lines: the first ones of a minute each, the others as a number."""

import time
from collections.abc import Callable

from at_infer.live.lines import Say

SHOWN, INTERVAL_S = 20, 60.0
"""So many lines are reported one by one in so many seconds."""


class BadLines:
    """Says what is wrong with lines, without filling a disk when every line is wrong."""

    def __init__(self, name: str, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        """`name` is that of the input."""
        self.name, self.say, self.clock = name, say, clock
        self.until, self.shown = 0.0, 0
        """End of the interval, and how many were reported one by one in it."""
        self.hidden, self.last = 0, ""
        """How many were not, and the last of them."""

    def add(self, line: int, what: str) -> None:
        """An invalid line."""
        self.report()
        text = f"line {line}: {what}"
        if self.shown == SHOWN:
            self.hidden, self.last = self.hidden + 1, text
            return
        if not self.shown:
            self.until = self.clock() + INTERVAL_S
        self.shown += 1
        self.say(f"{self.name}: {text}; the line is skipped")

    def report(self, *, now: bool = False) -> None:
        """How many were not reported, at the end of the interval or `now`."""
        if not self.shown or (not now and self.clock() < self.until):
            return
        if self.hidden:
            lines = "1 more line was" if self.hidden == 1 else f"{self.hidden} more lines were"
            self.say(f"{self.name}: {lines} skipped, the last one is {self.last}")
        self.shown = self.hidden = 0
