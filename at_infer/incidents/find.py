"""Incidents of a file of scores, series after series, in one pass with bounded memory."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from at_infer.incidents.incident import Incident
from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.series import SeriesIncidents
from at_infer.incidents.tracker import Event, Evidence
from at_infer.models.fusion import LABELS
from at_infer.models.scored_by import ScoredBy
from at_infer.models.spacing import find_gaps
from at_infer.tables.absent import read_missing
from at_infer.tables.clock import FOR_GAPS, clock_fits, column_times
from at_infer.tables.scores import ScoredChunk, ScoredFile


class Found(NamedTuple):
    """An incident and where in the file it is."""

    incident: Incident
    series: int
    """Number of the series."""
    first: int
    end: int
    """Rows of the file, the last excluded."""
    peak: int


class IncidentFinder:
    """Takes the rows of a file of scores, those of one series after the other."""

    def __init__(self, file: ScoredFile, rules: IncidentRules) -> None:
        self.rules, self.series, self.first_row = rules, -1, 0
        self.source = str(file.source)
        written = ScoredBy.of(file.properties, self.source)
        self.model = written.checkpoint_sha256 or ""
        self.spacing = written.spacing if file.keys.time is not None else None
        self.features = [*file.features, *([None] if file.explained == "top" else [])]
        self.views = LABELS if file.has_views else ()
        self.columns = written.columns or []
        self.tracker: SeriesIncidents | None = None
        self.time: float | None = None
        """Of the last row of the series."""

    def start_series(self, name: str, first_row: int) -> list[Found]:
        """The rows that come next belong to another series; what was open in the last one."""
        found = self.end()
        self.series, self.first_row, self.time = self.series + 1, first_row, None
        self.tracker = SeriesIncidents(
            self.rules, model=self.model, series=name, features=self.features, views=self.views, columns=self.columns
        )
        return found

    def add(self, rows: ScoredChunk) -> list[Found]:
        """Incidents that are over, or that end with a gap in these rows."""
        assert self.tracker is not None
        events: list[Event] = []
        gaps = self._gaps(rows)
        for first, end in pairwise(sorted({0, *gaps, len(rows.scores)})):
            if first in gaps:
                events += self.tracker.cross_gap()
            events += self._add(self.tracker, rows.between(first, end))
        return self._closed(events)

    def end(self) -> list[Found]:
        """No more rows come."""
        return [] if self.tracker is None else self._closed(self.tracker.end())

    def _gaps(self, rows: ScoredChunk) -> list[int]:
        """Rows that a gap in time lies before, as scoring found them."""
        longest = None if self.spacing is None else self.spacing.longest_step()
        if self.spacing is None or longest is None or not clock_fits(rows.keys.dtype, self.spacing.clock):
            return []
        times = column_times(rows.keys, self.spacing.clock, f"{self.source}: column {rows.keys.name!r}", FOR_GAPS)
        before, self.time = self.time, float(times[-1])
        return [int(row) for row in find_gaps(times, longest, before)]

    def _add(self, tracker: SeriesIncidents, rows: ScoredChunk) -> list[Event]:
        evidence = None
        if rows.evidence is not None:
            views = None
            if rows.views is not None:  # of the top feature; nothing is known of the others
                views = np.broadcast_to(rows.views[:, None], rows.evidence.shape)
            evidence = Evidence(rows.evidence, views)
        missing = None if rows.missing is None else read_missing(rows.missing, self.columns)
        return tracker.add(rows.scores, rows.keys, onset=rows.onset, evidence=evidence, missing=missing)

    def _closed(self, events: list[Event]) -> list[Found]:
        at = self.first_row
        return [
            Found(one, self.series, at + one.begin_row, at + one.end_row + 1, at + one.peak_row)
            for kind, one in events
            if kind == "closed"
        ]


def find_incidents(file: ScoredFile, rules: IncidentRules) -> Iterator[Found]:
    """All of them, in the order of the file."""
    finder = IncidentFinder(file, rules)
    for chunk in file.chunks():
        for name, part in chunk.parts():
            if name is not None:
                yield from finder.start_series(name, part.first_row)
            yield from finder.add(part)
    yield from finder.end()
