"""Rows <-> windows: where windows start, and which window scores a row. Pure numpy, any chunking.

Scores of a window have C channels: the score itself, and whatever is asked for beside it. NaN means not scored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from at_infer.config import Align, Config
from at_infer.errors import ConfigError

Floats = NDArray[np.float32]
Starts = NDArray[np.int64]

FEW_ROWS = 32
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
DELAYED = (
    "a row is scored by the window that ends {delay} rows behind it, within its series; the first {warm_up} rows of a "
    "series have no full window and no score, the last {delay} are scored by its last window"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLayout(Config):
    """How windows are laid over the rows of a series."""

    _earlier: ClassVar[Mapping[str, Any]] = {"delay": 0}

    window: int
    stride: int
    """Rows from one window to the next; with align `last`, every `stride`-th row is scored."""
    align: Align = "window"
    delay: int = 0
    """With align `last`: rows that must follow before a row is scored."""

    def __post_init__(self) -> None:
        self._choice("align", Align)
        if self.stride < 1 or (self.align == "window" and self.stride > self.window):
            raise ConfigError(f"stride: {self.stride} is not between 1 and the window's length, {self.window}")
        if self.delay and self.align == "window":
            raise ConfigError("delay: a delay needs rows that are scored one by one; use align 'last'")
        if not 0 <= self.delay < self.window:
            raise ConfigError(f"delay: {self.delay} is not between 0 and the window's length, {self.window}")

    @property
    def rule(self) -> str:
        """The rule in words."""
        if self.align == "last":
            warm_up = self.window - 1 - self.delay
            return (DELAYED if self.delay else CAUSAL).format(warm_up=warm_up, delay=self.delay)
        return ALIGNMENT if self.stride == self.window else OVERLAPPING.format(stride=self.stride)

    @property
    def reach(self) -> int:
        """How many rows before or behind a row may share a window with it."""
        return self.window - 1

    def merger(self, channels: int) -> "Merger":
        """A fresh merger, for one series."""
        if self.align == "last":
            return LastOfWindow(self.window, self.delay, channels)
        return FirstWindow(channels) if self.stride == self.window else MeanOfWindows(channels)


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

    def until(self, rows: int) -> Floats:
        """So many rows of the series have come, and their windows were added: rows that get no score (r,C)."""

    def end(self, rows: int) -> Floats:
        """The series ends after this many rows: returns the remaining ones (r,C)."""


@dataclass(slots=True)
class FirstWindow:
    """A row is scored by the first window that covers it."""

    channels: int
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

    def until(self, rows: int) -> Floats:  # noqa: ARG002 - every row is in a window
        """None."""
        return np.empty((0, self.channels), np.float32)

    def end(self, rows: int) -> Floats:  # noqa: ARG002 - they are all out
        """Nothing is held back."""
        return np.empty((0, self.channels), np.float32)


class MeanOfWindows:
    """A row gets the mean over the windows that cover it; a window scored NaN has no say."""

    def __init__(self, channels: int) -> None:
        self.first = 0
        """Row that the first entry of the sums belongs to."""
        self.sums = np.zeros((0, channels))
        self.counts = np.zeros(0, np.int64)

    def add(self, starts: Starts, scores: Floats) -> Floats:
        """A later window starts later, so the rows up to this start are final."""
        _, n, c = scores.shape
        grow = int(starts[-1]) + n - self.first - len(self.sums)
        self.sums = np.concatenate([self.sums, np.zeros((grow, c))])
        self.counts = np.concatenate([self.counts, np.zeros(grow, np.int64)])
        for start, of_window in zip((starts - self.first).tolist(), scores, strict=True):
            if not np.isnan(of_window[0, 0]):
                self.sums[start : start + n] += of_window
                self.counts[start : start + n] += 1
        return self._take(int(starts[-1]) + 1 - self.first)

    def until(self, rows: int) -> Floats:  # noqa: ARG002 - every row is in a window
        """None."""
        return self._take(0)

    def end(self, rows: int) -> Floats:  # noqa: ARG002 - the sums know it
        """All that is left."""
        return self._take(len(self.sums))

    def _take(self, rows: int) -> Floats:
        with np.errstate(invalid="ignore"):
            final = (self.sums[:rows] / self.counts[:rows, None]).astype(np.float32)  # 0 / 0: no window had a say
        self.sums, self.counts, self.first = self.sums[rows:], self.counts[rows:], self.first + rows
        return final


class LastOfWindow:
    """A row is scored by the window that ends with it, or `delay` rows behind it: what a live system would have seen.

    Rows between the ends of two windows, and before the first, get no score.
    """

    def __init__(self, window: int, delay: int, channels: int) -> None:
        self.at = window - 1 - delay
        """Row of a window that it scores."""
        self.delay = delay
        self.done = 0
        self.tail = np.empty((0, channels), np.float32)
        """Scores of the last window for the rows after the one it scores."""
        self.tail_first = 0

    def add(self, starts: Starts, scores: Floats) -> Floats:
        """The rows that the windows score, and those before each; of a window, the last rows are enough."""
        at = scores.shape[1] - 1 - self.delay
        if len(starts) == 1 and starts[0] + self.at == self.done:  # the next row, as live
            self.done += 1
            self.tail, self.tail_first = scores[0, at + 1 :], self.done
            return scores[:, at]
        numbers = starts + self.at - self.done
        rows = np.full((int(numbers[-1]) + 1, scores.shape[2]), np.nan, np.float32)
        rows[numbers] = scores[:, at]
        self.done += len(rows)
        self.tail, self.tail_first = scores[-1, at + 1 :], self.done
        return rows

    def until(self, rows: int) -> Floats:
        """Rows that no window scores, because it is not their turn or the series is too young."""
        more = max(0, rows - self.delay - self.done)
        self.done += more
        return np.full((more, self.tail.shape[1]), np.nan, np.float32)

    def end(self, rows: int) -> Floats:
        """The last rows of a series have nothing behind them to wait for: the last window scores them."""
        left = np.full((rows - self.done, self.tail.shape[1]), np.nan, np.float32)
        known = self.tail[self.done - self.tail_first :]
        left[: len(known)] = known
        return left


class MovingMean:
    """Moving mean of the first channel over `width` rows of one series: centred, or over the past if causal.

    With `onset`, one more channel has the mean over the earlier half of these rows, which depends on no later one.

    It is the mean of the rows that exist and are scored; at the ends of a series there are fewer. A row that is
    not scored stays so.
    """

    def __init__(self, width: int, *, causal: bool, onset: bool = False) -> None:
        self.onset = onset
        self.before = width - 1 if causal else width // 2
        self.after = width - 1 - self.before
        self.context: Floats | None = None
        """Rows already given out, but still needed, and rows held back."""
        self.held = 0

    def add(self, rows: Floats) -> Floats:
        """Rows in; rows out whose neighbours are all known."""
        return self._advance(rows, self.after)

    is_steady = False
    """Its rows have no faster way."""

    def end(self) -> Floats:
        """The rows that waited for neighbours that never came."""
        return np.empty((0, 1), np.float32) if self.context is None else self._advance(self.context[:0], 0)

    def remember(self) -> dict[str, Any]:
        """State that the means of later rows depend on, for a causal mean, which delays no row."""
        return {} if self.context is None else {"context": self.context}

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""
        self.context = kept.get("context")

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
            return np.empty((0, known.shape[1] + self.onset), np.float32)
        result = known[first : first + out].copy()
        result[:, 0] = self._mean(known[:, 0], first, out, self.after)
        if self.onset:
            past = self._mean(known[:, 0], first, out, 0)
            result = np.concatenate([result, past[:, None]], axis=1)
        return result

    def _mean(self, scores: Floats, first: int, count: int, after: int) -> Floats:
        before, after = min(self.before, first + count - 1), min(after, len(scores) - 1 - first)
        width = before + 1 + after
        padded = np.full(before + len(scores) + after, np.nan)
        padded[before : before + len(scores)] = scores
        padded = padded[first : first + count + width - 1]
        known = ~np.isnan(padded)
        padded[~known] = 0.0
        total, scored = np.zeros(count), np.zeros(count, np.int64)
        if count < FEW_ROWS:  # added one by one as below, so that the last bit is the same
            total = np.cumsum(sliding_window_view(padded, width), axis=1)[:, -1]
            scored = sliding_window_view(known, width).sum(axis=1)
        else:
            for k in range(width):  # neighbour by neighbour: any width fits in memory
                total += padded[k : k + count]
                scored += known[k : k + count]
        own = scores[first : first + count]
        with np.errstate(invalid="ignore"):
            return np.where(np.isnan(own), np.nan, total / scored).astype(np.float32)
