"""How work is cut: series into pieces that can be scored apart, pieces into splits of about equal length.

Rows are numbered over the whole input. A piece of a series is read with a halo, from the series' own grid of windows
on, so that its rows are in the same windows as if the whole series had been read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from at_infer.scoring.settings import RowSettings

SPLIT_S = 10.0
"""Seconds of work in a split; benchmarks/scale_out.py shows why, docs/scaling.md the figures."""
SPLITS_PER_WORKER = 8  # so that a slow worker leaves some of its share to the others
LEAST_HALOS = 20  # a split is at least this many halos long: reading around it costs a tenth at most


@dataclass(frozen=True, slots=True)
class SeriesSpan:
    """Where a series lies, or what of it lies between two gaps in time."""

    name: str
    first: int
    end: int

    @property
    def rows(self) -> int:
        """Its length."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class SeriesPiece:
    """Consecutive rows of one series, and what to read around them."""

    series: SeriesSpan
    first: int
    end: int
    read_first: int
    """On the series' grid of windows; before `first` by at least the halo, or the start of the series."""
    read_end: int
    """Where a window of the grid ends; behind `end` by at least the halo, or the end of the series."""

    @property
    def rows(self) -> int:
        """Rows that this piece scores."""
        return self.end - self.first

    @property
    def is_whole(self) -> bool:
        """Is it all of its series?"""
        return self.rows == self.series.rows


@dataclass(frozen=True, slots=True)
class Split:
    """A unit of work: one piece of a long series, or several consecutive series."""

    pieces: tuple[SeriesPiece, ...]

    @property
    def first(self) -> int:
        """First row that it scores."""
        return self.pieces[0].first

    @property
    def end(self) -> int:
        """Row behind the last one that it scores."""
        return self.pieces[-1].end

    @property
    def rows(self) -> int:
        """Rows that it scores."""
        return self.end - self.first

    def halves(self) -> "tuple[Split, Split] | None":
        """Two splits with half of the series each; None if there is only one piece."""
        middle = len(self.pieces) // 2
        return (Split(self.pieces[:middle]), Split(self.pieces[middle:])) if middle else None


def cut(series: SeriesSpan, settings: RowSettings, split_rows: int) -> list[SeriesPiece]:
    """Pieces of about equal length, at most `split_rows` as far as the grid allows."""
    count, stride = -(-series.rows // split_rows), settings.layout.stride
    step = -(-series.rows // (count * stride)) * stride if count else 1
    return [
        _with_halo(series, first, min(first + step, series.end), settings)
        for first in range(series.first, series.end, step)
    ]


def _with_halo(series: SeriesSpan, first: int, end: int, settings: RowSettings) -> SeriesPiece:
    begin, stop = settings.read(first - series.first, end - series.first, series.rows)
    return SeriesPiece(series, first, end, series.first + begin, series.first + stop)


def pack(pieces: Iterable[SeriesPiece], split_rows: int) -> list[Split]:
    """Splits of at most `split_rows` rows, unless a single piece is longer; a piece of a cut series stays alone."""
    splits: list[list[SeriesPiece]] = []
    for piece in pieces:
        fits = (
            splits
            and piece.is_whole
            and splits[-1][0].is_whole
            and splits[-1][-1].end == piece.first
            and piece.end - splits[-1][0].first <= split_rows
        )
        if fits:
            splits[-1].append(piece)
        else:
            splits.append([piece])
    return [Split(tuple(split)) for split in splits]


def choose_split_rows(rows: int, settings: RowSettings, *, rows_per_s: float, workers: int) -> int:
    """Splits that take about `SPLIT_S`, or less if there would be too few of them for the workers."""
    wanted = min(rows_per_s * SPLIT_S, rows / (workers * SPLITS_PER_WORKER))
    return max(int(wanted), LEAST_HALOS * settings.lookback, settings.layout.stride)


class Offsets:
    """Rows of the whole input <-> rows of its files."""

    def __init__(self, rows_of_files: Sequence[int]) -> None:
        self.offsets = np.concatenate([[0], np.cumsum(np.asarray(rows_of_files, np.int64))])

    def locate(self, row: int) -> tuple[int, int]:
        """File and row in it."""
        file = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return file, row - int(self.offsets[file])

    def between(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """The same rows as (file, first row in it, row behind the last one)."""
        found = []
        while first < end:
            file, row = self.locate(first)
            upto = min(end, int(self.offsets[file + 1]))
            found.append((file, row, row + upto - first))
            first = upto
        return found
