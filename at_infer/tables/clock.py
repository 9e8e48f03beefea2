"""Times of rows: seconds since 1970, and their unit for messages."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.models.spacing import Clock, Times
from at_infer.tables.files import InputFile

Seconds = NDArray[np.float64]

NEEDED = "the model subtracts a season and needs dates and times"
FOR_GAPS = "gaps in time are found by it; pass max_gap=0 to do without"
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
    return _since_start(time) / 1e6


def _since_start(time: datetime) -> int:
    known = time if time.utcoffset() is not None else time.replace(tzinfo=UTC)
    return (known - _START) // _MICROSECOND


def find_date(text: str) -> datetime | None:
    """What an ISO 8601 text names; None for other texts, also for digits alone, which are a number."""
    try:
        return None if text.strip().isdigit() else datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def clock_fits(dtype: pl.DataType, clock: Clock) -> bool:
    """May a column of this type hold times that count like that?"""
    return can_be_clock(dtype) if clock == "date" else dtype.is_numeric()


def column_times(column: pl.Series, clock: Clock, where: str, why: str = NEEDED) -> Times:
    """Seconds since 1970, or the numbers themselves; `why` says in an error what they are needed for."""
    return column_seconds(column, where, why) if clock == "date" else column.cast(pl.Float64).to_numpy()


def column_seconds(column: pl.Series, where: str, why: str = NEEDED) -> Seconds:
    """Of dates, dates and times, or ISO 8601 texts, none of them missing."""
    return _microseconds(column, where, why) / 1e6


def _microseconds(column: pl.Series, where: str, why: str) -> NDArray[np.int64]:
    if is_clock(column.dtype):
        return column.cast(pl.Datetime("us", getattr(column.dtype, "time_zone", None))).to_physical().to_numpy()
    if column.dtype != pl.String:
        raise DataError(f"{where}: is {column.dtype}; {why}")
    try:
        return np.array([_since_start(datetime.fromisoformat(text.strip())) for text in column], np.int64)
    except ValueError as error:
        raise DataError(f"{where}: {error}; {why}") from None


def times_to_numbers(times: Sequence[Any] | NDArray[Any], clock: Clock, why: str) -> Times:
    """Of times in memory: seconds since 1970, or the numbers themselves."""
    if clock == "date":
        return times_to_seconds(times, why)
    try:
        numbers = np.asarray(times, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"times: {error}; {why}") from None
    if np.isnan(numbers).any():
        raise DataError(f"times: one is missing; {why}")
    return numbers


def times_to_seconds(times: Sequence[Any] | NDArray[Any], why: str = NEEDED) -> Seconds:
    """Of datetime, numpy.datetime64 or ISO 8601 texts in memory."""
    if isinstance(times, np.ndarray) and times.dtype.kind == "M":
        times = times.astype("datetime64[us]")
    try:
        column = times if isinstance(times, pl.Series) else pl.Series(times)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise DataError(f"times: {error}; {why}") from None
    if column.null_count():
        raise DataError(f"times: one is missing; {why}")
    return column_seconds(column, "times", why)


def find_clock(file: InputFile, column: str | None) -> Clock | None:
    """How the time column counts; None if rows can only be numbered."""
    if column is None:
        return None
    return clock_of(next(file.collect(file.scan.select(cs.by_name(column)), 1))[1][column])


def clock_of(column: pl.Series) -> Clock | None:
    """The same of a column, by its first value."""
    if column.dtype == pl.String:
        return "date" if any(text is not None and find_date(text) is not None for text in column[:1]) else None
    return "date" if is_clock(column.dtype) else "number" if column.dtype.is_numeric() else None


def shown_zone(file: InputFile, column: str | None) -> str:
    """Of times as `read_times` gives them: UTC where the column says a zone, else nothing, as written."""
    if column is None:
        return ""
    kind = file.schema[column]
    if kind != pl.String:
        return "UTC" if getattr(kind, "time_zone", None) is not None else ""
    first = find_date(next(file.collect(file.scan.select(cs.by_name(column)), 1))[1][column][0])
    return "UTC" if first is not None and first.utcoffset() is not None else ""


def read_times(column: pl.Series, clock: Clock, source: str) -> Times:
    """Milliseconds since 1970, or the numbers themselves."""
    if clock == "number":
        return column.cast(pl.Float64).to_numpy()
    return _microseconds(column, f"{source}: column {column.name!r}", "its first value is a date") / 1e3
