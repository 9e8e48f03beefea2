"""Input of scoring: rows of any number of files, chunk by chunk, with what is carried through."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.models.spacing import Clock, Times
from at_infer.tables.absent import MISSING, missing_column
from at_infer.tables.clock import FOR_GAPS, NEEDED, clock_fits, column_times, find_clock, read_times
from at_infer.tables.columns import Columns
from at_infer.tables.files import InputFile, listed, reading, source_files
from at_infer.tables.order import SeriesAndTime
from at_infer.tables.resample import OnGrid, Resampler, Steps, check_grid, time_column

CHUNK_CELLS = 1 << 20  # cells of a chunk: 4 MB as float32

Carried = pl.DataFrame


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows, in order."""

    file: str
    file_row: int
    """Where the first of them is, for messages."""
    values: NDArray[np.float32]
    """(rows, features), raw; a missing value is NaN."""
    carried: Carried
    """Time and series of the rows, or their number."""
    starts: list[tuple[int, str]]
    """Rows of this chunk that begin a series, and its name."""
    times: Times | None = None
    """Seconds since 1970, or numbers, if the columns ask for a clock and the time column has it."""

    def without(self, rows: list[int]) -> "Iterator[Chunk]":
        """What is left of it without some rows, none of which begins a series: runs of rows that stay."""
        for before, row in pairwise([-1, *rows, len(self.values)]):
            first = before + 1
            if first < row:
                starts = [(at - first, name) for at, name in self.starts if first <= at < row]
                times = None if self.times is None else self.times[first:row]
                values, carried = self.values[first:row], self.carried[first:row]
                yield Chunk(self.file, self.file_row + first, values, carried, starts, times)

    def runs(self) -> Iterator[tuple[int, int, str | None]]:
        """Rows of one series each, with its name where it begins."""
        cuts = [*self.starts, (len(self.values), "")]
        if cuts[0][0]:
            yield 0, cuts[0][0], None
        for (first, name), (end, _) in pairwise(cuts):
            yield first, end, name


class _SeriesOnGrid:
    """One series on its way onto a grid."""

    def __init__(self, name: str, how: OnGrid, columns: Columns) -> None:
        self.time_column, self.features = str(columns.time_column), columns.features
        self.starts = [(0, name)]
        """Empty once the series has begun."""
        self.resampler = Resampler(how, len(columns.features))

    def add(self, stream: "RowStream", chunk: Chunk, first: int, end: int) -> Iterator[Chunk]:
        """Some of its rows."""
        if first == end:  # an empty file is a series too
            yield Chunk(chunk.file, stream.given_rows, chunk.values, chunk.carried, self.starts)
            return
        assert chunk.times is not None
        self.file, self.keys = chunk.file, chunk.carried[first : first + 1]
        for steps in self.resampler.add(chunk.times[first:end], chunk.values[first:end]):
            yield self._chunk(stream, steps)

    def end(self, stream: "RowStream") -> Iterator[Chunk]:
        """No more rows of it."""
        for steps in self.resampler.end():
            yield self._chunk(stream, steps)

    def _chunk(self, stream: "RowStream", steps: Steps) -> Chunk:
        name, count = self.time_column, len(steps.values)
        times = time_column(name, steps, self.keys[name].dtype)
        carried = pl.DataFrame([times if key.name == name else key.new_from_index(0, count) for key in self.keys])
        if MISSING in carried:
            carried = carried.with_columns(missing_column(np.isnan(steps.values), self.features))
        starts, self.starts = self.starts, []
        return Chunk(f"{self.file}, put on a grid", stream.given_rows, steps.values, carried, starts, steps.seconds)


