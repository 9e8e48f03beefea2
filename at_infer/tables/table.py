"""Whole tables for training, writing tables, and Parquet footers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.memory import check_memory
from at_infer.models.spacing import Clock, Times
from at_infer.output import atomic_path
from at_infer.tables import files as input_files
from at_infer.tables.clock import column_times, is_clock
from at_infer.tables.columns import Columns
from at_infer.tables.files import InputFile, listed, read_footer, reading, source_files
from at_infer.tables.order import SeriesAndTime
from at_infer.tables.resample import OnGrid
from at_infer.tables.row_stream import RowStream
from at_infer.untrusted import check_name


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
    times: Times | None = None
    """Seconds since 1970, or numbers; None if not requested, or if the time column has neither."""
    clock: Clock | None = None
    """Which of them."""
    read_rows: int = 0
    """Before they were put on a grid."""

    @property
    def seconds(self) -> Times | None:
        """Times of dates and times."""
        return self.times if self.clock == "date" else None


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a Parquet file."""

    rows: int
    columns: dict[str, str]
    """Name and type."""
    properties: dict[str, str]
    """Key-value metadata of whoever wrote it."""


def read_table(
    source: str | InputFile,
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    time_column: str | None = None,
    series_column: str | None = None,
    clock: bool = False,
    on_grid: OnGrid | None = None,
) -> Table:
    """Read the features of all rows as float32, without ever holding more than a part in another type.

    Features are `columns`, or every numeric column that is not excluded and is neither time nor series. Time
    must rise within each series, and the rows of a series must be together. With `clock`, times are kept.
    With `on_grid`, rows are put on a grid of times while they are read.
    """
    given, source = source, source if isinstance(source, str) else str(source.path)
    if isinstance(given, str):
        with reading(given):
            paths = source_files(given)
    files = [file for file in (map(InputFile.open, paths) if isinstance(given, str) else [given]) if file.rows]
    if not files:
        raise DataError(f"{source}: has no rows")
    keys = [key for key in (time_column, series_column) if key is not None]
    names, ignored = _choose(files, columns, exclude, keys)
    if on_grid is not None:
        read = Columns(tuple(names), time_column, series_column, False, clock="date", on_bad_time=None, on_grid=on_grid)
        return _read_on_grid(source, read, ignored)

    rows = sum(file.rows for file in files)
    check_memory(4 * rows * len(names), source, f"{rows} rows of {len(names)} columns")
    try:
        values = np.empty((rows, len(names)), np.float32)
    except (MemoryError, ValueError):
        raise DataError(f"{source}: {rows} rows of {len(names)} columns do not fit into memory") from None
    kind: Clock | None = None
    if clock and time_column is not None:
        dtype = files[0].schema[time_column]
        kind = "date" if is_clock(dtype) else "number" if dtype.is_numeric() else None
    times = None if kind is None else np.empty(rows, np.float64)
    order = SeriesAndTime(time_column, series_column)
    done = 0
    for file in files:
        order.enter(str(file.path), done)
        for first, chunk in file.chunks(keys):
            order.take(chunk, done + first)
            if times is not None and kind is not None and time_column is not None:
                where = f"{file.path}: column {time_column!r}"
                times[done + first : done + first + chunk.height] = column_times(chunk[time_column], kind, where)
        block = values[done : done + file.rows]
        # Few columns at a time: a row group is decoded whole, and a file may be a single one.
        together = max(1, input_files.CHUNK_CELLS // file.rows)
        for j in range(0, len(names), together):
            part = names[j : j + together]
            for first, chunk in file.chunks(part, pl.Float32):
                for k, name in enumerate(part, start=j):
                    block[first : first + chunk.height, k] = chunk[name].to_numpy()  # nulls become NaN
        done += file.rows
    return Table(source, names, values, order.finish(rows), ignored, times, kind, rows)


def _read_on_grid(source: str, columns: Columns, ignored: list[str]) -> Table:
    stream = RowStream(source, columns)
    values, times, series = list[NDArray[np.float32]](), list[Times](), dict[str, int]()
    name = ""
    for chunk in stream.chunks():
        name = chunk.starts[0][1] if chunk.starts else name
        series[name] = series.get(name, 0) + len(chunk.values)
        values.append(chunk.values)
        times.append(np.empty(0) if chunk.times is None else chunk.times)
    rows = np.concatenate(values)
    names = list(columns.features)
    return Table(source, names, rows, list(series.items()), ignored, np.concatenate(times), "date", stream.read_rows)


def rising_columns(table: Table) -> list[str]:
    """Features that rise by the same step from every row to the next: most likely a timestamp or row number."""
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
    """The footer of one Parquet file, without reading a row."""
    check_name(path, DataError)
    with reading(str(path)), path.open("rb") as file:
        properties = pl.read_parquet_metadata(file)
        read_footer(path)
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
    files: Sequence[InputFile], columns: Sequence[str] | None, exclude: Sequence[str], keys: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Names of the features, and of the columns left out because they are not numeric; all files must have them."""
    head = files[0]
    head.check_has(keys)
    head.check_keys(keys, head)
    for name in exclude:
        if not any(name in file.schema for file in files):
            head.check_has([name])

    ignored: list[str] = []
    if columns is None:
        candidates = [name for name in head.schema if name not in keys and name not in exclude]
        names = [name for name in candidates if head.schema[name].is_numeric()]
        ignored = [name for name in candidates if name not in names]
        if not names:
            raise DataError(f"{head.path}: has no numeric column; it has {listed(list(head.schema))}")
        for file in files[1:]:
            for name, dtype in file.schema.items():
                if dtype.is_numeric() and not {name} & {*names, *keys, *exclude}:
                    raise DataError(
                        f"{file.path}: column {name!r} is numeric here but not in {head.path}; name the features "
                        f"with columns=... or leave it out with exclude=..."
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
            raise DataError(f"{head.path}: columns=... and exclude=... leave no feature; name at least one")

    for file in files:
        file.check_has([*names, *keys])
        file.check_numbers(names, "leave it out")
        file.check_keys(keys, head)
    return names, ignored
