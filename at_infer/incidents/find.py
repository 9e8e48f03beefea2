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


class GapFinder:
    """Where rows of a file of scores have a gap in time before them, as scoring found it."""

    def __init__(self, file: ScoredFile) -> None:
        self.source = str(file.source)
        self.spacing = ScoredBy.of(file.properties, self.source).spacing if file.keys.time is not None else None
        self.time: float | None = None
        """Of the last row of the series."""
        self.found: set[int] = set()
        """Of the rows looked at last."""

    def stretches(self, rows: ScoredChunk, *, begins: bool) -> list[tuple[int, int]]:
        """The next rows of a series, or the first ones of another, cut at gaps."""
        self.time = None if begins else self.time
        longest = None if self.spacing is None else self.spacing.longest_step()
        self.found = set()
        if self.spacing is not None and longest is not None and clock_fits(rows.keys.dtype, self.spacing.clock):
            where = f"{self.source}: column {rows.keys.name!r}"
            times = column_times(rows.keys, self.spacing.clock, where, FOR_GAPS)
            self.found = {int(row) for row in find_gaps(times, longest, self.time)}
            self.time = float(times[-1])
        return list(pairwise(sorted({0, *self.found, len(rows.scores)})))


class IncidentFinder:
    """Takes the rows of a file of scores, those of one series after the other."""

    def __init__(self, file: ScoredFile, rules: IncidentRules) -> None:
        self.rules, self.series, self.first_row = rules, -1, 0
        written = ScoredBy.of(file.properties, str(file.source))
        self.model = written.checkpoint_sha256 or ""
        self.features = [*file.features, *([None] if file.explained == "top" else [])]
        self.views = (*LABELS, None) if file.has_views else ()
        self.columns = written.columns or []
        self.tracker: SeriesIncidents | None = None
        self.gaps, self.begins = GapFinder(file), True

    def start_series(self, name: str, first_row: int) -> list[Found]:
        """The rows that come next belong to another series; what was open in the last one."""
        found = self.end()
        self.series, self.first_row, self.begins = self.series + 1, first_row, True
        self.tracker = SeriesIncidents(
            self.rules, model=self.model, series=name, features=self.features, views=self.views, columns=self.columns
        )
        return found

    def add(self, rows: ScoredChunk) -> list[Found]:
        """Incidents that are over, or that end with a gap in these rows."""
        assert self.tracker is not None
        events: list[Event] = []
        for first, end in self.gaps.stretches(rows, begins=self.begins):
            if first in self.gaps.found:
                events += self.tracker.cross_gap()
            events += self._add(self.tracker, rows.between(first, end))
        self.begins = False
        return self._closed(events)

    def end(self) -> list[Found]:
        """No more rows come."""
        return [] if self.tracker is None else self._closed(self.tracker.end())

    def _add(self, tracker: SeriesIncidents, rows: ScoredChunk) -> list[Event]:
        evidence = None
        if rows.evidence is not None:
            views = None
            if rows.views is not None:  # of the top feature; nothing is known of the others
                views = np.full(rows.evidence.shape, len(LABELS), np.float32)
                top = rows.evidence[:, : len(self.features) - self.features.count(None)].argmax(axis=1)
                views[np.arange(len(views)), top] = np.nan_to_num(rows.views, nan=len(LABELS))
            evidence = Evidence(rows.evidence, views)
        missing = None if rows.missing is None else read_missing(rows.missing, self.columns)
        return tracker.add(rows.scores, rows.keys, onset=rows.onset, evidence=evidence, missing=missing)

    def _closed(self, events: list[Event]) -> list[Found]:
        at, closed = self.first_row, [one for kind, one in events if kind == "closed"]
        closed.sort(key=lambda one: one.end_row)
        return [Found(one, self.series, at + one.begin_row, at + one.end_row + 1, at + one.peak_row) for one in closed]


def find_incidents(file: ScoredFile, rules: IncidentRules) -> Iterator[Found]:
    """All of them, in the order of the file."""
    finder = IncidentFinder(file, rules)
    for chunk in file.chunks():
        for name, part in chunk.parts():
            if name is not None:
                yield from finder.start_series(name, part.first_row)
            yield from finder.add(part)
    yield from finder.end()
