"""Times of rows as seconds since 1970, the same for files, streams and rows in memory."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.errors import DataError

Seconds = NDArray[np.float64]

NEEDED = "the model subtracts a daily season and needs dates and times"
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
