"""Times of rows: seconds since 1970 for seasons, and what a time column counts, for people."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.tables.files import InputFile

Seconds = NDArray[np.float64]

NEEDED = "the model subtracts a season and needs dates and times"
_START = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def is_clock(dtype: pl.DataType) -> bool:
    """Does a column of this type tell the time of day? A number has no unit that is known."""
    return dtype in (pl.Date, pl.Datetime)


def can_be_clock(dtype: pl.DataType) -> bool:
    """The same, or texts that may be ISO 8601."""
    return is_clock(dtype) or dtype == pl.String


def seconds_of(time: datetime) -> float:
    """A time with a zone as the instant it is, one without as if it were UTC."""
    known = time if time.utcoffset() is not None else time.replace(tzinfo=UTC)
    return (known - _START) // _MICROSECOND / 1e6


def column_seconds(column: pl.Series, where: str) -> Seconds:
    """Of dates, dates and times, or ISO 8601 texts, none of them missing."""
    if is_clock(column.dtype):
        return column.cast(pl.Datetime("us", getattr(column.dtype, "time_zone", None))).to_physical().to_numpy() / 1e6
    if column.dtype != pl.String:
        raise DataError(f"{where}: is {column.dtype}; {NEEDED}")
    try:
        return np.array([seconds_of(datetime.fromisoformat(text)) for text in column], np.float64)
    except ValueError as error:
        raise DataError(f"{where}: {error}; {NEEDED}") from None


def times_to_seconds(times: Sequence[Any] | NDArray[Any]) -> Seconds:
    """Of datetime, numpy.datetime64 or ISO 8601 texts in memory."""
    if isinstance(times, np.ndarray) and times.dtype.kind == "M":
        times = times.astype("datetime64[us]")
    try:
        column = times if isinstance(times, pl.Series) else pl.Series(times)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise DataError(f"times: {error}; {NEEDED}") from None
    if column.null_count():
        raise DataError(f"times: one is missing; {NEEDED}")
    return column_seconds(column, "times")


Times = NDArray[np.float64]
Clock = Literal["date", "number"]


def find_clock(file: InputFile, column: str | None) -> Clock | None:
    """How the time column counts; None if rows can only be numbered."""
    if column is None:
        return None
    kind = file.schema[column]
    if kind == pl.String:
        first = next(file.collect(file.scan.select(cs.by_name(column)), 1))[1]
        return "date" if _dates(first[column]) is not None else None
    return "date" if kind in (pl.Date, pl.Datetime) else "number" if kind.is_numeric() else None


def read_times(column: pl.Series, clock: Clock, source: str) -> Times:
    """Milliseconds since 1970, or the numbers themselves."""
    if clock == "number":
        return column.cast(pl.Float64).to_numpy()
    dates = _dates(column) if column.dtype == pl.String else column.cast(pl.Datetime("us"))
    if dates is None or dates.null_count():
        raise DataError(f"{source}: column {column.name!r} has dates and other values; use dates only")
    return dates.to_physical().to_numpy() / 1e3


def _dates(column: pl.Series) -> pl.Series | None:
    """ISO 8601 texts as dates; None if the first is something else."""
    try:
        dates = column.str.to_datetime(time_unit="us", strict=False)
    except pl.exceptions.ComputeError:
        return None
    return None if dates[0] is None else dates.dt.replace_time_zone(None)
