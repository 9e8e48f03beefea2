"""One series under way through the scoring core, and what happens to it when it is too short. Pure numpy."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.scoring.missing import Filler
from at_infer.scoring.settings import Finisher
from at_infer.scoring.windows import Floats, LastOfWindow, Merger, Starts

Bools = NDArray[np.bool_]


@dataclass(slots=True)
class ScoringCounts:
    """What happened to the rows."""

    rows: int = 0
    windows: int = 0
    bad_windows: int = 0
    """Windows not scored because of a bad row, or because the engine found no finite score."""
    series: int = 0
    short_series: int = 0
    """Series shorter than a window, skipped or padded."""


@dataclass(slots=True, eq=False)
class SeriesState:
    """One series under way."""

    name: str
    filler: Filler
    merger: Merger
    finisher: Finisher
    first_row: int
    """Row of the whole input that it starts with."""
    buffer: Floats
    """The last rows: those that are in no window yet, and those that a tail window would reach back to."""
    bad: Bools
    rows: int = 0
    next_start: int = 0

    def remember(self) -> dict[str, Any]:
        """All that the scores of rows to come depend on; nothing may wait for the engine, and no row may be bad."""
        own = {"rows": self.rows, "next_start": self.next_start, "buffer": self.buffer}
        return own | {f"finisher.{name}": value for name, value in self.finisher.remember().items()}

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""
        self.rows, self.next_start, self.buffer = kept["rows"], kept["next_start"], kept["buffer"]
        self.bad = np.zeros(len(self.buffer), np.bool_)
        if self.rows:
            self.filler.last = self.buffer[-1].copy()
        assert isinstance(self.merger, LastOfWindow), "only rows that are scored one by one have a memory"
        self.merger.done = max(0, self.rows - self.merger.delay)
        own = "finisher."
        self.finisher.recall({name.removeprefix(own): v for name, v in kept.items() if name.startswith(own)})

    def go_on_behind(self, kept: dict[str, Any], most: int) -> int:
        """Begin with the last rows, fewer than a window, of what `remember` gave under another engine.

        They are known but have no scores. Returns how many of them, answered though they are, come out again.
        """
        rows: Floats = kept["buffer"][-most:]
        self.rows, self.buffer, self.bad = len(rows), rows.copy(), np.zeros(len(rows), np.bool_)
        if self.rows:
            self.filler.last = self.buffer[-1].copy()
        assert isinstance(self.merger, LastOfWindow), "only rows that are scored one by one have a memory"
        self.merger.done = max(0, self.rows - self.merger.delay)
        self.finisher.add(np.full((self.merger.done, self.merger.tail.shape[1]), np.nan, np.float32))
        return self.rows - self.merger.done


class ScoredRows(NamedTuple):
    """Consecutive rows of one series whose scores are final."""

    series: SeriesState
    channels: Floats
    """(r,C), the score first; NaN: no score."""


def short_series_message(name: str, rows: int, window: int) -> str:
    """What is wrong with a series that has no full window."""
    who = f"series {name!r}" if name else "the input"
    ways = "short_series='skip' or short_series='pad'" if rows else "short_series='skip'"
    return f"{who}: has {rows} rows, fewer than the model's window of {window}; pass {ways}"


@dataclass(frozen=True, slots=True)
class Unscored:
    """A series that is skipped: its rows come out without a score."""

    channels: int

    def add(self, starts: Starts, scores: Floats) -> Floats:
        """It has no windows."""
        raise NotImplementedError

    def until(self, rows: int) -> Floats:
        """Not asked of whole windows."""
        raise NotImplementedError

    def end(self, rows: int) -> Floats:
        """All rows at once."""
        return np.full((rows, self.channels), np.nan, np.float32)


@dataclass(frozen=True, slots=True)
class Padded:
    """A series filled up in front to one window: the padding is dropped again."""

    channels: int
    padding: int

    def add(self, starts: Starts, scores: Floats) -> Floats:  # noqa: ARG002 - there is one window
        """The scores of the real rows."""
        return scores[0, self.padding :]

    def until(self, rows: int) -> Floats:
        """Not asked of whole windows."""
        raise NotImplementedError

    def end(self, rows: int) -> Floats:  # noqa: ARG002 - nothing is held back
        """Nothing is left."""
        return np.empty((0, self.channels), np.float32)
