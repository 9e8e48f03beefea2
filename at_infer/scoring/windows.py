"""Rows <-> windows: where windows start, and which window scores a row. Pure numpy, any chunking.

Scores of a window have C channels: the score itself, and whatever is asked for beside it. NaN means not scored.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Align, Config
from at_infer.errors import ConfigError

Floats = NDArray[np.float32]
Starts = NDArray[np.int64]

ALIGNMENT = (
    "windows do not overlap and never cross a change of series; the last window of a series overlaps its "
    "predecessor so that every row is covered; a row is scored by the first window that covers it"
)
OVERLAPPING = (
    "windows start every {stride} rows and never cross a change of series; the last window of a series ends with it; "
    "a row gets the mean of the scores that the windows covering it give it"
)
CAUSAL = (
    "a row is scored as the last of the window that ends with it, within its series; the first {warm_up} rows of a "
    "series have no full window and no score"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(Config):
    """How windows are laid over the rows of a series."""

    window: int
    stride: int
    align: Align = "window"

    def __post_init__(self) -> None:
        self._choice("align", Align)
        if not 1 <= self.stride <= self.window:
            raise ConfigError(f"stride: {self.stride} is not between 1 and the window's length, {self.window}")
        if self.align == "last" and self.stride != 1:
            raise ConfigError("stride: --align last scores every row by a window of its own; leave --stride out")

    @property
    def rule(self) -> str:
        """The rule in words."""
        if self.align == "last":
            return CAUSAL.format(warm_up=self.window - 1)
        return ALIGNMENT if self.stride == self.window else OVERLAPPING.format(stride=self.stride)

    @property
    def reach(self) -> int:
        """How many rows before a row may share a window with it."""
        return self.window - 1

    def merger(self) -> "Merger":
        """A fresh merger, for one series."""
        if self.align == "last":
            return LastOfWindow(self.window)
        return FirstWindow() if self.stride == self.window else MeanOfWindows()


def window_starts(rows: int, window: int, stride: int, *, cover_tail: bool) -> Starts:
    """First rows of the windows over one series of `rows` rows.

    With `cover_tail`, a last window that overlaps its predecessor covers the rows that the stride leaves
    over, so that every row is in a window. A series shorter than a window has none.
    """
    last = rows - window
    if last < 0:
        return np.empty(0, np.int64)
    starts = np.arange(0, last + 1, stride, dtype=np.int64)
    if cover_tail and starts[-1] != last:
        starts = np.append(starts, last)
    return starts


class Merger(Protocol):
    """Turns scores of windows, given in order, into scores of rows, each row once and in order."""

    def add(self, starts: Starts, scores: Floats) -> Floats:
        """Windows that start at `starts` and score (m,N,C) -> rows that are final now (r,C)."""

    def end(self) -> Floats:
        """The series is over: the rows that are left (r,C)."""


@dataclass(slots=True)
class FirstWindow:
    """A row is scored by the first window that covers it."""

    done: int = 0

    def add(self, starts: Starts, scores: Floats) -> Floats:
        """The rows of each window that none before it has scored."""
        m, n, c = scores.shape
        if starts[-1] == self.done + (m - 1) * n:  # side by side, the usual case
            self.done += m * n
            return scores.reshape(m * n, c)
        rows = []
        for start, of_window in zip(starts.tolist(), scores, strict=True):
            rows.append(of_window[self.done - start :])
            self.done = start + n
        return np.concatenate(rows)

    def end(self) -> Floats:
        """Nothing is held back."""
        return np.empty((0, 1), np.float32)


@dataclass(slots=True)
class MeanOfWindows:
    """A row gets the mean over the windows that cover it; a window scored NaN has no say."""

    first: int = 0
    """Row that the first entry of the sums belongs to."""
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 1)))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, starts: Starts, scores: Floats) -> Floats:
        """A later window starts later, so the rows up to this start are final."""
        _, n, c = scores.shape
        grow = int(starts[-1]) + n - self.first - len(self.sums)
        self.sums = np.concatenate([self.sums if len(self.sums) else np.zeros((0, c)), np.zeros((grow, c))])
        self.counts = np.concatenate([self.counts, np.zeros(grow, np.int64)])
        for start, of_window in zip((starts - self.first).tolist(), scores, strict=True):
            if not np.isnan(of_window[0, 0]):
                self.sums[start : start + n] += of_window
                self.counts[start : start + n] += 1
        return self._take(int(starts[-1]) + 1 - self.first)

    def end(self) -> Floats:
        """All that is left."""
        return self._take(len(self.sums))

    def _take(self, rows: int) -> Floats:
        with np.errstate(invalid="ignore"):
            final = (self.sums[:rows] / self.counts[:rows, None]).astype(np.float32)  # 0 / 0: no window had a say
        self.sums, self.counts, self.first = self.sums[rows:], self.counts[rows:], self.first + rows
        return final


@dataclass(slots=True)
class LastOfWindow:
    """A row is scored as the last of the window that ends with it: what a live system would have seen."""

    window: int
    begun: bool = False

    def add(self, starts: Starts, scores: Floats) -> Floats:  # noqa: ARG002 - windows come one row after another
        """The last row of each window, behind the rows at the start that no full window ends with."""
        rows = scores[:, -1]
        if not self.begun:
            self.begun = True
            warm_up = np.full((self.window - 1, scores.shape[2]), np.nan, np.float32)
            return np.concatenate([warm_up, rows])
        return rows

    def end(self) -> Floats:
        """Nothing is held back."""
        return np.empty((0, 1), np.float32)


class MovingMean:
    """Moving mean of the first channel over `width` rows of one series: centred, or over the past if causal.

    It is the mean of the rows that exist and are scored; at the ends of a series there are fewer. A row that is
    not scored stays so.
    """

    def __init__(self, width: int, *, causal: bool) -> None:
        self.before = width - 1 if causal else width // 2
        self.after = width - 1 - self.before
        self.context: Floats | None = None
        """Rows already given out, but still needed, and rows held back."""
        self.held = 0

    def add(self, rows: Floats) -> Floats:
        """Rows in; rows out whose neighbours are all known."""
        return self._advance(rows, self.after)

    def end(self) -> Floats:
        """The rows that waited for neighbours that never came."""
        if self.context is None:
            return np.empty((0, 1), np.float32)
        return self._advance(self.context[:0], 0)

    def _advance(self, rows: Floats, hold_back: int) -> Floats:
        if self.before + self.after == 0:
            return rows
        known = rows if self.context is None else np.concatenate([self.context, rows])
        fresh = self.held + len(rows)
        out = max(0, fresh - hold_back)
        first = len(known) - fresh
        self.held = fresh - out
        keep = min(len(known), self.before + self.held)
        self.context = known[len(known) - keep :].copy()
        if out == 0:
            return known[:0]
        result = known[first : first + out].copy()
        result[:, 0] = self._mean(known[:, 0], first, out)
        return result

    def _mean(self, scores: Floats, first: int, count: int) -> Floats:
        before, after = min(self.before, first + count - 1), min(self.after, len(scores) - 1 - first)
        padded = np.full(before + len(scores) + after, np.nan)
        padded[before : before + len(scores)] = scores
        known = ~np.isnan(padded)
        padded[~known] = 0.0
        total, scored = np.zeros(count), np.zeros(count, np.int64)
        for k in range(first, first + before + 1 + after):  # neighbour by neighbour: any width fits in memory
            total += padded[k : k + count]
            scored += known[k : k + count]
        own = scores[first : first + count]
        with np.errstate(invalid="ignore"):
            return np.where(np.isnan(own), np.nan, total / scored).astype(np.float32)
