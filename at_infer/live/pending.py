"""Rows that wait for the engine."""

import time
from typing import Any, Self

import numpy as np

from at_infer.errors import DataError
from at_infer.live.rows import Row, RowReader
from at_infer.live.scorer import StreamScorer
from at_infer.scoring.windows import Floats

MOST_ROWS = 4096


class Pending:
    """Rows that wait for the engine."""

    def __init__(self, capacity: int, features: int) -> None:
        self.values: Floats = np.empty((capacity, features), np.float32)
        self.since = 0.0
        """When the first of them came."""
        self.rows: list[int] = []
        self.lines: list[int] = []
        self.series: list[Any] = []
        self.times: list[Any] = []

    @classmethod
    def of(cls, stream: StreamScorer) -> Self:
        """As many as the stream scores at once."""
        return cls(min(stream.batch_size * stream.every, MOST_ROWS), stream.metadata.model.features)

    @property
    def is_full(self) -> bool:
        """Nothing more fits."""
        return len(self.rows) == len(self.values)

    def add(self, row: Row, line: int, number: int) -> None:
        """Take a row in."""
        try:
            self.values[len(self.rows)] = row.values  # None becomes NaN, too large for float32 infinity
        except OverflowError:
            raise DataError("a number is too large for float32") from None
        if not self.rows:
            self.since = time.monotonic()
        self.rows.append(number)
        self.lines.append(line)
        self.series.append(row.series)
        self.times.append(row.time)

    def tags(self, reader: RowReader) -> list[tuple[Any, ...]]:
        """Output fields of each row besides its score: its number and its keys."""
        keys = ((reader.series_column, self.series), (reader.time_column, self.times))
        return list(zip(self.rows, *(values for name, values in keys if name is not None), strict=True))

    def clear(self) -> None:
        """They are through."""
        for values in (self.rows, self.lines, self.series, self.times):
            values.clear()
