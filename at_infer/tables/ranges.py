"""Parts of an input, as the workers of a cluster read and write them: rows of some files in, one Parquet out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.errors import DataError, OutputError
from at_infer.models.spacing import find_gaps
from at_infer.output import atomic_path
from at_infer.tables.columns import Columns, FileRows, Place, Survey
from at_infer.tables.files import InputFile, reading, source_files
from at_infer.tables.order import SeriesAndTime
from at_infer.tables.parts import ROW_GROUP_ROWS, polars_errors_as_os_errors, scored_frame
from at_infer.tables.row_stream import Carried, Chunk, carry, check_columns, numbers_and_keys, wanted_times
from at_infer.tables.table import read_metadata

LOOK_BACK_ROWS = (1 << 12, 1 << 20)


def open_place(place: Place) -> InputFile:
    """Look at schema and length of an input file; messages call it what the user calls it."""
    is_url = "://" in place.path
    file = InputFile.open(place.path if is_url else Path(place.path), hive=place.hive)
    return replace(file, path=place.name if is_url else Path(place.name))


def find_places(source: str, *, series_per_file: bool) -> list[Place]:
    """The files behind a file name, a folder, a glob or a URL, in the order in which they are read."""
    with reading(source):
        paths = source_files(source)
        if isinstance(paths[0], str):
            if series_per_file:
                raise DataError(f"{source}: series_per_file=True takes local files only; a URL is read as one series")
            return [Place(source, source, None, 0, 0)]
        hive = Path(source) not in paths
        found = []
        for path in map(Path, paths):
            stat = path.stat()
            found.append(Place(str(path), str(path.resolve()), hive, stat.st_size, stat.st_mtime_ns))
    return found


def survey(place: Place, columns: Columns, longest_step: float | None = None) -> Survey:
    """Check a file's columns and find its series and, by `longest_step`, gaps; only key columns are read."""
    file = open_place(place)
    if file.rows == 0:
        return Survey(0, (), ())
    check_columns(file, file, columns)
    order = SeriesAndTime(None, columns.series_column)
    order.enter(place.name, 0)
    keys = [columns.series_column] if columns.series_column is not None else []
    if longest_step is not None and columns.clock is not None and columns.time_column is not None:
        keys.append(columns.time_column)
    gaps: list[int] = []
    span: tuple[float, float] | None = None
    for first, chunk in file.chunks(keys):
        if columns.series_column is not None:
            order.take(chunk, first)
        times = wanted_times(chunk, place.name, columns) if columns.time_column in keys else None
        if times is not None and longest_step is not None:
            gaps += (first + find_gaps(times, longest_step, None if span is None else span[1])).tolist()
            span = float(times[0] if span is None else span[0]), float(times[-1])
    dtypes = tuple((key, str(file.schema[key])) for key in columns.keys)
    inside = set(gaps).difference(order.starts.values())
    return Survey(file.rows, tuple(order.starts.items()), dtypes, tuple(sorted(inside)), span)


def read_rows(parts: Sequence[FileRows], columns: Columns) -> Iterator[Chunk]:
    """The rows in order, checked like those of a whole input; where series start is for the caller to know."""
    order = SeriesAndTime(columns.time_column, columns.series_column, columns.on_bad_time)
    for part in parts:
        if columns.series_per_file:
            order = SeriesAndTime(columns.time_column, columns.series_column, columns.on_bad_time)
        order.enter(part.place.name, part.file_first)
        file = open_place(part.place).between(part.first, part.end)
        for first, values, frame in numbers_and_keys(file, columns):
            row = part.file_first + part.first + first
            if columns.keys:
                order.take(frame, row)
            carried = carry(frame, values, row, part.place.name, columns)
            times = wanted_times(frame, part.place.name, columns)
            yield Chunk(part.place.name, part.first + first, values, carried, [], times)


def last_values(
    parts: Sequence[FileRows], names: Sequence[str], columns: Columns
) -> dict[str, tuple[np.float32, float | None]]:
    """The last value of each column in these rows, if it has one, looking back no further than needed; and its time."""
    found: dict[str, tuple[np.float32, float | None]] = {}
    clock = [columns.time_column] if columns.needs_clock and columns.time_column is not None else []
    block, largest = LOOK_BACK_ROWS
    for part in reversed(parts):
        file, end = open_place(part.place), part.end
        while end > part.first and len(found) < len(names):
            first = max(part.first, end - block)
            missing = [name for name in names if name not in found and name in file.schema]
            if not missing:
                break
            for _, chunk in file.between(first, end).chunks([*missing, *clock]):
                times = wanted_times(chunk, part.place.name, columns) if clock else None
                for name in missing:
                    values = chunk[name].cast(pl.Float32).to_numpy()  # nulls become NaN
                    known = np.flatnonzero(~np.isnan(values))
                    if len(known):
                        found[name] = values[known[-1]], None if times is None else float(times[known[-1]])
            end, block = first, min(2 * block, largest)
    return found


def write_split(
    path: Path, carried: Carried, columns: Mapping[str, NDArray[Any]], properties: Mapping[str, str]
) -> None:
    """Write the scores of a split; the file is complete or absent."""
    frame = scored_frame(carried, columns)
    with atomic_path(path) as temporary, polars_errors_as_os_errors():
        frame.write_parquet(temporary, compression="zstd", row_group_size=ROW_GROUP_ROWS, metadata=dict(properties))


def read_properties(path: Path) -> dict[str, str] | None:
    """Key-value metadata of a written split; None if it is not there."""
    if not path.is_file():
        return None
    try:
        return read_metadata(path).properties
    except DataError as error:
        raise OutputError(f"{error}; remove it, or pass overwrite=True") from None
