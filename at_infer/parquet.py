"""The only file that knows polars: Parquet in, Parquet out."""

import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.output import atomic_path

CHUNK_CELLS = 1 << 20  # cells decoded at a time: 8 MB as float64, whatever the number of rows and columns


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


@dataclass(frozen=True, slots=True)
class Footer:
    """What a Parquet file tells of itself."""

    rows: int
    columns: dict[str, str]
    """Name and type."""
    properties: dict[str, str]
    """Key-value metadata of whoever wrote it."""


def source_files(source: str) -> list[Path]:
    """The Parquet files behind a file name, a folder or a glob, in name order."""
    path = Path(source)
    if path.is_dir() and source:
        files = sorted(file for file in path.rglob("*.parquet") if file.is_file())
        if not files:
            raise DataError(f"{source}: no *.parquet file in this folder")
    elif path.is_file():
        files = [path]
    elif glob.has_magic(source):
        files = [Path(name) for name in sorted(glob.glob(source, recursive=True)) if Path(name).is_file()]
        if not files:
            raise DataError(f"{source}: no file matches this pattern")
    else:
        raise DataError(f"{source or repr(source)}: no such file")
    return files


def read_table(
    source: str,
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    time_column: str | None = None,
    series_column: str | None = None,
) -> Table:
    """Read the features of all rows as float32, without ever holding more than a part in another type.

    Features are `columns`, or every numeric column that is not excluded and is neither time nor series. Time
    must rise within each series, and the rows of a series must be together.
    """
    with _reading(source):
        paths = source_files(source)
    files = [file for file in map(_File.open, paths) if file.rows]
    if not files:
        raise DataError(f"{source}: has no rows")
    keys = [key for key in (time_column, series_column) if key is not None]
    names, ignored = _choose(files, columns, exclude, keys)

    rows = sum(file.rows for file in files)
    try:
        values = np.empty((rows, len(names)), np.float32)
    except (MemoryError, ValueError):
        raise DataError(f"{source}: {rows} rows of {len(names)} columns do not fit into memory") from None
    order = _SeriesAndTime(time_column, series_column)
    done = 0
    for file in files:
        order.enter(str(file.path), done)
        for first, chunk in file.chunks(keys):
            order.take(chunk, done + first)
        block = values[done : done + file.rows]
        # Few columns at a time: a row group is decoded whole, and a file may be a single one.
        together = max(1, CHUNK_CELLS // file.rows)
        for j in range(0, len(names), together):
            part = names[j : j + together]
            for first, chunk in file.chunks(part, pl.Float32):
                for k, name in enumerate(part, start=j):
                    block[first : first + chunk.height, k] = chunk[name].to_numpy()  # nulls become NaN
        done += file.rows
    return Table(source, names, values, order.finish(rows), ignored)


@dataclass(frozen=True, slots=True)
class _File:
    """One Parquet file, opened but not read."""

    path: Path
    scan: pl.LazyFrame
    schema: pl.Schema
    rows: int

    @classmethod
    def open(cls, path: Path) -> "_File":
        with _reading(path):
            scan = pl.scan_parquet(path, glob=False, hive_partitioning=False)
            return cls(path, scan, scan.collect_schema(), scan.select(pl.len()).collect().item())

    def chunks(
        self, names: Sequence[str], dtype: type[pl.DataType] | None = None
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        """The rows of some columns in order, each chunk with the number of its first row."""
        if not names:
            return
        chosen: pl.Expr = cs.by_name(*names)  # unlike pl.col it takes '^a.*$' for a name
        query = self.scan.select(chosen if dtype is None else chosen.cast(dtype))
        done = 0
        with _reading(self.path):
            for chunk in query.collect_batches(chunk_size=max(1, CHUNK_CELLS // len(names)), lazy=True):
                done += chunk.height
                if done > self.rows:
                    break
                if chunk.height:
                    yield done - chunk.height, chunk
        if done != self.rows:
            raise DataError(f"{self.path}: is damaged, its footer promises {self.rows} rows but it has {done}")


def rising_columns(table: Table) -> list[str]:
    """Features that rise by the same step from every row to the next: most likely a clock or row number."""
    rows = table.series[0][1]
    if rows < 3:
        return []
    at = np.linspace(0, rows - 1, min(rows, 1000)).astype(np.int64)
    sample = table.values[at].astype(np.float64)
    rise = sample[-1] - sample[0]
    line = sample[0] + rise * (at / at[-1])[:, None]
    rounding = np.spacing(np.abs(sample).max(axis=0).astype(np.float32))  # a clock in float32 advances in jumps
    steady = (rise > 4 * rounding) & (np.abs(sample - line).max(axis=0) <= rounding + 1e-3 * rise / rows)
    return [name for name, is_steady in zip(table.columns, steady, strict=True) if is_steady]


def read_metadata(path: Path) -> Footer:
    """What the footer of one Parquet file tells, without reading a row."""
    with _reading(str(path)), path.open("rb") as file:
        properties = pl.read_parquet_metadata(file)
        scan = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        columns = {name: str(kind) for name, kind in scan.collect_schema().items()}
        rows = scan.select(pl.len()).collect().item()
    properties.pop("ARROW:schema", None)
    return Footer(rows, columns, properties)


def write_table(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns of equal length as one Parquet file, atomically."""
    frame = pl.DataFrame(dict(columns))
    with atomic_path(path) as temporary:
        try:
            frame.write_parquet(temporary, compression="zstd", row_group_size=1 << 17)
        except pl.exceptions.ComputeError as error:  # polars reports a full disk this way
            raise OSError(str(error)) from error


def _choose(
    files: Sequence[_File], columns: Sequence[str] | None, exclude: Sequence[str], keys: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Names of the features, and of the columns left out because they are not numeric; all files must have them."""
    head = files[0]
    if len(set(keys)) < len(keys):
        raise DataError(f"{head.path}: column {keys[0]!r} cannot be the time and the series column at once")
    for name in exclude:
        if not any(name in file.schema for file in files):
            raise DataError(f"{head.path}: column {name!r} is missing; the file has {_listed(list(head.schema))}")

    ignored: list[str] = []
    if columns is None:
        candidates = [name for name in head.schema if name not in keys and name not in exclude]
        names = [name for name in candidates if head.schema[name].is_numeric()]
        ignored = [name for name in candidates if name not in names]
        if not names:
            raise DataError(f"{head.path}: has no numeric column to learn from; it has {_listed(list(head.schema))}")
        for file in files[1:]:
            for name, dtype in file.schema.items():
                if dtype.is_numeric() and not {name} & {*names, *keys, *exclude}:
                    raise DataError(
                        f"{file.path}: column {name!r} is numeric here but not in {head.path}; name the features "
                        f"with --columns or leave it out with --exclude"
                    )
    else:
        for name in columns:
            if list(columns).count(name) > 1:
                raise DataError(f"{head.path}: column {name!r} is named twice; name it once")
            if name in keys:
                raise DataError(
                    f"{head.path}: column {name!r} cannot be a feature and the time or series column at once"
                )
        names = [name for name in columns if name not in exclude]
        if not names:
            raise DataError(f"{head.path}: --columns and --exclude leave no column to learn from; name at least one")

    for file in files:
        for name in [*names, *keys]:
            if name not in file.schema:
                raise DataError(f"{file.path}: column {name!r} is missing; the file has {_listed(list(file.schema))}")
        for name in names:
            dtype = file.schema[name]
            if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
                raise DataError(f"{file.path}: column {name!r} is {dtype}, not numeric; leave it out")
        for key in keys:
            dtype = file.schema[key]
            if dtype.is_nested():
                raise DataError(f"{file.path}: column {key!r} is {dtype}; a time or series column holds plain values")
            if dtype != head.schema[key]:
                raise DataError(
                    f"{file.path}: column {key!r} is {dtype} but in {head.path} it is {head.schema[key]}; "
                    f"write both alike"
                )
    return names, ignored


class _SeriesAndTime:
    """Walks over chunks of rows, notes where a series ends and checks that time rises within it."""

    def __init__(self, time_column: str | None, series_column: str | None) -> None:
        self.time_column, self.series_column = time_column, series_column
        named = {"time": time_column, "series": series_column}
        self.keys = {role: column for role, column in named.items() if column is not None}
        self.starts: dict[str, int] = {}
        self.last: pl.DataFrame | None = None

    def enter(self, file: str, first_row: int) -> None:
        """The next chunks come from `file`, whose first row is row `first_row` of the table."""
        self.file, self.file_start = file, first_row

    def take(self, chunk: pl.DataFrame, first_row: int) -> None:
        """Look at time and series of the next rows, the first of which is row `first_row` of the table."""
        # Names of our own: methods of a polars Series take a name like '^a.*$' for a pattern.
        keys = pl.DataFrame({role: chunk[column] for role, column in self.keys.items()})
        for key in keys:
            missing = key.is_null() | key.is_nan() if key.dtype.is_float() else key.is_null()
            if missing.any():
                where = self._row(first_row + int(missing.arg_max() or 0))
                raise DataError(f"{where}: column {self.keys[key.name]!r} has no value; fill or drop that row")
        joined = keys if self.last is None else pl.concat([self.last, keys])
        offset = first_row - (joined.height - keys.height)  # table row of joined row 0
        new_series = pl.repeat(False, joined.height, eager=True)
        if self.series_column is not None:
            series = joined["series"]
            new_series = (series != series.shift(1)).fill_null(value=False)
            if self.last is None:
                self._start(str(series[0]), 0)
            for i in new_series.arg_true():
                self._start(str(series[int(i)]), offset + int(i))
        if self.time_column is not None:
            self._check_time(joined["time"], new_series, offset)
        self.last = keys.tail(1)

    def finish(self, rows: int) -> list[tuple[str, int]]:
        """Name and length of each series."""
        if self.series_column is None:
            return [("", rows)]
        firsts = list(self.starts.values())
        ends = [*firsts[1:], rows]
        return [(name, end - first) for name, first, end in zip(self.starts, firsts, ends, strict=True)]

    def _start(self, name: str, row: int) -> None:
        if name in self.starts:
            raise DataError(
                f"{self._row(row)}: series {name!r} starts again; sort the rows by {self.series_column} and time"
            )
        self.starts[name] = row

    def _check_time(self, time: pl.Series, new_series: pl.Series, offset: int) -> None:
        stalls = ((time <= time.shift(1)) & ~new_series).fill_null(value=False).arg_true()
        if len(stalls):
            i = int(stalls[0])
            what = "is there twice" if time[i] == time[i - 1] else f"comes after {time[i - 1]}"
            as_text = ", compared as text" if time.dtype == pl.String else ""
            raise DataError(
                f"{self._row(offset + i)}: {self.time_column} {time[i]} {what}{as_text}; "
                f"sort the rows by time and drop duplicates"
            )

    def _row(self, row: int) -> str:
        return f"{self.file}: row {row - self.file_start}"


@contextmanager
def _reading(source: str | Path) -> Iterator[None]:
    """Turn what polars says of a file it cannot read into one line."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{source}: cannot be read as Parquet, it is damaged or something else ({reason})") from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error.strerror or error})") from None


def _listed(names: Sequence[str], most: int = 6) -> str:
    """The first few names, and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
