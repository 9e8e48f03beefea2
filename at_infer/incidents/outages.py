"""Features of a series that have had no value for a while, as incidents of their own."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from at_infer.incidents.incident import Cause, Incident, State, Time, incident_id, plain_time
from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.tracker import Event, Times
from at_infer.models.spacing import Spacing
from at_infer.untrusted import typed

Bools = NDArray[np.bool_]

OUTAGE_S = 600.0
"""Without a value of a feature that is worth an incident, but at least `FEWEST_ROWS`."""
FEWEST_ROWS = 10
OUTAGE_ROWS = 60
"""The same if the time between rows is unknown."""


def outage_rows(spacing: Spacing | None) -> int:
    """Rows without a value of a feature that are worth an incident."""
    if spacing is None or spacing.clock != "date":
        return OUTAGE_ROWS
    return max(FEWEST_ROWS, ceil(OUTAGE_S / spacing.step))


@dataclass(slots=True)
class _Outage:
    """A feature without a value. JSON values only, for the state."""

    feature: str
    model: str
    """Checkpoint that names it: an id outlives the engine."""
    begin: Time
    begin_row: int
    end: Time
    end_row: int
    """Of the last row without a value."""
    is_open: bool = False

    def incident(self, state: State, series: str, threshold: float) -> Incident:
        """As it is at this moment; it has no score."""
        return Incident(
            id=incident_id(self.model, f"{series}\nmissing {self.feature}", self.begin),
            kind="missing feature",
            series=series,
            state=state,
            begin=self.begin,
            end=self.end,
            peak=self.begin,
            begin_row=self.begin_row,
            end_row=self.end_row,
            peak_row=self.begin_row,
            peak_score=nan,
            threshold=threshold,
            causes=(Cause(self.feature, 1.0),),
        )


class OutageTracker:
    """Turns rows of one series without values into incidents: opened after a while, closed when the feature is back.

    As with `IncidentTracker`, it does not matter in which pieces the rows come.
    """

    def __init__(self, rules: IncidentRules, *, model: str, features: Sequence[str], series: str = "") -> None:
        self.rules, self.model, self.series, self.features = rules, model, series, list(features)
        self.number = 0
        """Of the next row within the series."""
        self.known: dict[str, _Outage] = {}
        """By feature."""

    @property
    def open(self) -> int:
        """How many people know of."""
        return sum(outage.is_open for outage in self.known.values())

    def add(self, missing: Bools, times: Times | None = None) -> list[Event]:
        """The next rows (n,F), true where there is no value; by default their times are their numbers."""
        events: list[tuple[int, Event]] = []
        empty = np.any(missing, axis=0).tolist()
        for j, name in enumerate(self.features):
            if not empty[j] and name not in self.known:
                continue
            cuts = np.flatnonzero(np.diff(missing[:, j], prepend=False, append=False))
            if name in self.known and not (len(cuts) and cuts[0] == 0):
                events += self._close(0, name)
            for first, end in cuts.reshape(-1, 2).tolist():
                events += self._grow(name, first, end, times)
                if end < len(missing):
                    events += self._close(end, name)
        self.number += len(missing)
        return [event for _, event in sorted(events, key=lambda one: one[0])]

    def cross_gap(self) -> list[Event]:
        """A gap in time lies before the next row: no incident spans it."""
        return self._end("closed")

    def end(self) -> list[Event]:
        """No more rows: report open outages."""
        return self._end("open")

    def remember(self) -> dict[str, Any]:
        """JSON values from which `recall` continues."""
        return {"number": self.number, "known": [asdict(outage) for outage in self.known.values()]}

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked: nothing opens a second time."""
        known = typed(list[_Outage], kept["known"], "known")
        self.number, self.known = typed(int, kept["number"], "number"), {one.feature: one for one in known}

    def _grow(self, name: str, first: int, end: int, times: Times | None) -> list[tuple[int, Event]]:
        """Rows without a value."""
        if name not in self.known:
            begin = self._time(first, times)
            self.known[name] = _Outage(name, self.model, begin, self.number + first, begin, self.number + first)
        outage, events = self.known[name], []
        worth_one = outage.begin_row + self.rules.outage_rows - 1 - self.number
        if not outage.is_open and worth_one < end:
            row = max(first, worth_one)  # later, if the rules have changed
            outage.is_open, outage.end, outage.end_row = True, self._time(row, times), self.number + row
            events.append((row, Event("opened", self._incident(outage, "open"))))
        outage.end, outage.end_row = self._time(end - 1, times), self.number + end - 1
        return events

    def _close(self, row: int, name: str) -> list[tuple[int, Event]]:
        outage = self.known.pop(name)
        return [(row, Event("closed", self._incident(outage, "closed")))] if outage.is_open else []

    def _end(self, state: State) -> list[Event]:
        gone, self.known = self.known, {}
        return [Event("closed", self._incident(outage, state)) for outage in gone.values() if outage.is_open]

    def _incident(self, outage: _Outage, state: State) -> Incident:
        return outage.incident(state, self.series, self.rules.open_at)

    def _time(self, row: int, times: Times | None) -> Time:
        return self.number + row if times is None else plain_time(times[row])
