"""One series under way through the scoring core, and what happens to it when it is too short. Pure numpy."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.scoring.missing import Filler, MissingFeatures
from at_infer.scoring.settings import Finisher
from at_infer.scoring.windows import Floats, LastOfWindow, Merger, Starts

Bools = NDArray[np.bool_]

FEW_ROWS = 16
"""If no more come at once, room is kept for those that follow."""


@dataclass(slots=True)
class ScoringCounts:
    """What happened to the rows."""

    rows: int = 0
    windows: int = 0
    bad_windows: int = 0
    """Windows not scored because of a bad row, or because the engine found no finite score."""
    series: int = 0
    short_series: int = 0
    """Series without a single full window, skipped or padded."""
    gaps: int = 0
    """Gaps in time, each of which begins a new stretch of its series."""
    short_stretches: int = 0
    """Stretches shorter than a window, of series that have gaps."""
    missing: dict[int, int] = field(default_factory=dict)
    """Numbers of features, and in how many rows each was left out."""


@dataclass(slots=True, eq=False)
class SeriesState:
    """One series under way. Gaps in time cut it into stretches, each scored as if it were a series of its own."""

    name: str
    stretch: "Stretch" = field(init=False)
    """The current one."""
    time: float | None = None
    """Of the last row, if gaps are looked for."""
    gaps: int = 0
    longest: int = 0
    """Rows of the longest stretch before the current one."""

    def remember(self) -> dict[str, Any]:
        """All that the scores of rows to come depend on; nothing may wait for the engine, and no row may be bad."""
        return self.stretch.remember() | ({} if self.time is None else {"time": self.time})

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""
        self.time = kept.get("time")
        self.stretch.recall(kept)

    def go_on_behind(self, kept: dict[str, Any], most: int) -> int:
        """Begin with the last rows, fewer than a window, of what `remember` gave under another engine.

        They are known but have no scores. Returns how many of them, answered though they are, come out again.
        """
        self.time = kept.get("time")
        return self.stretch.go_on_behind(kept, most)


@dataclass(slots=True, eq=False)
class Stretch:
    """Rows of a series without a gap in time."""

    series: SeriesState
    filler: Filler
    merger: Merger
    finisher: Finisher
    first_row: int
    """Row of the whole input that it starts with."""
    buffer: Floats
    """The last rows: those that are in no window yet, and those that a tail window would reach back to."""
    bad: Bools | None = None
    """Which of them are bad; None: none is."""
    missing: MissingFeatures | None = None
    """If missing features are left out of the score."""
    rows: int = 0
    next_start: int = 0
    _room: Floats | None = None
    """The buffer is a part of this, which has room behind it; None: of nothing that may be written to."""
    _end: int = 0

    def append(self, rows: Floats, bad: Bools | None) -> None:
        """The next rows; single ones do not move those before them."""
        if bad is not None or self.bad is not None:
            both = ((self.bad, self.buffer), (bad, rows))
            self.bad = np.concatenate([np.zeros(len(part), np.bool_) if of is None else of for of, part in both])
        count, more = len(self.buffer) + len(rows), len(rows)
        if self._room is None or self._end + more > len(self._room):
            self._room = np.empty((count if more > FEW_ROWS else 2 * count, self.buffer.shape[1]), np.float32)
            self._end = len(self.buffer)
            self._room[: self._end] = self.buffer
        self._room[self._end : self._end + more] = rows
        self._end += more
        self.buffer = self._room[self._end - count : self._end]
        self.rows += more

    def slide(self, rows: Floats, most: int) -> Floats:
        """Next rows (n,F), none of them bad, each of which ends a window of so many: these and those before them.

        Only the last window is kept.
        """
        more = len(rows)
        end = self._end + more
        if self._room is None or end > len(self._room):
            self.append(rows, None)
            end = self._end
        else:
            self._room[end - more : end] = rows
            self._end = end
            self.rows += more
        assert self._room is not None
        self.buffer = self._room[end - most : end]
        self.next_start += more
        return self._room[end - most + 1 - more : end]

    def keep(self, most: int) -> None:
        """Forget all but the last rows."""
        if len(self.buffer) > most:
            self.buffer = self.buffer[-most:]
            if self.bad is not None:
                self.bad = self.bad[-most:] if self.bad[-most:].any() else None

    def remember(self) -> dict[str, Any]:
        """As of the series."""
        gone: dict[str, Any] = {} if self.missing is None else self.missing.remember()
        own: dict[str, Any] = gone | {"rows": self.rows, "next_start": self.next_start, "buffer": self.buffer}
        if isinstance(self.merger, LastOfWindow) and len(self.merger.tail):
            own |= {"tail": self.merger.tail, "tail_first": self.merger.tail_first}
        return own | {f"finisher.{name}": value for name, value in self.finisher.remember().items()}

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""
        self.next_start = kept["next_start"]
        merger = self._hold(kept, kept["buffer"], kept["rows"])
        if "tail" in kept:
            merger.tail, merger.tail_first = kept["tail"], kept["tail_first"]
        own = "finisher."
        self.finisher.recall({name.removeprefix(own): v for name, v in kept.items() if name.startswith(own)})

    def go_on_behind(self, kept: dict[str, Any], most: int) -> int:
        """As of the series."""
        rows: Floats = kept["buffer"][-most:].copy()
        merger = self._hold(kept, rows, len(rows))
        self.finisher.add(np.full((merger.done, merger.tail.shape[1]), np.nan, np.float32))
        return self.rows - merger.done

    def _hold(self, kept: dict[str, Any], buffer: Floats, rows: int) -> LastOfWindow:
        """The last of this many rows, none of them bad."""
        self.rows, self.buffer, self.bad, self._room = rows, buffer, None, None
        if rows:
            self.filler.last = buffer[-1, : len(self.filler.mean)].copy()
        if self.missing is not None:
            self.missing.recall(kept)
        assert isinstance(self.merger, LastOfWindow), "only rows that are scored one by one have a memory"
        self.merger.done = max(0, rows - self.merger.delay)
        return self.merger


class ScoredRows(NamedTuple):
    """Consecutive rows of one series, without a gap in time, whose scores are final."""

    stretch: Stretch
    channels: Floats
    """(r,C), the score first; NaN: no score."""

    @property
    def series(self) -> SeriesState:
        """That they belong to."""
        return self.stretch.series


def short_series_message(name: str, rows: int, window: int, *, gaps: bool = False) -> str:
    """The error of a series without a full window; with gaps, `rows` is the longest stretch between them."""
    who = f"series {name!r}" if name else "the input"
    if gaps:
        return (
            f"{who}: has at most {rows} rows without a gap in time, fewer than the model's window of {window}; pass "
            f"short_series='skip' or short_series='pad', or max_gap=0"
        )
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
