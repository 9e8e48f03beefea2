"""How work is cut: series into pieces that can be scored apart, pieces into splits of about equal length.

Rows are numbered over the whole input. A piece of a series is read with a halo, from the series' own grid of windows
on, so that its rows are in the same windows as if the whole series had been read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from at_infer.scoring.windows import Layout, Starts

SPLIT_S = 10.0
"""Seconds of work in a split; benchmarks/scale_out.py shows why, docs/scaling.md the figures."""
SPLITS_PER_WORKER = 8  # so that a slow worker leaves some of its share to the others
LEAST_HALOS = 20  # a split is at least this many halos long: reading around it costs a tenth at most


@dataclass(frozen=True, slots=True)
class Series:
    """Where a series lies."""

    name: str
    first: int
    end: int

    @property
    def rows(self) -> int:
        """Its length."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of one series, and what to read around them."""

    series: Series
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
    """What a worker does at a time: one piece of a long series, or some whole series side by side."""

    pieces: tuple[Piece, ...]

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


def halo(layout: Layout, smooth: int) -> tuple[int, int]:
    """Rows before and behind a row that its score may depend on."""
    reach = layout.reach + smooth
    return reach, 0 if layout.align == "last" else reach


def cut(series: Series, layout: Layout, *, smooth: int, split_rows: int) -> list[Piece]:
    """Pieces of about equal length, at most `split_rows` as far as the grid allows."""
    count = -(-series.rows // split_rows)
    step = -(-series.rows // (count * layout.stride)) * layout.stride if count else 1
    return [
        _with_halo(series, first, min(first + step, series.end), layout, smooth)
        for first in range(series.first, series.end, step)
    ]


def _with_halo(series: Series, first: int, end: int, layout: Layout, smooth: int) -> Piece:
    before, after = halo(layout, smooth)
    skipped = max(0, first - before - series.first) // layout.stride * layout.stride
    read_first = series.first + skipped
    # A window ends there, so that the rule for the end of a series finds no tail to cover.
    windows = -(-max(0, end + after - read_first - layout.window) // layout.stride)
    read_end = min(series.end, read_first + layout.window + windows * layout.stride)
    return Piece(series, first, end, read_first, read_end)


def pack(pieces: Iterable[Piece], split_rows: int) -> list[Split]:
    """Splits of at most `split_rows` rows, unless a single piece is longer; a piece of a cut series stays alone."""
    splits: list[list[Piece]] = []
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


def owned_windows(piece: Piece, layout: Layout) -> Starts:
    """Where windows start that end within the piece; over all pieces of a series, each window once."""
    n, origin = layout.window, piece.series.first
    if piece.series.rows < n:
        return np.empty(0, np.int64)
    lowest = -(-max(0, piece.first - n + 1 - origin) // layout.stride) * layout.stride
    starts = np.arange(lowest, piece.end - n - origin + 1, layout.stride, dtype=np.int64)
    tail = piece.series.rows - n
    if layout.align == "window" and tail % layout.stride and piece.end == piece.series.end:
        starts = np.append(starts, tail)
    return starts + origin


def choose_split_rows(rows: int, layout: Layout, *, smooth: int, rows_per_s: float, workers: int) -> int:
    """Splits that take about `SPLIT_S`, or less if there would be too few of them for the workers."""
    wanted = min(rows_per_s * SPLIT_S, rows / (workers * SPLITS_PER_WORKER))
    return max(int(wanted), LEAST_HALOS * (layout.reach + smooth), layout.stride)


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