class RowStream:
    """The rows behind a file, folder, Hive tree, glob or URL; features are found by name."""

    def __init__(
        self,
        source: str | InputFile,
        columns: Columns,
    ) -> None:
        files = [source] if isinstance(source, InputFile) else open_source(source, columns)
        self.source, self.columns = str(source.path) if isinstance(source, InputFile) else source, columns
        self.dropped_rows = 0
        """Left out of the chunks so far, because their times do not rise."""
        self.read_rows = 0
        """Rows of the input that are in the chunks so far."""
        self.given_rows = 0
        """Rows of the chunks so far: the same, unless they are put on a grid."""
        self.rows = sum(file.rows for file in files)
        if self.rows == 0:
            raise DataError(f"{self.source}: has no rows")
        # Columns of a file without rows may have any type; it matters only as a series of its own.
        self.files = [file for file in files if file.rows or columns.series_per_file]
        full = [file for file in files if file.rows]
        for file in full:
            check_columns(file, full[0], columns)

    def fingerprint(self) -> list[list[str | int]]:
        """Tells whether a resumed run sees the same files."""
        found: list[list[str | int]] = []
        for file in self.files:
            with reading(str(file.path)):
                stat = file.path.stat() if isinstance(file.path, Path) else None
            found.append([str(file.path), file.rows, stat.st_size if stat else 0, stat.st_mtime_ns if stat else 0])
        return found

    def count_series(self) -> int:
        """How many series there are; one that goes on in another file counts in both."""
        column = self.columns.series_column
        if column is None:
            return len(self.files) if self.columns.series_per_file else 1
        with reading(self.source):
            counts = [file.scan.select(cs.by_name(column).n_unique()).collect().item() for file in self.files]
        return sum(counts)

    @cached_property
    def clock(self) -> Clock | None:
        """How the time column counts; None if rows can only be numbered."""
        return find_clock(next(file for file in self.files if file.rows), self.columns.time_column)

    @property
    def notes(self) -> list[str]:
        """Notes for the user about reading these rows."""
        columns, full = self.columns, next(file for file in self.files if file.rows)
        if columns.clock is None or columns.time_column is None:
            return []
        dtype = full.schema[columns.time_column]
        return [] if clock_fits(dtype, columns.clock) else [other_clock(columns, str(dtype), self.source)]

    def times(self, chunk: Chunk) -> Times | None:
        """Of the rows of a chunk: milliseconds since 1970, or the numbers themselves."""
        if self.clock is None or self.columns.time_column is None or not len(chunk.values):
            return None
        return read_times(chunk.carried[self.columns.time_column], self.clock, chunk.file)

    def chunks(self, files: Iterable[InputFile] | None = None) -> Iterator[Chunk]:
        """All rows, in order of the files and of the rows in them; or those of other files, which come one by one.

        They are the rows of a grid, if the columns ask for one.
        """
        self.read_rows = self.given_rows = 0
        for chunk in self._rows(files) if self.columns.on_grid is None else self._on_grid(self.columns.on_grid, files):
            yield chunk
            self.given_rows += len(chunk.values)

    def _on_grid(self, how: OnGrid, files: Iterable[InputFile] | None) -> Iterator[Chunk]:
        """The same series with one row per step; numbers of rows in messages are those of the output."""
        series: _SeriesOnGrid | None = None
        for chunk in self._rows(files):
            for first, end, name in chunk.runs():
                if name is not None:
                    yield from () if series is None else series.end(self)
                    series = _SeriesOnGrid(name, how, self.columns)
                assert series is not None
                yield from series.add(self, chunk, first, end)
        yield from () if series is None else series.end(self)

    def _rows(self, files: Iterable[InputFile] | None) -> Iterator[Chunk]:
        """Rows as they are in the files."""
        done, columns = 0, self.columns
        order = SeriesAndTime(columns.time_column, columns.series_column, columns.on_bad_time)
        self.dropped_rows = 0
        for number, file in enumerate(self.files if files is None else files):
            if columns.series_per_file:
                order = SeriesAndTime(columns.time_column, columns.series_column, columns.on_bad_time)
            order.enter(str(file.path), done)
            if columns.series_per_file and file.rows == 0:
                nothing = np.empty((0, len(columns.features)), np.float32)
                yield Chunk(str(file.path), 0, nothing, pl.DataFrame(), [(0, str(file.path))])
                continue
            begins = columns.series_per_file or number == 0
            yield from self._file_chunks(file, done, order, begins=begins)
            done += file.rows

    def _file_chunks(self, file: InputFile, done: int, order: SeriesAndTime, *, begins: bool) -> Iterator[Chunk]:
        columns = self.columns
        for first, values, frame in numbers_and_keys(file, columns):
            row = done + first
            known = len(order.starts)
            left_out = order.take(frame, row) if columns.keys else []
            if columns.series_column is not None:
                # A file of its own makes its first series a new one, whatever came before it.
                new = list(order.starts.items())[known:]
                prefix = f"{file.path}: " if columns.series_per_file else ""
                starts = [(max(at, done) - row, prefix + name) for name, at in new]
            else:
                starts = [(0, str(file.path) if columns.series_per_file else "")] if begins and first == 0 else []
            carried = carry(frame, values, row, str(file.path), columns)
            times = wanted_times(frame, str(file.path), columns)
            chunk = Chunk(str(file.path), first, values, carried, starts, times)
            self.dropped_rows += len(left_out)
            self.read_rows += len(values)
            yield from chunk.without(left_out) if left_out else (chunk,)


