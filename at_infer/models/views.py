"""Views of a series: what of each feature at each row may be unusual. Streams of rows in, signed views out. Pure numpy.

Rows are scaled, in order, of one series. What is a function of a window (reconstruction, shape) comes from the engine;
here is what needs more rows than a window has: linear predictions, activity, and the recent level.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Level

Floats = NDArray[np.float32]


class Remembering:
    """What a stream needs to go on after a restart: numbers and arrays by name; None is left out."""

    kept: tuple[str, ...]

    def remember(self) -> dict[str, Any]:
        """As they are now."""
        return {name: value for name in self.kept if (value := getattr(self, name)) is not None}

    def recall(self, kept: dict[str, Any]) -> None:
        """As they were."""
        for name in self.kept:
            setattr(self, name, kept.get(name))


View = Literal["shape", "next", "ahead", "activity next", "activity ahead", "level"]

VIEWS: tuple[View, ...] = get_args(View)
"""The level is the last one, so that it can be left out."""
NEXT, AHEAD = range(1, 21), range(5, 25)
"""Lags of the rows that the two linear predictions see."""
ACTIVITY = 50
"""Rows over which activity is measured."""
FLOOR = np.float32(1e-4)
"""In squared units of the scaler: a hundredth of a standard deviation."""
LEVEL_STEP, LEVEL_ROWS, LEVEL_LAG, LEVEL_LEAST = 20, 50, 25, 5
"""The recent level is the median of every 20th row, 50 of them, at least 25 rows before the block of 20."""


def lookback(level: Level) -> int:
    """How many rows before a row its views may depend on."""
    reach = max(AHEAD) + ACTIVITY // 2
    return max(reach, LEVEL_STEP * (LEVEL_ROWS + 1) + LEVEL_LAG) if level == "recent" else reach


class LinearPrediction(Remembering):
    """Each feature by itself, from earlier rows of it; a row with too few before it counts as predicted as usual."""

    kept = ("past", "seen")

    def __init__(self, lags: range, coefficients: Floats, usual: Floats) -> None:
        """`usual` is the error (F,) of a normal row."""
        self.usual, self.seen = usual, 0
        self.lags, self.coefficients = lags, np.ascontiguousarray(coefficients.T)  # (p+1,F), the intercept last
        self.past: Floats | None = None
        """The last rows, as many as the largest lag."""

    def errors(self, x: Floats) -> Floats:
        """x (n,F) minus its prediction, signed."""
        reach = max(self.lags)
        past = np.repeat(x[:1], reach, axis=0) if self.past is None else self.past
        known = np.concatenate([past, x])
        self.past = known[len(known) - reach :].copy()
        errors: Floats = x - self.coefficients[-1]
        for lag, coefficient in zip(self.lags, self.coefficients, strict=False):  # in this order, whatever the pieces
            errors -= known[reach - lag : len(known) - lag] * coefficient
        errors[: max(0, reach - self.seen)] = self.usual
        self.seen += len(x)
        return errors


Prediction = tuple[Floats, Floats]
"""Coefficients (F,p+1) of a linear prediction, and its error (F,) on normal rows."""


class RecentLevel(Remembering):
    """Running median of residuals over about a thousand rows; a step becomes the new level late and at once."""

    kept = ("number", "rows", "first_row", "early", "block", "median")

    def __init__(self, number: int) -> None:
        self.number = number
        """Of the next row in its series: every 20th of the whole series counts, wherever a stream begins."""
        self.rows: Floats | None = None
        self.first_row = -(-number // LEVEL_STEP) * LEVEL_STEP
        self.early: Floats | None = None
        """All rows so far, while too few are old enough."""
        self.block = -1
        self.median: Floats | None = None

    def of(self, residuals: Floats) -> Floats:
        """The level at each of the next rows (n,F)."""
        numbers = np.arange(self.number, self.number + len(residuals))
        fresh = residuals[(-self.number) % LEVEL_STEP :: LEVEL_STEP]
        kept = fresh if self.rows is None else np.concatenate([self.rows, fresh])
        early = residuals if self.early is None else np.concatenate([self.early, residuals])
        blocks = numbers // LEVEL_STEP * LEVEL_STEP
        level = np.empty_like(residuals)
        for block in np.unique(blocks).tolist():
            rows = np.flatnonzero(blocks == block)
            old = (block - LEVEL_LAG - self.first_row) // LEVEL_STEP + 1  # kept rows that are old enough
            if old >= LEVEL_LEAST:
                level[rows] = self._of_block(block, kept, old)
            else:
                begin = len(early) - len(residuals)
                for row in rows.tolist():
                    level[row] = np.median(early[: begin + row + 1], axis=0)
        self.number += len(residuals)
        surplus = max(0, len(kept) - (LEVEL_ROWS + LEVEL_LAG // LEVEL_STEP + 1))
        self.rows, self.first_row = kept[surplus:].copy(), self.first_row + surplus * LEVEL_STEP
        self.early = None if old >= LEVEL_LEAST else early
        return level

    def _of_block(self, block: int, kept: Floats, old: int) -> Floats:
        if block != self.block or self.median is None:
            self.block = block
            self.median = np.median(kept[max(0, old - LEVEL_ROWS) : old], axis=0).astype(np.float32)
        return self.median


class MovingMeans(Remembering):
    """Means over rows t - before .. t + after that exist, for several spans at once; rows in, rows out when known."""

    kept = ("context", "first", "done")

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self.spans = spans
        self.before, self.after = (max(span[side] for span in spans) for side in (0, 1))
        self.context: Floats | None = None
        self.first = 0
        """Row of the stream that the context begins with."""
        self.done = 0

    def add(self, rows: Floats, *, end: bool = False) -> list[Floats]:
        """The means of each span, for rows whose neighbours are all known, or do not come because this is the end."""
        known = rows if self.context is None else np.concatenate([self.context, rows])
        total = self.first + len(known)
        ready = max(self.done, total if end else total - self.after)
        found = [self._mean(known, ready, total, *span) for span in self.spans]
        keep = max(0, ready - self.before - self.first)
        self.context, self.first, self.done = known[keep:].copy(), self.first + keep, ready
        return found

    def _mean(self, known: Floats, ready: int, total: int, before: int, after: int) -> Floats:
        """Of rows `done` to `ready`; sums are formed alike whatever the pieces, so that the last bit is the same."""
        count = ready - self.done
        if not count:
            return known[:0]
        begin, end = self.done - before - self.first, ready + after - self.first
        inside = known[max(0, begin) : min(len(known), end)]
        padded = np.zeros((end - begin, known.shape[1]), np.float32)
        padded[max(0, -begin) : max(0, -begin) + len(inside)] = inside
        rows = np.arange(self.done, ready)
        exist = (np.minimum(rows + after + 1, total) - np.maximum(rows - before, 0)).astype(np.float32)
        return np.divide(window_sums(padded, before + 1 + after), exist[:, None])


def window_sums(rows: Floats, width: int) -> Floats:
    """Sums of each `width` consecutive rows (n,C) -> (n - width + 1,C), by doubling: no cancellation, few passes."""
    count = len(rows) - width + 1
    total: Floats | None = None
    power, offset, sums = 1, 0, rows
    while power <= width:
        if width & power:
            part = sums[offset : offset + count]
            total = part.copy() if total is None else total + part
            offset += power
        sums, power = sums[:-power] + sums[power:], 2 * power
    assert total is not None
    return total


class SeriesViews:
    """Signed views of one series, row by row."""

    def __init__(self, predictions: Sequence[Prediction], *, causal: bool, level: Level, number: int) -> None:
        """`predictions` are of the next row and ahead; `number` is that of the first row in its series."""
        (next_, next_usual), (ahead, ahead_usual) = predictions
        self.next = LinearPrediction(NEXT, next_, next_usual)
        self.ahead = LinearPrediction(AHEAD, ahead, ahead_usual)
        self.level = RecentLevel(number) if level == "recent" else None
        half = ACTIVITY // 2
        self.means = MovingMeans([(half, 0 if causal else ACTIVITY - 1 - half)])
        self.waiting = np.empty((0, 4 * len(next_)), np.float32)

    def add(self, x: Floats, residual: Floats, shape: Floats, *, end: bool = False) -> Floats:
        """Scaled rows, their residuals and shapes, each (n,F) -> views (m,6F) of rows that are known now."""
        errors = np.empty((0, 2 * x.shape[1]), np.float32)
        if len(x):
            errors = np.concatenate([self.next.errors(x), self.ahead.errors(x)], axis=1)
            level = residual if self.level is None else residual - self.level.of(residual)
            self.waiting = np.concatenate([self.waiting, np.concatenate([shape, errors, level], axis=1)])
        with np.errstate(over="ignore"):
            (activity,) = self.means.add(np.square(errors), end=end)
        known, self.waiting = self.waiting[: len(activity)], self.waiting[len(activity) :]
        without_level = 3 * x.shape[1]
        return np.concatenate([known[:, :without_level], np.log(activity + FLOOR), known[:, without_level:]], axis=1)

    def remember(self) -> dict[str, Any]:
        """Numbers and arrays by name; nothing waits in a causal stream."""
        return {name + key: value for name, part in self._parts().items() for key, value in part.remember().items()}

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""
        for name, part in self._parts().items():
            part.recall({key.removeprefix(name): value for key, value in kept.items() if key.startswith(name)})

    def _parts(self) -> dict[str, Remembering]:
        parts: dict[str, Remembering | None] = {
            "next.": self.next,
            "ahead.": self.ahead,
            "level.": self.level,
            "means.": self.means,
        }
        return {name: part for name, part in parts.items() if part is not None}
