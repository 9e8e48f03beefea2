"""Lowest and highest score of every few rows, in one pass: however many rows there are, no peak is lost."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Times = NDArray[np.float64]

MOST_BUCKETS = 1 << 20


def bucket_rows(rows: int) -> int:
    """Rows per bucket: the smallest power of two that needs no more than MOST_BUCKETS."""
    return 1 << max(0, (-(-rows // MOST_BUCKETS) - 1).bit_length())


class Envelope:
    """Walks over the rows of one series after another; a bucket never holds rows of two."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.low: list[Floats] = []
        self.high: list[Floats] = []
        self.times: list[Times] = []
        """Of the first row of each bucket."""
        self.counts: list[int] = []
        """Buckets of each series."""
        self._scores = np.empty(0, np.float32)
        self._times: Times | None = None

    def start_series(self) -> None:
        """The rows that come next belong to another series."""
        self.end()
        self.counts.append(0)

    def add(self, scores: Floats, times: Times | None) -> None:
        """The next rows of the series; NaN where a row has no score."""
        scores = np.concatenate([self._scores, scores])
        if times is not None:
            times = times if self._times is None else np.concatenate([self._times, times])
        full = len(scores) // self.width * self.width
        self._emit(scores[:full].reshape(-1, self.width), None if times is None else times[: full : self.width])
        self._scores = scores[full:]
        self._times = None if times is None else times[full:]

    def end(self) -> None:
        """The rows that do not fill a bucket get a smaller one."""
        if len(self._scores):
            self._emit(self._scores[None], None if self._times is None else self._times[:1])
        self._scores, self._times = self._scores[:0], None

    def _emit(self, rows: Floats, times: Times | None) -> None:
        self.low.append(np.fmin.reduce(rows, axis=1))
        self.high.append(np.fmax.reduce(rows, axis=1))
        if times is not None:
            self.times.append(times.copy())  # not a view, which would keep the times of all rows
        self.counts[-1] += len(rows)
