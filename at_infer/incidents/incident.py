"""An incident as a value: what, where, when, how bad, and why. The same from a file, a stream and a cluster."""

import hashlib
import math
import re
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, NamedTuple

import numpy as np

from at_infer.tables.clock import find_date, seconds_of

Time = int | float | str
"""Time of a row as its column has it, dates as ISO 8601 with a T; or the number of the row."""
MOST_EXACT = 2**53
"""Beyond, a number in JSON may lose digits; it stays a text."""
_BELOW_MICROSECONDS = re.compile(r"[.,]\d{7}")
State = Literal["open", "closed"]
Kind = Literal["anomaly", "missing feature"]


class Cause(NamedTuple):
    """A cause: a feature."""

    feature: str
    share: float
    """Of the error, over the rows of the incident."""
    view: str | None = None
    """Main view, in mode `fusion`: shape, next row, rows ahead, burst, level or stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An incident of one series, in its current state.

    >>> from at_infer import Scorer
    >>> with Scorer("model.onnx") as scorer:
    ...     incidents = scorer.score(frame).incidents
    >>> longest = max((incident.rows for incident in incidents), default=0)
    """

    id: str
    """Of model, series and begin: the same after a restart, in `score`, `watch` and on a cluster."""
    kind: Kind = "anomaly"
    """Scores above the threshold, or a feature without values, which has no score."""
    series: str
    """Empty if there is only one series."""
    state: State
    """`open`: the last row that is known belongs to it."""
    begin: Time
    end: Time
    """Of its last row so far."""
    peak: Time
    """Of the row with the highest score."""
    begin_row: int
    end_row: int
    peak_row: int
    """The same as numbers of rows within the series, from 0."""
    peak_score: float
    threshold: float
    causes: tuple[Cause, ...] = ()
    """Features with their share of the error, largest first; empty without explanations."""

    @property
    def rows(self) -> int:
        """From begin to end, both included."""
        return self.end_row - self.begin_row + 1

    @property
    def ratio(self) -> float:
        """Peak score over threshold."""
        return self.peak_score / self.threshold if self.threshold > 0 else math.inf

    @property
    def duration_s(self) -> float | None:
        """Seconds from begin to end; None if the times are no dates."""
        begin, end = as_seconds(self.begin), as_seconds(self.end)
        return None if begin is None or end is None else end - begin

    def as_json(self) -> dict[str, Any]:
        """JSON values by name, documented in docs/scoring.md; a number that JSON does not have is null."""
        return {
            "kind": self.kind,
            "id": self.id,
            "series": self.series,
            "state": self.state,
            "begin": self.begin,
            "end": self.end,
            "peak": self.peak,
            "duration_s": self.duration_s,
            "rows": self.rows,
            "begin_row": self.begin_row,
            "end_row": self.end_row,
            "peak_row": self.peak_row,
            "peak_score": _finite(self.peak_score),
            "threshold": self.threshold,
            "ratio": _finite(self.ratio),
            "causes": [cause._asdict() for cause in self.causes],
        }


def incident_id(model: str, series: str, begin: Time) -> str:
    """Twelve hexadecimal digits; a time counts as the instant it is, however it is written."""
    return hashlib.sha256(f"{model}\n{series}\n{_instant(begin)}".encode(errors="backslashreplace")).hexdigest()[:12]


def plain_time(value: Any) -> Time:
    """A time or row number of any kind as a JSON value, spelt alike whether a file, a stream or CSV had it."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]")
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, date):  # datetime is one
        return value.isoformat()
    if isinstance(value, str):
        return _spelt_alike(value)
    return value if isinstance(value, int | float) else str(value)


def _spelt_alike(text: str) -> Time:
    """Numbers as numbers, dates with times as `datetime` spells them, as far as it can; other texts as they are."""
    number, date_only = _number(text), re.fullmatch(r"\s*\d{4}-\d\d-\d\d\s*", text) is not None
    if number is not None:
        return number if abs(number) <= MOST_EXACT else text
    if (time := find_date(text)) is None:
        return text
    if date_only:
        return text.strip()
    return text.strip().replace(" ", "T", 1) if _BELOW_MICROSECONDS.search(text) else time.isoformat()


def as_seconds(time: Time) -> float | None:
    """Seconds since 1970; None for a number, also one as text, and for a text that is no date."""
    date = find_date(time) if isinstance(time, str) else None
    return None if date is None else seconds_of(date)


def _instant(time: Time) -> str:
    """One text for each instant: CSV has numbers as texts, Parquet dates without a zone, which count as UTC."""
    seconds, number = as_seconds(time), _number(time)
    if seconds is not None:
        return f"date {round(seconds * 1e6)}"
    return f"text {time}" if number is None else f"number {number!r}"


def _number(time: Time) -> int | float | None:
    """Whole numbers exactly, and 7.0 as 7."""
    try:
        found = int(time) if isinstance(time, int | str) else float(time)
    except ValueError:
        try:
            found = float(time)
        except ValueError:
            return None
    return int(found) if isinstance(found, float) and found.is_integer() else found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
