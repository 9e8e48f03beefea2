"""Times of rows in a stream: numbers or ISO 8601, compared exactly, down to what datetime leaves out."""

import re
import sys
from datetime import datetime
from typing import NamedTuple

from at_infer.errors import DataError
from at_infer.tables.clock import NEEDED, seconds_of
from at_infer.untrusted import shown

Time = int | float | str | datetime
"""As a row carries it."""

_BELOW_MICROSECONDS = re.compile(r"[.,]\d{6}(\d+)")


class Moment(NamedTuple):
    """A time that can be compared with another one of its kind."""

    kind: str
    value: int | float | datetime
    picoseconds: int
    """Digits of a text beyond microseconds, which datetime cuts off."""


class TimeOrderError(DataError):
    """A time that does not rise."""


def moment(time: object) -> Moment:
    """Read a time; numbers may be written as text, as in CSV."""
    if isinstance(time, str):
        return _from_text(time.strip())
    if isinstance(time, datetime):
        return Moment(_kind(time), time, 0)
    if isinstance(time, bool) or not isinstance(time, int | float) or not _is_finite(time):
        raise DataError(f"time {_quoted(time)} is neither a number nor a date and time")
    return Moment("number", time, 0)


def check_order(last: Moment, time: Moment, written_last: Time, written: Time) -> None:
    """Time rises from row to row of a series."""
    if last.kind != time.kind:
        raise DataError(f"time {_quoted(written)} is a {time.kind}, {_quoted(written_last)} before it a {last.kind}")
    if time[1:] == last[1:]:
        raise TimeOrderError(f"time {_quoted(written)} is there twice")
    if time[1:] < last[1:]:
        raise TimeOrderError(f"time {_quoted(written)} comes after {_quoted(written_last)}")


def seconds(time: Moment, written: Time) -> float:
    """Since 1970; a number tells no time of day."""
    if not isinstance(time.value, datetime):
        raise DataError(f"time {_quoted(written)} is a number; {NEEDED}")
    return seconds_of(time.value)


def as_json(time: Time) -> int | float | str:
    """What `moment` reads back to the same."""
    return time.isoformat() if isinstance(time, datetime) else time


def _from_text(text: str) -> Moment:
    for number in (int, float):
        try:
            found = number(text)
        except ValueError:
            continue
        if not _is_finite(found):
            break
        return Moment("number", found, 0)
    try:
        date_time = datetime.fromisoformat(text)
    except ValueError:
        raise DataError(f"time {_quoted(text)} is neither a number nor a date and time") from None
    rest = _BELOW_MICROSECONDS.search(text)
    return Moment(_kind(date_time), date_time, int(rest[1][:6].ljust(6, "0")) if rest else 0)


def _is_finite(number: int | float) -> bool:
    """An integer of hundreds of digits has no float to compare with."""
    return abs(number) <= sys.float_info.max


def _kind(time: datetime) -> str:
    return "time without zone" if time.utcoffset() is None else "time with zone"


def _quoted(time: object) -> str:
    return shown(str(time) if isinstance(time, datetime) else time)
