"""Rows of many series in, scores of the same rows out: windows, batches, the engine, and back. Pure numpy."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from at_infer.errors import DataError, EngineError
from at_infer.scoring.windows import Floats, Layout, Merger, MovingMean, Starts

Bools = NDArray[np.bool_]
ShortSeries = Literal["error", "skip", "pad"]
BadRows = Literal["error", "null"]
ScoreWindows = Callable[[Floats], Floats]
"""Raw windows (B,N,F) -> channels (B,N,C), the score first."""


@dataclass(slots=True)
class Counts:
    """What happened to the rows."""

    rows: int = 0
    windows: int = 0
    bad_windows: int = 0
    """Windows not scored because of a bad row, or because the engine found no finite score."""
    series: int = 0
    short_series: int = 0
    """Series shorter than a window, skipped or padded."""


@dataclass(slots=True)
class _Series:
    """One series under way."""

    name: str
    merger: Merger
    mean: MovingMean
    first_row: int
    """Row of the whole input that it starts with."""
    buffer: Floats
    """The last rows: those that are in no window yet, and those that a tail window would reach back to."""
    bad: Bools
    rows: int = 0
    next_start: int = 0


@dataclass(slots=True)
class _Batch:
    """Windows waiting for the engine, and what to do with their scores."""

    windows: Floats
    filled: int = 0
    work: list[tuple[_Series, Starts, Bools] | _Series] = field(default_factory=list)
    """In order: windows of a series, or the end of a series."""


class RowScorer:
    """Scores a stream of rows. Chunks and series borders may fall anywhere; batches always hold the same windows.

    `skip_rows` rows at the start have been scored by an earlier run: batches that only matter for them do not go to
    the engine, and what comes out for them means nothing.
    """

    def __init__(
        self,
        score: ScoreWindows,
        layout: Layout,
        *,
        features: int,
        channels: int = 1,
        batch_size: int = 16,
        smooth: int = 1,
        short_series: ShortSeries = "error",
        on_bad_rows: BadRows = "error",
        skip_rows: int = 0,
    ) -> None:
        self.score, self.layout, self.channels = score, layout, channels
        self.smooth, self.short_series, self.on_bad_rows = smooth, short_series, on_bad_rows
        # A row that is still wanted may lean on this many rows before it.
        self.skip_before = skip_rows - layout.reach - smooth
        self.batch = _Batch(np.empty((batch_size, layout.window, features), np.float32))
        self.counts = Counts()
        self.series: _Series | None = None
        self.ready: list[Floats] = []

    def start_series(self, name: str) -> None:
        """The rows that follow belong to another series."""
        self.end_series()
        features = self.batch.windows.shape[2]
        self.series = _Series(
            name,
            self.layout.merger(),
            MovingMean(self.smooth, causal=self.layout.align == "last"),
            self.counts.rows,
            np.empty((0, features), np.float32),
            np.empty(0, np.bool_),
        )
        self.counts.series += 1

    def push(self, rows: Floats, bad: Bools | None = None) -> None:
        """Take rows (r,F) of the series; windows with a row marked bad get no score."""
        series, n = self.series, self.layout.window
        assert series is not None, "start_series comes first"
        series.buffer = np.concatenate([series.buffer, rows])
        series.bad = np.concatenate([series.bad, np.zeros(len(rows), np.bool_) if bad is None else bad])
        series.rows += len(rows)
        self.counts.rows += len(rows)
        starts = np.arange(series.next_start, series.rows - n + 1, self.layout.stride, dtype=np.int64)
        if len(starts):
            self._enqueue(series, starts)
            series.next_start = int(starts[-1]) + self.layout.stride
        keep = min(n, len(series.buffer))
        series.buffer, series.bad = series.buffer[-keep:], series.bad[-keep:]

    def end_series(self) -> None:
        """No more rows of this series."""
        series, n = self.series, self.layout.window
        if series is None:
            return
        self.series = None
        if series.rows < n:
            self._short(series)
        elif series.rows - n > series.next_start - self.layout.stride and self.layout.align == "window":
            self._enqueue(series, np.array([series.rows - n], np.int64))
        self.batch.work.append(series)

    def flush(self) -> None:
        """The input is over: score what is waiting."""
        self.end_series()
        self._run_batch()

    def take(self) -> list[Floats]:
        """Scores (r,C) that are final, in the order of the rows; each row is given out once."""
        ready, self.ready = self.ready, []
        return ready

    def _enqueue(self, series: _Series, starts: Starts) -> None:
        n = self.layout.window
        first = series.rows - len(series.buffer)  # row of the series that the buffer starts with
        views = sliding_window_view(series.buffer, n, axis=0)  # (rows, F, N), no copy
        at = starts - first
        spoiled = np.concatenate([[0], np.cumsum(series.bad)])
        bad = spoiled[at + n] > spoiled[at]
        self.counts.windows += len(starts)
        self.counts.bad_windows += int(bad.sum())
        done = 0
        batch = self.batch
        while done < len(starts):
            count = min(len(batch.windows) - batch.filled, len(starts) - done)
            part = slice(done, done + count)
            step = self.layout.stride
            chosen = views[at[done] : at[done] + (count - 1) * step + 1 : step]
            batch.windows[batch.filled : batch.filled + count] = chosen.transpose(0, 2, 1)
            batch.work.append((series, starts[part], bad[part]))
            batch.filled += count
            done += count
            if batch.filled == len(batch.windows):
                self._run_batch()

    def _run_batch(self) -> None:
        batch = self.batch
        if self._wanted():
            try:
                scores = self.score(batch.windows[: batch.filled])
            except EngineError as error:
                raise EngineError(f"{self._rows_of_batch()}: {error}") from None
        else:
            scores = np.zeros((batch.filled, self.layout.window, self.channels), np.float32)
        done = 0
        for item in batch.work:
            if isinstance(item, _Series):
                self._emit(item.mean.add(item.merger.end().reshape(-1, self.channels)))
                self._emit(item.mean.end())
                continue
            series, starts, bad = item
            of_windows = scores[done : done + len(starts)]
            done += len(starts)
            bad = bad | self._without_score(series, starts, of_windows, bad)
            if bad.any():
                of_windows = np.where(bad[:, None, None], np.float32(np.nan), of_windows)
            self._emit(series.mean.add(series.merger.add(starts, of_windows)))
        batch.filled = 0
        batch.work.clear()

    def _wanted(self) -> bool:
        """Does a row that an earlier run has not scored depend on this batch?"""
        if not self.batch.filled:
            return False
        series, starts, _ = next(item for item in reversed(self.batch.work) if not isinstance(item, _Series))
        return series.first_row + int(starts[-1]) + self.layout.window > self.skip_before

    def _without_score(self, series: _Series, starts: Starts, scores: Floats, bad: Bools) -> Bools:
        """Windows whose values are so large that the engine overflows: bad like those with a bad row, or an error."""
        overflown: Bools = ~np.isfinite(scores[..., 0]).all(axis=1) & ~bad
        if overflown.any() and self.on_bad_rows == "error":
            first = series.first_row + int(starts[overflown.argmax()])
            last = min(first + self.layout.window, self.counts.rows) - 1
            raise DataError(
                f"rows {first} to {last}: the engine finds no finite score, a value is far too large; mend the row, "
                f"or pass --on-bad-rows null"
            )
        self.counts.bad_windows += int(overflown.sum())
        return overflown

    def _rows_of_batch(self) -> str:
        """For messages."""
        groups = [item for item in self.batch.work if not isinstance(item, _Series)]
        (first, starts, _), (last, ends, _) = groups[0], groups[-1]
        begin, end = first.first_row + int(starts[0]), last.first_row + int(ends[-1]) + self.layout.window
        return f"rows {begin} to {min(end, self.counts.rows) - 1}"  # a padded series ends before its window

    def _emit(self, rows: Floats) -> None:
        if len(rows):
            self.ready.append(rows)

    def _short(self, series: _Series) -> None:
        """A series without a single full window."""
        n = self.layout.window
        if self.short_series == "error" or (self.short_series == "pad" and series.rows == 0):
            name = f"series {series.name!r}" if series.name else "the input"
            ways = "skip or pad" if series.rows else "skip"
            raise DataError(
                f"{name}: has {series.rows} rows, fewer than the model's window of {n}; pass --short-series {ways}"
            )
        self.counts.short_series += 1
        if self.short_series == "skip":
            series.merger = _Unscored(np.full((series.rows, self.channels), np.nan, np.float32))
            return
        # The first row repeated in front, as if nothing had happened before.
        missing = n - series.rows
        series.buffer = np.concatenate([np.repeat(series.buffer[:1], missing, axis=0), series.buffer])
        series.bad = np.concatenate([np.repeat(series.bad[:1], missing), series.bad])
        series.merger = _Padded(missing)
        series.rows = n
        self._enqueue(series, np.zeros(1, np.int64))


@dataclass(slots=True)
class _Unscored:
    """A series that is skipped: its rows come out without a score."""

    rows: Floats

    def add(self, starts: Starts, scores: Floats) -> Floats:
        raise NotImplementedError

    def end(self) -> Floats:
        return self.rows


@dataclass(slots=True)
class _Padded:
    """A series filled up in front to one window: the padding is dropped again."""

    padding: int

    def add(self, starts: Starts, scores: Floats) -> Floats:  # noqa: ARG002 - there is one window
        return scores[0, self.padding :]

    def end(self) -> Floats:
        return np.empty((0, 1), np.float32)
