"""The only file that knows polars: Parquet in, Parquet out."""

import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.output import atomic_path

CHUNK_CELLS = 1 << 22  # cells decoded at a time: 16 MB as float32, whatever the number of columns


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one or many series, in file order."""

    source: str
    """Where the rows came from, for messages."""
    columns: list[str]
    """Names of the features."""
    values: NDArray[np.float32]
    """(rows, features); a missing value is NaN."""
    series: list[tuple[str, int]]
    """Name and number of rows of each series, in order."""
    ignored: list[str]
    """Columns left out because they are not numeric."""


def source_files(source: str) -> list[Path]:
    """The Parquet files behind a file name, a folder or a glob, in name order."""
    path = Path(source)
    if path.is_dir():
        files = sorted(path.rglob("*.parquet"))
        if not files:
            raise DataError(f"{source}: no *.parquet file in this folder")
    elif path.exists():
        files = [path]
    elif glob.has_magic(source):
        files = [Path(name) for name in sorted(glob.glob(source, recursive=True))]
        if not files:
            raise DataError(f"{source}: no file matches this pattern")
    else:
        raise DataError(f"{source}: no such file")
    return files


def read_table(
    source: str,
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    time_column: str | None = None,
    series_column: str | None = None,
) -> Table:
    """Read the features of all rows as float32, without ever holding them in another type.

    Features are `columns`, or every numeric column that is not excluded and is neither time nor series. Time
    must rise within each series, and the rows of a series must be together.
    """
    files = source_files(source)
    with _reading(source):
        scan = pl.scan_parquet(files, hive_partitioning=False)
        schema = scan.collect_schema()
        rows = scan.select(pl.len()).collect().item()
    names, ignored = _choose(source, schema, columns, exclude, time_column, series_column)
    if rows == 0:
        raise DataError(f"{source}: has no rows")

    values = np.empty((rows, len(names)), np.float32)
    order = _SeriesAndTime(source, time_column, series_column)
    keys = [c for c in (time_column, series_column) if c is not None]
    chunk_rows = max(1, CHUNK_CELLS // (len(names) + len(keys)))
    query = scan.select(pl.col(names).cast(pl.Float32), *(pl.col(key).alias(f"key:{key}") for key in keys))
    done = 0
    with _reading(source):
        for chunk in query.collect_batches(chunk_size=chunk_rows):
            block = values[done : done + chunk.height]
            for j, name in enumerate(names):
                block[:, j] = chunk[name].to_numpy()  # nulls become NaN
            order.take(chunk, done)
            done += chunk.height
    if done != rows:
        raise DataError(f"{source}: the footer promises {rows} rows but only {done} could be read")
    return Table(source, names, values, order.finish(rows), ignored)


def rising_columns(table: Table) -> list[str]:
    """Features that rise by the same step from every row to the next: most likely a clock or row number."""
    if len(table.values) < 3:
        return []
    head = np.diff(table.values[:1000].astype(np.float64), axis=0)
    steady = (head > 0).all(axis=0) & (np.ptp(head, axis=0) <= 1e-3 * np.abs(head).max(axis=0))
    return [name for name, is_steady in zip(table.columns, steady, strict=True) if is_steady]


def write_table(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns of equal length as one Parquet file, atomically."""
    with atomic_path(path) as temporary:
        pl.DataFrame(dict(columns)).write_parquet(temporary, compression="zstd", row_group_size=1 << 17)


def _choose(
    source: str,
    schema: pl.Schema,
    columns: Sequence[str] | None,
    exclude: Sequence[str],
    time_column: str | None,
    series_column: str | None,
) -> tuple[list[str], list[str]]:
    """Names of the features, and of the columns left out because they are not numeric."""
    keys = {time_column, series_column} - {None}
    for name in [*(columns or ()), *exclude, *sorted(k for k in keys if k)]:
        if name not in schema:
            raise DataError(f"{source}: column {name!r} is missing; the file has {_listed(list(schema))}")
    if columns is None:
        candidates = [name for name in schema if name not in keys and name not in exclude]
        names = [name for name in candidates if schema[name].is_numeric()]
        if not names:
            raise DataError(f"{source}: has no numeric column to learn from; it has {_listed(list(schema))}")
        return names, [name for name in candidates if name not in names]

    for name in columns:
        if list(columns).count(name) > 1:
            raise DataError(f"{source}: column {name!r} is named twice")
        if name in keys:
            raise DataError(f"{source}: column {name!r} cannot be a feature and the time or series column at once")
        if not (schema[name].is_numeric() or schema[name] == pl.Boolean):
            raise DataError(f"{source}: column {name!r} is {schema[name]}, not numeric; leave it out")
    names = [name for name in columns if name not in exclude]
    if not names:
        raise DataError(f"{source}: every column of --columns is excluded again; nothing is left to learn from")
    return names, []


class _SeriesAndTime:
    """Walks over chunks of rows, notes where a series ends and checks that time rises within it."""

    def __init__(self, source: str, time_column: str | None, series_column: str | None) -> None:
        self.source, self.time_column, self.series_column = source, time_column, series_column
        self.starts: dict[str, int] = {}
        self.last: pl.DataFrame | None = None

    def take(self, chunk: pl.DataFrame, first_row: int) -> None:
        """Look at the next chunk, whose first row is row `first_row` of the table."""
        keys = chunk.select(pl.col("^key:.*$"))
        if not keys.width:
            return
        for key in keys:
            if key.null_count():
                row = first_row + int(key.is_null().arg_max() or 0)
                raise DataError(f"{self.source}: column {key.name[4:]!r} is null in row {row}; fill or drop that row")
        joined = keys if self.last is None else pl.concat([self.last, keys])
        offset = first_row - (joined.height - keys.height)  # table row of joined row 0
        changes = pl.Series([False] * joined.height)
        if self.series_column:
            series = joined[f"key:{self.series_column}"]
            changes = series != series.shift(1)
            if self.last is None:
                self._start(str(series[0]), 0)
            for i in changes.arg_true():
                self._start(str(series[int(i)]), offset + int(i))
        if self.time_column:
            self._check_time(joined[f"key:{self.time_column}"], changes.fill_null(value=True), offset)
        self.last = keys.tail(1)

    def finish(self, rows: int) -> list[tuple[str, int]]:
        """Name and length of each series."""
        if not self.series_column:
            return [("", rows)]
        firsts = list(self.starts.values())
        ends = [*firsts[1:], rows]
        return [(name, end - first) for name, first, end in zip(self.starts, firsts, ends, strict=True)]

    def _start(self, name: str, row: int) -> None:
        if name in self.starts:
            raise DataError(
                f"{self.source}: series {name!r} starts again in row {row}; sort the rows by "
                f"{self.series_column} and time"
            )
        self.starts[name] = row

    def _check_time(self, time: pl.Series, new_series: pl.Series, offset: int) -> None:
        stalls = ((time <= time.shift(1)) & ~new_series).fill_null(value=False).arg_true()
        if len(stalls):
            i = int(stalls[0])
            what = "is there twice" if time[i] == time[i - 1] else f"comes after {time[i - 1]}"
            raise DataError(
                f"{self.source}: {self.time_column} {time[i]} {what} (row {offset + i}); "
                f"sort the rows by time and drop duplicates"
            )


@contextmanager
def _reading(source: str) -> Iterator[None]:
    """Turn what polars says of a file it cannot read into one line."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{source}: cannot be read as Parquet, it is damaged or something else ({reason})") from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error.strerror or error})") from None


def _listed(names: Sequence[str], most: int = 6) -> str:
    """The first few names, and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
