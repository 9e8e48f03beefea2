"""Rows of tables through the scoring core: chunks in, scores and incidents of as many rows as are asked for out."""

from collections import deque
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from at_infer.api.picture import Axis, SeriesRows
from at_infer.api.result import Result
from at_infer.incidents.incident import Incident
from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.series import SeriesIncidents
from at_infer.incidents.tracker import Event
from at_infer.live.incidents import evidence
from at_infer.models.fusion import LABELS
from at_infer.scoring.scorer import Scorer
from at_infer.scoring.series import Bools, SeriesState, Stretch
from at_infer.scoring.windows import Floats
from at_infer.tables.absent import MISSING, read_missing
from at_infer.tables.columns import Columns
from at_infer.tables.frames import Frame
from at_infer.tables.parts import CarriedRows
from at_infer.tables.row_stream import Chunk


class FinalRows(NamedTuple):
    """Rows that are final."""

    channels: Floats
    incidents: list[Incident]
    times: Any
    """Of the rows, or their numbers; None: there are none."""
    spans: list[SeriesRows]
    keys: Frame
    """Time and series of the rows."""

    def result(self, scorer: Scorer, given: object, frame: Frame) -> Result:
        """Together with the table that they are of."""
        return Result.of(scorer, self.channels, self.incidents, given, frame, Axis(self.times, self.spans))


class TableRun:
    """Chunks of rows in, channels and incidents of as many rows as are asked for out."""

    def __init__(self, scorer: Scorer, rules: IncidentRules, columns: Columns, batch_size: int) -> None:
        self.scorer, self.rules, self.key = scorer, rules, columns.time_column or ("row" if not columns.keys else None)
        self.core = scorer.rows(batch_size)
        self.series: SeriesState | None = None
        self.carried, self.keys = CarriedRows(), Frame()
        self.channels: list[Floats] = []
        self.ready = 0
        """Rows whose scores are final and were not taken."""
        self.starts: deque[tuple[int, str]] = deque()
        """Where series begin, as far as they were not taken."""
        self.gaps: deque[int] = deque()
        """The same for gaps in time."""
        self.stretch: Stretch | None = None
        """Of the rows that were final last."""
        self.came = self.taken = 0
        self.begun, self.name = 0, ""
        """Row that the series of the rows taken last begins with, and its name."""
        self.ended = False
        self.tracker = tracker_of(scorer, rules, "")

    def add(self, chunk: Chunk) -> None:
        """The next rows, of any number of series."""
        self.carried.push(chunk.carried)
        for first, end, name in chunk.runs():
            if name is not None:
                if self.series is not None:
                    self.core.end(self.series)
                self.series = self.core.start(name)
                self.starts.append((self.came + first, name))
            assert self.series is not None
            times = None if chunk.times is None else chunk.times[first:end]
            self.core.push(self.series, chunk.values[first:end], chunk.file, chunk.file_row + first, times)
        self.came += len(chunk.values)
        self._collect()

    def end(self) -> None:
        """No more rows come."""
        if self.series is not None:
            self.core.end(self.series)
        self.core.flush()
        self.ended = True
        self._collect()

    def take(self, count: int) -> FinalRows:
        """Rows that are ready, and the incidents that end in them."""
        nothing = np.empty((0, self.core.settings.channels), np.float32)
        found = self.channels[0] if len(self.channels) == 1 else np.concatenate([nothing, *self.channels])
        self.channels, channels = [found[count:]], found[:count]
        self.ready -= count
        if count:
            self.keys = self.carried.take(count)
        times = None if self.key is None or not count else self.keys[self.key]
        columns = self.scorer.metadata.columns
        missing = read_missing(self.keys[MISSING], columns) if MISSING in self.keys and count else None
        events: list[Event] = []
        spans: list[SeriesRows] = []
        at = 0
        while at < count:
            if self.starts and self.starts[0][0] == self.taken + at:
                events += self.tracker.end()
                self.begun, self.name = self.starts.popleft()
                self.tracker = tracker_of(self.scorer, self.rules, self.name)
            if self.gaps and self.gaps[0] == self.taken + at:
                self.gaps.popleft()
                events += self.tracker.cross_gap()
            cuts = [*(first for first, _ in islice(self.starts, 1)), *islice(self.gaps, 1)]
            end = min([count, *(cut - self.taken for cut in cuts)])
            events += track(self.scorer, self.tracker, slice(at, end), channels, times, missing)
            if not at or self.begun == self.taken + at:
                spans.append(SeriesRows(self.name, at, end, self.taken + at - self.begun))
            spans[-1] = spans[-1]._replace(end=end)
            at = end
        self.taken += count
        if self.ended and not self.ready:
            events += self.tracker.end()
        return FinalRows(channels, closed(events), times, spans, self.keys)

    def _collect(self) -> None:
        for rows in self.core.take():
            if self.stretch is not None and self.stretch is not rows.stretch and self.stretch.series is rows.series:
                self.gaps.append(self.taken + self.ready)
            self.stretch = rows.stretch
            self.channels.append(rows.channels)
            self.ready += len(rows.channels)


def tracker_of(scorer: Scorer, rules: IncidentRules, series: str) -> SeriesIncidents:
    """Of one series."""
    return SeriesIncidents(
        rules,
        model=scorer.metadata.checkpoint_sha256,
        series=series,
        features=scorer.metadata.columns,
        views=LABELS if scorer.config.mode == "fusion" else (),
        columns=scorer.metadata.columns,
    )


def track(
    scorer: Scorer,
    tracker: SeriesIncidents,
    part: slice,
    channels: Floats,
    times: Any,
    missing: Bools | None,
) -> list[Event]:
    """Some of the rows."""
    rows = channels[part]
    return tracker.add(
        rows[:, 0],
        None if times is None else times[part],
        onset=rows[:, -1] if scorer.has_onset else None,
        evidence=evidence(scorer, rows),
        missing=None if missing is None else missing[part],
    )


def closed(events: list[Event]) -> list[Incident]:
    """Incidents that have ended, or are open at the end."""
    return [event.incident for event in events if event.kind == "closed"]
