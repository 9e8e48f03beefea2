"""Incidents of a file of scores, series after series, in one pass with bounded memory."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from at_infer.incidents.incident import Incident
from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.tracker import Event, Evidence, IncidentTracker
from at_infer.models.fusion import LABELS
from at_infer.models.scored_by import ScoredBy
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
        self.model = ScoredBy.of(file.properties, str(file.source)).checkpoint_sha256 or ""
        self.features = [*file.features, *([None] if file.explained == "top" else [])]
        self.views = LABELS if file.has_views else ()
        self.tracker: IncidentTracker | None = None

    def start_series(self, name: str, first_row: int) -> list[Found]:
        """The rows that come next belong to another series; what was open in the last one."""
        found = self.end()
        self.series, self.first_row = self.series + 1, first_row
        self.tracker = IncidentTracker(
            self.rules, model=self.model, series=name, features=self.features, views=self.views
        )
        return found

    def add(self, rows: ScoredChunk) -> list[Found]:
        """Incidents that are over, or that end with a gap in these rows."""
        assert self.tracker is not None
        evidence = None
        if rows.evidence is not None:
            views = None
            if rows.views is not None:  # of the top feature; nothing is known of the others
                views = np.broadcast_to(rows.views[:, None], rows.evidence.shape)
            evidence = Evidence(rows.evidence, views)
        return self._closed(self.tracker.add(rows.scores, rows.keys, onset=rows.onset, evidence=evidence))

    def end(self) -> list[Found]:
        """No more rows come."""
        return [] if self.tracker is None else self._closed(self.tracker.end())

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