def open_source(source: str, columns: Columns) -> list[InputFile]:
    """The files behind a name; folders named key=value become columns."""
    with reading(source):
        paths = source_files(source)
    if columns.series_per_file and isinstance(paths[0], str):
        raise DataError(f"{source}: series_per_file=True takes local files only; a URL is read as one series")
    # Of a URL polars knows whether it is a folder; a file that was named itself is taken as it is.
    hive = None if isinstance(paths[0], str) else Path(source) not in paths
    return [InputFile.open(path, hive=hive) for path in paths]


def check_columns(file: InputFile, head: InputFile, columns: Columns) -> None:
    """A file has numbers under the names of the model's columns, and keys of the same types as the first file."""
    keys, present = columns.keys, [name for name in columns.features if name in file.schema]
    needed = present if columns.may_be_absent and present else columns.features
    file.check_has([*needed, *keys], f"the model was trained on {listed(columns.features)}")
    file.check_numbers(present)
    if columns.needs_clock and not clock_fits(file.schema[str(columns.time_column)], "date"):
        name = str(columns.time_column)
        raise DataError(f"{file.path}: column {name!r} is {file.schema[name]}; {NEEDED}")
    if columns.on_grid is not None:
        name = str(columns.time_column)
        check_grid(file.schema[name], columns.on_grid.grid, f"{file.path}: column {name!r}")
    file.check_keys(keys, head)


def other_clock(columns: Columns, dtype: str, source: str) -> str:
    """Why gaps are ignored."""
    usual = "dates and times" if columns.clock == "date" else "numbers"
    return (
        f"{source}: column {columns.time_column!r} is {dtype}, the model was trained on {usual}; gaps in time are "
        f"ignored"
    )


def numbers_and_keys(file: InputFile, columns: Columns) -> Iterator[tuple[int, NDArray[np.float32], pl.DataFrame]]:
    """Chunks of a file: number of the first row, features (rows, F), and a frame that holds the keys."""
    # Features under names of our own, longer than those of the keys: a feature may also be carried.
    keys, names = columns.keys, columns.features
    longest = max(keys, key=len, default="")
    features = [f"{longest}:{j}" for j in range(len(names))]
    query = file.scan.select(
        *(
            (cs.by_name(name) if name in file.schema else pl.lit(None)).cast(pl.Float32).alias(own)
            for name, own in zip(names, features, strict=True)
        ),
        *(cs.by_name(key) for key in keys),
    )
    for first, frame in file.collect(query, max(1, CHUNK_CELLS // (len(features) + len(keys)))):
        yield first, frame.select(cs.by_name(*features)).to_numpy(order="c"), frame


def wanted_times(frame: pl.DataFrame, file: str, columns: Columns) -> Times | None:
    """Times of some rows, if they are needed and known."""
    if columns.clock is None or columns.time_column is None:
        return None
    column = frame[columns.time_column]
    if not clock_fits(column.dtype, columns.clock):
        return None
    why = NEEDED if columns.needs_clock else FOR_GAPS
    return column_times(column, columns.clock, f"{file}: column {columns.time_column!r}", why)


def carry(frame: pl.DataFrame, values: NDArray[np.float32], row: int, file: str, columns: Columns) -> Carried:
    """Time and series of some rows, or their number from `row` on; in front the file, where it tells series apart.

    If features may be absent, it also says which have no value.
    """
    carried = {key: frame[key] for key in reversed(columns.keys)}
    if not carried:
        carried = {"row": pl.int_range(row, row + frame.height, eager=True)}
    if columns.series_per_file:
        carried = {"file": pl.repeat(file, frame.height, eager=True), **carried}
    if columns.may_be_absent:
        carried[MISSING] = missing_column(np.isnan(values), columns.features)
    return pl.DataFrame(carried)
