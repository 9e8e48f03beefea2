"""The scoring core: rows of any number of series in, scores of the same rows out. Pure numpy.

`push` finds gaps in time, fills missing values, finds bad rows and cuts windows; the engine scores full batches of
them; what comes back is merged to one score per row, smoothed, and given out by `take`. File, cluster, stream and
Python scoring all call this.
"""

from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from at_infer.errors import DataError, EngineError
from at_infer.models.spacing import Times, find_gaps
from at_infer.scoring.batches import Batch, BatchQueue, Until, Windows
from at_infer.scoring.missing import Filler, MissingFeatures
from at_infer.scoring.series import (
    Bools,
    Padded,
    ScoredRows,
    ScoringCounts,
    SeriesState,
    Stretch,
    Unscored,
    short_series_message,
)
from at_infer.scoring.settings import RowSettings
from at_infer.scoring.single_rows import SingleRows
from at_infer.scoring.windows import Floats, Starts

ScoreWindows = Callable[[Floats], Floats]
"""Raw windows (B,N,F) -> what the engine says of each row (B,N,C)."""


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
        workers: Executor | None = None,
        lanes: int = 0,
    ) -> None:
        """With `workers`, up to `lanes` batches are in the engine at once, and a few more are ready for it."""
        self.score, self.settings, self.layout, self.counted = score, settings, settings.layout, counted
        # A row that is still wanted may depend on this many rows before it.
        self.skip_before = skip_rows - settings.lookback
        self.width = len(settings.columns) * (1 + settings.mask)
        shape = (batch_size, self.layout.window, self.width)
        self.batches = BatchQueue(self._scored, self._merge, shape, workers=workers, lanes=lanes)
        self.counts = ScoringCounts()
        self.single = SingleRows.of(self, batch_size)
        """A faster way for single rows of series that are under way, if there is one."""
        self.ready: list[ScoredRows] = []

    def start(self, name: str = "", *, last: Floats | None = None) -> SeriesState:
        """A series begins; `last` are values before its first row that missing ones may repeat."""
        self.counts.series += 1
        series = SeriesState(name)
        series.stretch = self._stretch(series, last)
        return series

    def _stretch(self, series: SeriesState, last: Floats | None = None) -> Stretch:
        settings = self.settings
        return Stretch(
            series,
            Filler(settings.filling, settings.mean, last),
            self.layout.merger(settings.window_channels),
            settings.finish(),
            self.counts.rows,
            np.empty((0, self.width), np.float32),
            missing=MissingFeatures(settings.fill, len(settings.columns)) if settings.mask else None,
        )

    def push(
        self,
        series: SeriesState,
        rows: Floats,
        where: str = "rows",
        first_row: int = 0,
        times: Times | None = None,
    ) -> None:
        """Take the next rows (r,F) of a series, changed in place; `where` and `first_row` are for messages.

        A model with a season needs their times, in seconds since 1970; gaps are found by them.
        """
        if self.settings.season is not None:
            self.settings.season.subtract(rows, times)
        done = 0
        if self.settings.longest_step is not None and times is not None and len(times):
            for gap in find_gaps(times, self.settings.longest_step, series.time).tolist():
                if gap > done:
                    self._push(series.stretch, rows[done:gap], where, first_row + done)
                self._cross_gap(series)
                done = gap
            series.time = float(times[-1])
        self._push(series.stretch, rows[done:], where, first_row + done)

    def end(self, series: SeriesState) -> None:
        """No more rows of this series."""
        n, policy = self.layout.window, self.settings.short_series
        longest = max(series.longest, series.stretch.rows)
        if longest < n:
            if policy == "error" or (policy == "pad" and longest == 0):
                raise DataError(short_series_message(series.name, longest, n, gaps=series.gaps > 0))
            self.counts.short_series += 1
        self._end(series.stretch)

    def _cross_gap(self, series: SeriesState) -> None:
        """The next rows are independent of those before."""
        series.gaps, series.longest = series.gaps + 1, max(series.longest, series.stretch.rows)
        self._end(series.stretch)
        series.stretch = self._stretch(series)
        self.counts.gaps += 1

    def _push(self, stretch: Stretch, rows: Floats, where: str, first_row: int) -> None:
        mask = None if stretch.missing is None else stretch.missing.mask(rows)
        bad = self._prepare(stretch, rows, where, first_row)
        if mask is not None:
            self._count_missing(mask)
            rows = np.concatenate([rows, mask], axis=1)
        n, stride = self.layout.window, self.layout.stride
        stretch.append(rows, bad)
        self.counts.rows += len(rows)
        if stretch.next_start <= stretch.rows - n:
            starts = np.arange(stretch.next_start, stretch.rows - n + 1, stride, dtype=np.int64)
            self._enqueue(stretch, starts)
            stretch.next_start = int(starts[-1]) + stride
        scored = stretch.next_start - stride + n if stretch.next_start else 0  # rows that end a window, or are before
        if self.layout.align == "last" and scored < stretch.rows:
            self.batches.batch.work.append(Until(stretch, stretch.rows))
        stretch.keep(n)

    def _end(self, stretch: Stretch) -> None:
        n = self.layout.window
        if stretch.rows < n:
            self._short(stretch)
        elif stretch.rows - n > stretch.next_start - self.layout.stride and self.layout.align == "window":
            self._enqueue(stretch, np.array([stretch.rows - n], np.int64))
        self.batches.batch.work.append(stretch)

    def flush(self) -> None:
        """Score the pending windows."""
        self.batches.flush(self.counts.rows)

    def settle(self) -> None:
        """Wait for full batches that are in the engine."""
        self.batches.settle()

    def take(self) -> list[ScoredRows]:
        """Scores that are final; each row is given out once, the rows of a series in order."""
        ready, self.ready = self.ready, []
        return ready

    def _prepare(self, stretch: Stretch, rows: Floats, where: str, first_row: int) -> Bools | None:
        """Fill missing values in place by the model's policy; a row that is still not finite is bad, or an error."""
        complete = bool(np.isfinite(rows).all())
        nothing = np.isnan(rows).all(axis=1) if stretch.missing is not None else None
        stretch.filler.apply(rows, complete=complete)  # it remembers the last row
        if nothing is not None:
            rows[nothing] = np.nan
        if complete or (finite := np.isfinite(rows)).all():
            return None
        if self.settings.on_bad_rows == "error":
            row, j = (int(i) for i in np.argwhere(~finite)[0])
            what = "has no value" if np.isnan(rows[row, j]) else "is infinite, or too large for float32,"
            raise DataError(
                f"{where}: column {self.settings.columns[j]!r} {what} in row {first_row + row}; fix the row, or pass "
                f"on_bad_rows='null'"
            )
        rows[~finite] = 0.0  # never seen: windows with this row get no score
        return np.asarray(~finite.all(axis=1))

    def _enqueue(self, stretch: Stretch, starts: Starts) -> None:
        n = self.layout.window
        first = stretch.rows - len(stretch.buffer)  # row of the stretch that the buffer starts with
        at = starts - first
        bad = None
        if stretch.bad is not None:
            before = np.concatenate([[0], np.cumsum(stretch.bad)])
            bad = before[at + n] > before[at]
        self._count(stretch, starts, bad, self.counts.rows)
        if len(starts) == 1:  # a live row: without views of many windows
            begin = int(at[0])
            self.batches.batch.add(Windows(stretch, starts, bad), stretch.buffer[None, begin : begin + n])
            if not self.batches.batch.room:
                self.batches.send(self.counts.rows)
            return
        views = sliding_window_view(stretch.buffer, n, axis=0)  # (rows, F, N), no copy
        done, step = 0, self.layout.stride
        while done < len(starts):
            batch = self.batches.batch
            count = min(batch.room, len(starts) - done)
            part = slice(done, done + count)
            chosen = views[at[done] : at[done] + (count - 1) * step + 1 : step]
            own = Windows(stretch, starts[part], None if bad is None else bad[part])
            batch.add(own, chosen.transpose(0, 2, 1))
            done += count
            if not batch.room:
                self.batches.send(self.counts.rows)

    def _scored(self, batch: Batch) -> Floats:
        n = self.layout.window
        # An earlier run may have scored what depends on it.
        if not batch.filled or (self.skip_before > 0 and batch.span(n)[1] <= self.skip_before):
            return np.zeros((batch.filled, n, self.settings.window_channels), np.float32)
        try:
            return self.score(batch.windows[: batch.filled])
        except EngineError as error:
            first, end = batch.span(n)
            last = min(end, batch.rows) - 1  # a padded series ends before its window
            raise EngineError(f"rows {first} to {last}: {error}") from None

    def _merge(self, batch: Batch, scores: Floats) -> None:
        """From scores of windows to scores of rows."""
        done = 0
        merged: list[tuple[Stretch, Floats]] = []
        try:
            for item in batch.work:
                match item:
                    case Stretch():
                        self.finish(merged)
                        self._emit(item, item.finisher.add(item.merger.end(item.rows)))
                        self._emit(item, item.finisher.end())
                    case Until(stretch, rows):
                        merged.append((stretch, stretch.merger.until(rows)))
                    case Windows(stretch, starts, bad):
                        of_windows = scores[done : done + len(starts)]
                        done += len(starts)
                        if self.settings.on_bad_rows != "keep":
                            bad = self._without_score(batch, stretch, starts, of_windows, bad)
                        if bad is not None and bad.any():
                            of_windows = np.where(bad[:, None, None], np.float32(np.nan), of_windows)
                        merged.append((stretch, stretch.merger.add(starts, of_windows)))
        finally:
            self.finish(merged)  # what is final before a row that cannot be scored stays so

    def finish(self, merged: list[tuple[Stretch, Floats]]) -> None:
        """The last step of merged rows, of several series at once."""
        found = self.settings.add_together([stretch.finisher for stretch, _ in merged], [rows for _, rows in merged])
        for (stretch, _), rows in zip(merged, found, strict=True):
            self._emit(stretch, rows)
        merged.clear()

    def _count(self, stretch: Stretch, starts: Starts, bad: Bools | None, rows: int, *, again: bool = False) -> None:
        """Count windows when so many rows have come, or with `again` only what has turned out to be bad."""
        if self.counted is None:
            self.counts.windows += 0 if again else len(starts)
            self.counts.bad_windows += 0 if bad is None else int(np.count_nonzero(bad))
            return
        last = np.minimum(stretch.first_row + starts + self.layout.window, rows) - 1
        owned = (last >= self.counted.start) & (last < self.counted.stop)
        self.counts.windows += 0 if again else int(owned.sum())
        self.counts.bad_windows += 0 if bad is None else int((bad & owned).sum())

    def _count_missing(self, mask: Floats) -> None:
        """Rows in which a feature is left out; those of a halo do not count."""
        if self.counted is not None:
            first = self.counts.rows
            mask = mask[max(0, self.counted.start - first) : max(0, self.counted.stop - first)]
        for j in np.flatnonzero(mask.any(axis=0)).tolist():
            self.counts.missing[j] = self.counts.missing.get(j, 0) + int(mask[:, j].sum())

    def _without_score(
        self, batch: Batch, stretch: Stretch, starts: Starts, scores: Floats, bad: Bools | None
    ) -> Bools | None:
        """Bad windows, with those whose values are so large that the engine overflows, which may also be an error."""
        overflown = np.asarray(~np.isfinite(scores).all(axis=(1, 2)))
        if bad is not None:
            overflown &= ~bad
        if overflown.any():
            if self.settings.on_bad_rows == "error":
                first = stretch.first_row + int(starts[overflown.argmax()])
                last = min(first + self.layout.window, batch.rows) - 1
                raise DataError(
                    f"rows {first} to {last}: the engine returned no finite score, a value is too large; fix the "
                    f"row, or pass on_bad_rows='null'"
                )
            self._count(stretch, starts, overflown, batch.rows, again=True)
        return overflown if bad is None else overflown | bad

    def _emit(self, stretch: Stretch, rows: Floats) -> None:
        if len(rows):
            self.ready.append(ScoredRows(stretch, rows))

    def _short(self, stretch: Stretch) -> None:
        """A stretch without a single full window: a few rows between two gaps are no error, whatever the policy."""
        n, series = self.layout.window, stretch.series
        self.counts.short_stretches += series.gaps > 0
        if self.settings.short_series != "pad":
            if self.layout.align == "window":  # the other one gives out rows without a score by itself
                stretch.merger = Unscored(self.settings.window_channels)
            return
        # The first row repeated in front, as if nothing had happened before.
        missing = n - stretch.rows
        stretch.buffer = np.concatenate([np.repeat(stretch.buffer[:1], missing, axis=0), stretch.buffer])
        if stretch.bad is not None:
            stretch.bad = np.concatenate([np.repeat(stretch.bad[:1], missing), stretch.bad])
        stretch.merger = Padded(self.settings.window_channels, missing)
        stretch.rows = n
        self._enqueue(stretch, np.zeros(1, np.int64))
