"""The scoring core: rows of any number of series in, scores of the same rows out. Pure numpy.

`push` fills gaps, finds bad rows and cuts windows; the engine scores full batches of them; what comes back is merged to
one score per row, smoothed, and given out by `take`. File, cluster, stream and Python scoring all call this.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from at_infer.errors import DataError, EngineError
from at_infer.models.season import Seconds
from at_infer.scoring.missing import Filler
from at_infer.scoring.series import (
    Bools,
    Padded,
    ScoredRows,
    ScoringCounts,
    SeriesState,
    Unscored,
    short_series_message,
)
from at_infer.scoring.settings import RowSettings
from at_infer.scoring.windows import Floats, Starts

ScoreWindows = Callable[[Floats], Floats]
"""Raw windows (B,N,F) -> what the engine says of each row (B,N,C)."""


class _Windows(NamedTuple):
    """Windows of one series in a batch."""

    series: SeriesState
    starts: Starts
    bad: Bools


class _Until(NamedTuple):
    """So many rows of the series have come."""

    series: SeriesState
    rows: int


@dataclass(slots=True)
class _Batch:
    """Windows waiting for the engine, and what to do with their scores."""

    windows: Floats
    filled: int = 0
    work: list[_Windows | _Until | SeriesState] = field(default_factory=list)
    """In order: windows of a series, rows that have come, or the end of a series."""


class RowScorer:
    """Scores streams of rows. Chunks and borders of series may fall anywhere; batches always hold the same windows.

    `skip_rows` rows at the start have been scored by an earlier run: batches that only matter for them do not go to
    the engine, and what comes out for them means nothing. Windows that end outside of the rows `counted` are not
    counted: those of a halo.
    """

    def __init__(
        self,
        score: ScoreWindows,
        settings: RowSettings,
        *,
        batch_size: int,
        skip_rows: int = 0,
        counted: range | None = None,
    ) -> None:
        self.score, self.settings, self.layout, self.counted = score, settings, settings.layout, counted
        # A row that is still wanted may depend on this many rows before it.
        self.skip_before = skip_rows - settings.lookback
        self.batch = _Batch(np.empty((batch_size, self.layout.window, len(settings.columns)), np.float32))
        self.counts = ScoringCounts()
        self.ready: list[ScoredRows] = []

    def start(self, name: str = "", *, last: Floats | None = None) -> SeriesState:
        """A series begins; `last` are values before its first row that gaps may repeat."""
        settings = self.settings
        self.counts.series += 1
        return SeriesState(
            name,
            Filler(settings.fill, settings.mean, last),
            self.layout.merger(settings.window_channels),
            settings.finish(),
            self.counts.rows,
            np.empty((0, len(settings.columns)), np.float32),
            np.empty(0, np.bool_),
        )

    def push(
        self,
        series: SeriesState,
        rows: Floats,
        where: str = "rows",
        first_row: int = 0,
        times: Seconds | None = None,
    ) -> None:
        """Take the next rows (r,F) of a series, changed in place; `where` and `first_row` are for messages.

        A model with a season needs their times, in seconds since 1970.
        """
        if self.settings.season is not None:
            self.settings.season.subtract(rows, times)
        bad = self._prepare(series, rows, where, first_row)
        n, stride = self.layout.window, self.layout.stride
        series.buffer = np.concatenate([series.buffer, rows])
        series.bad = np.concatenate([series.bad, bad])
        series.rows += len(rows)
        self.counts.rows += len(rows)
        starts = np.arange(series.next_start, series.rows - n + 1, stride, dtype=np.int64)
        if len(starts):
            self._enqueue(series, starts)
            series.next_start = int(starts[-1]) + stride
        scored = series.next_start - stride + n if series.next_start else 0  # rows that end a window, or are before
        if self.layout.align == "last" and scored < series.rows:
            self.batch.work.append(_Until(series, series.rows))
        keep = min(n, len(series.buffer))
        series.buffer, series.bad = series.buffer[-keep:], series.bad[-keep:]

    def end(self, series: SeriesState) -> None:
        """No more rows of this series."""
        n = self.layout.window
        if series.rows < n:
            self._short(series)
        elif series.rows - n > series.next_start - self.layout.stride and self.layout.align == "window":
            self._enqueue(series, np.array([series.rows - n], np.int64))
        self.batch.work.append(series)

    def flush(self) -> None:
        """Score what is waiting."""
        if self.batch.work:
            self._run_batch()

    def take(self) -> list[ScoredRows]:
        """Scores that are final; each row is given out once, the rows of a series in order."""
        ready, self.ready = self.ready, []
        return ready

    def _prepare(self, series: SeriesState, rows: Floats, where: str, first_row: int) -> Bools:
        """Fill gaps in place by the model's policy; a row that is still not finite is bad, or an error."""
        complete = np.isfinite(rows).all()
        series.filler.apply(rows)  # it remembers the last row
        if complete or (finite := np.isfinite(rows)).all():
            return np.zeros(len(rows), np.bool_)
        if self.settings.on_bad_rows == "error":
            row, j = (int(i) for i in np.argwhere(~finite)[0])
            what = "has no value" if np.isnan(rows[row, j]) else "is infinite, or too large for float32,"
            raise DataError(
                f"{where}: column {self.settings.columns[j]!r} {what} in row {first_row + row}; mend the row, or pass "
                f"on_bad_rows='null'"
            )
        rows[~finite] = 0.0  # never seen: windows with this row get no score
        return np.asarray(~finite.all(axis=1))

    def _enqueue(self, series: SeriesState, starts: Starts) -> None:
        n = self.layout.window
        first = series.rows - len(series.buffer)  # row of the series that the buffer starts with
        views = sliding_window_view(series.buffer, n, axis=0)  # (rows, F, N), no copy
        at = starts - first
        bad = np.zeros(len(starts), np.bool_)
        if series.bad.any():
            before = np.concatenate([[0], np.cumsum(series.bad)])
            bad = before[at + n] > before[at]
        self._count(series, starts, bad)
        done = 0
        batch = self.batch
        while done < len(starts):
            count = min(len(batch.windows) - batch.filled, len(starts) - done)
            part = slice(done, done + count)
            step = self.layout.stride
            chosen = views[at[done] : at[done] + (count - 1) * step + 1 : step]
            batch.windows[batch.filled : batch.filled + count] = chosen.transpose(0, 2, 1)
            batch.work.append(_Windows(series, starts[part], bad[part]))
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
            scores = np.zeros((batch.filled, self.layout.window, self.settings.window_channels), np.float32)
        done = 0
        for item in batch.work:
            match item:
                case SeriesState():
                    self._emit(item, item.finisher.add(item.merger.end(item.rows)))
                    self._emit(item, item.finisher.end())
                case _Until(series, rows):
                    self._emit(series, series.finisher.add(series.merger.until(rows)))
                case _Windows(series, starts, bad):
                    of_windows = scores[done : done + len(starts)]
                    done += len(starts)
                    bad = bad | self._without_score(series, starts, of_windows, bad)
                    if bad.any():
                        of_windows = np.where(bad[:, None, None], np.float32(np.nan), of_windows)
                    self._emit(series, series.finisher.add(series.merger.add(starts, of_windows)))
        batch.filled = 0
        batch.work.clear()

    def _wanted(self) -> bool:
        """Does a row that an earlier run has not scored depend on this batch?"""
        if not self.batch.filled:
            return False
        last = next(item for item in reversed(self.batch.work) if isinstance(item, _Windows))
        return last.series.first_row + int(last.starts[-1]) + self.layout.window > self.skip_before

    def _count(self, series: SeriesState, starts: Starts, bad: Bools, *, again: bool = False) -> None:
        """Count windows, or with `again` only what has turned out to be bad."""
        owned = np.ones(len(starts), np.bool_)
        if self.counted is not None:
            last = np.minimum(series.first_row + starts + self.layout.window, self.counts.rows) - 1
            owned = (last >= self.counted.start) & (last < self.counted.stop)
        self.counts.windows += 0 if again else int(owned.sum())
        self.counts.bad_windows += int((bad & owned).sum())

    def _without_score(self, series: SeriesState, starts: Starts, scores: Floats, bad: Bools) -> Bools:
        """Windows whose values are so large that the engine overflows: bad like those with a bad row, or an error."""
        if self.settings.on_bad_rows == "keep":
            return np.zeros(len(starts), np.bool_)
        overflown: Bools = ~np.isfinite(scores).all(axis=(1, 2)) & ~bad
        if overflown.any():
            if self.settings.on_bad_rows == "error":
                first = series.first_row + int(starts[overflown.argmax()])
                last = min(first + self.layout.window, self.counts.rows) - 1
                raise DataError(
                    f"rows {first} to {last}: the engine finds no finite score, a value is far too large; mend the "
                    f"row, or pass on_bad_rows='null'"
                )
            self._count(series, starts, overflown, again=True)
        return overflown

    def _rows_of_batch(self) -> str:
        """For messages."""
        groups = [item for item in self.batch.work if isinstance(item, _Windows)]
        first, last = groups[0], groups[-1]
        begin = first.series.first_row + int(first.starts[0])
        end = last.series.first_row + int(last.starts[-1]) + self.layout.window
        return f"rows {begin} to {min(end, self.counts.rows) - 1}"  # a padded series ends before its window

    def _emit(self, series: SeriesState, rows: Floats) -> None:
        if len(rows):
            self.ready.append(ScoredRows(series, rows))

    def _short(self, series: SeriesState) -> None:
        """A series without a single full window."""
        n, policy = self.layout.window, self.settings.short_series
        if policy == "error" or (policy == "pad" and series.rows == 0):
            raise DataError(short_series_message(series.name, series.rows, n))
        self.counts.short_series += 1
        if policy == "skip":
            if self.layout.align == "window":  # the other one gives out rows without a score by itself
                series.merger = Unscored(self.settings.window_channels)
            return
        # The first row repeated in front, as if nothing had happened before.
        missing = n - series.rows
        series.buffer = np.concatenate([np.repeat(series.buffer[:1], missing, axis=0), series.buffer])
        series.bad = np.concatenate([np.repeat(series.bad[:1], missing), series.bad])
        series.merger = Padded(self.settings.window_channels, missing)
        series.rows = n
        self._enqueue(series, np.zeros(1, np.int64))
