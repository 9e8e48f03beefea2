"""Rows of a stream onto a grid of times: a step is complete when a row of a later one comes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import numpy as np

from at_infer.errors import DataError
from at_infer.live.clock import StreamClock
from at_infer.live.rows import Row
from at_infer.live.scorer import StreamScorer
from at_infer.live.tally import Tally
from at_infer.live.times import Moment, Time, TimeOrderError, as_json, moment
from at_infer.tables.clock import seconds_of
from at_infer.tables.resample import Resampler, Steps

_START = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_YEAR, LAST_YEAR = 3, 9997


@dataclass(slots=True)
class _Series:
    """One series on its way onto the grid."""

    resampler: Resampler
    time: tuple[Moment, Time] | None = None
    """Of its last row."""

    @property
    def zone(self) -> tzinfo | None:
        """That its times are written in."""
        value = None if self.time is None else self.time[0].value
        return value.tzinfo if isinstance(value, datetime) else None


class LiveGrid:
    """Rows in, rows of the grid out, by the rules of files; at most as many series as the stream knows."""

    def __init__(self, stream: StreamScorer, tally: Tally) -> None:
        assert stream.scorer.on_grid is not None
        self.how, self.features = stream.scorer.on_grid, len(stream.metadata.columns)
        self.clock: StreamClock = stream.clock
        self.max_series, self.tally = stream.max_series, tally
        self.series: dict[Any, _Series] = {}
        """Least recently seen first."""

    def add(self, row: Row) -> list[Row]:
        """Steps that are complete because of this row; raises if it has no time that can lie on a grid."""
        known = self.series.pop(row.series, None) or self._start()
        self.series[row.series] = known
        try:
            now = self.clock.read(row.time, known.time)
        except TimeOrderError:
            if self.clock.on_bad_time != "drop":
                raise
            self.tally.dropped_rows += 1
            return []
        if now is None or not isinstance(now[0].value, datetime):
            raise DataError(f"time {row.time!r} is not a date and time, which resampling to a grid needs")
        if not FIRST_YEAR <= now[0].value.year <= LAST_YEAR:  # where its step begins there may be no date
            raise DataError(f"time {row.time!r} is not between the years {FIRST_YEAR} and {LAST_YEAR}")
        known.time = now
        seconds, values = np.array([seconds_of(now[0].value)]), np.array([row.values], np.float32)
        return [one for steps in known.resampler.add(seconds, values) for one in _rows(steps, row.series, known.zone)]

    def end(self) -> list[Row]:
        """No more rows come: the steps that are open."""
        return [
            one
            for name, known in self.series.items()
            for steps in known.resampler.end()
            for one in _rows(steps, name, known.zone)
        ]

    def remember(self) -> list[dict[str, Any]]:
        """JSON values from which `recall` continues."""
        return [
            {
                "series": name,
                "time": None if known.time is None else as_json(known.time[1]),
                "resampler": known.resampler.remember(),
            }
            for name, known in self.series.items()
        ]

    def recall(self, kept: Sequence[dict[str, Any]]) -> None:
        """Go on where `remember` was asked."""
        for one in kept:
            known = self.series[one["series"]] = self._start()
            known.time = None if one["time"] is None else (moment(one["time"]), one["time"])
            known.resampler.recall(one["resampler"])

    def _start(self) -> _Series:
        if len(self.series) == self.max_series:
            del self.series[next(iter(self.series))]
        return _Series(Resampler(self.how, self.features))


def _rows(steps: Steps, series: Any, zone: tzinfo | None) -> list[Row]:
    times = [_START + timedelta(microseconds=us) for us in steps.microseconds.tolist()]
    shown = [time.replace(tzinfo=None) if zone is None else time.astimezone(zone) for time in times]
    return [Row(values, series, time.isoformat()) for values, time in zip(steps.values, shown, strict=True)]
