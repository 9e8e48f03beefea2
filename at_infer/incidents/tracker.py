"""Rows of one series in, incidents out; the same whether rows come one by one, in chunks or all at once."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from at_infer.errors import ConfigError
from at_infer.incidents.incident import Cause, Incident, State, Time, incident_id, plain_time
from at_infer.incidents.rules import IncidentRules
from at_infer.thresholds.verdict import exceeds
from at_infer.untrusted import typed

Floats = NDArray[np.float32]


class Times(Protocol):
    """A list, an array or a column."""

    def __getitem__(self, row: int, /) -> Any:
        """The time of a row."""


Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]

MOST_CAUSES = 5
LARGEST = float(np.finfo(np.float32).max)
NO_FLOATS = np.empty((0, 0), np.float32)


class Event(NamedTuple):
    """An event to report."""

    kind: Literal["opened", "worse", "closed"]
    incident: Incident
    """As it is at this moment."""


class Evidence(NamedTuple):
    """What explains scores (n,)."""

    blame: Floats
    """(n,C): the part of each feature in the score, or its error; NaN where unknown."""
    views: Floats | None = None
    """(n,C): number of the view that shows the feature most."""


@dataclass(slots=True)
class _Candidate:
    """Rows that are, or may become, an incident. Numbers of rows count within the series."""

    first_row: int
    """The first above the threshold."""
    last_row: int
    last: Time
    peak_row: int
    peak: Time
    peak_score: float
    rows: int = 0
    """Above the lower limit."""
    begin_row: int | None = None
    """None: the row of the cause is not known yet."""
    begin: Time = 0
    announced: float | None = None
    """Peak that was announced last; None: not opened."""
    in_gap: bool = False
    blame: list[list[float]] = field(default_factory=list)
    """Sums per feature and view."""


class IncidentTracker:
    """Turns the scores of one series into incidents.

    >>> tracker = IncidentTracker(rules, model=checkpoint_sha256, series="pump 7")   # doctest: +SKIP
    >>> for event in tracker.add(scores, times):                                     # doctest: +SKIP
    ...     print(event.kind, event.incident.as_json())

    A row is above a limit as a row is anomalous: `score > float32(limit)`; one without a score is below. Memory does
    not grow with the rows.
    """

    def __init__(
        self,
        rules: IncidentRules,
        *,
        model: str,
        series: str = "",
        features: Sequence[str | None] = (),
        views: Sequence[str | None] = (),
    ) -> None:
        """`features` and `views` are the names of what `Evidence` numbers; None is never named in a cause."""
        self.rules, self.model, self.series = rules, model, series
        self.features, self.view_names = list(features), list(views)
        self.number = 0
        """Of the next row within the series."""
        self._quiet_until = 0
        """Row from which an incident may open: the end of the cool-down."""
        self._now: _Candidate | None = None

    @property
    def current(self) -> Incident | None:
        """The incident that is open."""
        return None if self._now is None or self._now.announced is None else self._incident(self._now, "open")

    def add(
        self,
        scores: Floats,
        times: Times | None = None,
        *,
        onset: Floats | None = None,
        evidence: Evidence | None = None,
    ) -> list[Event]:
        """The next rows of the series.

        `times` are those of the rows, or numbers that the caller gives them; by default rows count from 0. `onset` are
        scores that depend on no later row: an incident begins where they exceed the threshold too.
        """
        rows = _Rows(self, scores, times, onset, evidence)
        events: list[Event] = []
        at, count = 0, len(scores)
        while at < count:
            now = self._now
            if now is None:
                at = rows.next_hot(at)
                if at < count:
                    self._now = rows.candidate(at)
            elif now.in_gap:
                last = now.last_row + self.rules.merge_rows + 1 - self.number
                hot = rows.next_hot(at)
                if hot < count and hot <= last:
                    at, now.in_gap = hot, False
                elif last < count:
                    events += self._close("closed")
                    at = last + 1
                else:
                    at = count
            else:
                cold = rows.next_cold(at)
                events += self._grow(now, rows, at, cold)
                at, now.in_gap = cold, cold < count
        self.number += count
        return events

    def end(self) -> list[Event]:
        """No more rows come, or others that do not follow these; an incident that has not closed stays `open`."""
        events = self._close("open" if self._now is not None and not self._now.in_gap else "closed")
        self._quiet_until = 0
        return events

    def cross_gap(self) -> list[Event]:
        """A gap in time precedes the next row: no incident spans it. The cool-down counts rows and continues."""
        return self._close("closed")

    def _worse_than(self, announced: float) -> float:
        """Scores are float32, in which the limit of a huge one would be infinite."""
        return min(self.rules.worse_factor * announced, LARGEST)

    def remember(self) -> dict[str, Any]:
        """JSON values from which `recall` continues."""
        now = None if self._now is None else asdict(self._now)
        return {"number": self.number, "quiet_until": self._quiet_until, "now": now}

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked: the same ids, and nothing opens twice."""
        self.number, self._quiet_until = (typed(int, kept[name], name) for name in ("number", "quiet_until"))
        self._now = typed(_Candidate | None, kept["now"], "now")
        shape = (len(self.features), max(1, len(self.view_names)))
        now = self._now
        if now is not None and now.blame and np.shape(now.blame) != shape:
            raise ConfigError(f"blame: is not of {shape[0]} features and {shape[1]} views")
        if now is not None and now.announced is not None and now.begin_row is None:
            raise ConfigError("begin_row: an incident that was opened has begun")

    def _grow(self, now: _Candidate, rows: "_Rows", at: int, end: int) -> list[Event]:
        """Rows above the lower limit, cut at every event, so that it is reported as of that row."""
        events: list[Event] = []
        rules = self.rules
        while at < end:
            late = now.first_row + rules.look_ahead_rows - self.number
            if now.begin_row is None:
                cut = min(rows.next_supported(at), max(at, late))
            elif now.announced is None:
                cut = max(at, at + rules.min_rows - now.rows - 1, self._quiet_until - self.number)
            else:
                cut = rows.next_above(self._worse_than(now.announced), at, end)
            cut = min(cut + 1, end)
            rows.add_to(now, at, cut)
            at, row = cut, cut - 1
            if now.begin_row is None:
                if rows.supported[row]:
                    now.begin_row, now.begin = now.last_row, now.last
                    now.peak_row, now.peak = now.last_row, now.last  # what was higher before is not of this cause
                    now.peak_score = float(rows.scores[row])
                elif row >= late:
                    now.begin_row, now.begin = now.peak_row, now.peak
            if now.announced is None:
                if now.begin_row is not None and now.rows >= rules.min_rows and now.last_row >= self._quiet_until:
                    now.announced = now.peak_score
                    events.append(Event("opened", self._incident(now, "open")))
            elif 0 < self._worse_than(now.announced) < rows.scores[row]:
                now.announced = now.peak_score
                events.append(Event("worse", self._incident(now, "open")))
        return events

    def _close(self, state: State) -> list[Event]:
        now, self._now = self._now, None
        if now is None or now.rows < self.rules.min_rows:
            return []
        events = []
        if now.announced is None:
            if now.last_row < self._quiet_until:
                return []
            if now.begin_row is None:
                now.begin_row, now.begin = now.peak_row, now.peak
            events = [Event("opened", self._incident(now, "open"))]
        self._quiet_until = now.last_row + 1 + self.rules.cool_down_rows
        return [*events, Event("closed", self._incident(now, state))]

    def _incident(self, now: _Candidate, state: State) -> Incident:
        assert now.begin_row is not None
        return Incident(
            id=incident_id(self.model, self.series, now.begin),
            series=self.series,
            state=state,
            begin=now.begin,
            end=now.last,
            peak=now.peak,
            begin_row=now.begin_row,
            end_row=now.last_row,
            peak_row=now.peak_row,
            peak_score=now.peak_score,
            threshold=self.rules.open_at,
            causes=tuple(self._causes(now)),
        )

    def _causes(self, now: _Candidate) -> list[Cause]:
        sums = np.array(now.blame, np.float64)
        total = sums.sum()
        if not np.isfinite(total) or total <= 0:
            return []
        shares = sums.sum(axis=1) / total
        found = []
        for i in np.argsort(-shares, kind="stable")[: MOST_CAUSES + 1].tolist():
            name = self.features[i]
            if name is not None and shares[i] > 0:
                found.append(Cause(name, float(shares[i]), self._main_view(sums[i])))
        return found[:MOST_CAUSES]

    def _main_view(self, sums: Doubles) -> str | None:
        """Of those that are known."""
        known = [(total, name) for total, name in zip(sums.tolist(), self.view_names, strict=False) if name is not None]
        total, name = max(known, key=lambda pair: pair[0], default=(0.0, None))
        return name if total > 0 else None


class _Rows:
    """Some rows, and where in them something happens."""

    def __init__(
        self,
        tracker: IncidentTracker,
        scores: Floats,
        times: Times | None,
        onset: Floats | None,
        evidence: Evidence | None,
    ) -> None:
        rules = tracker.rules
        self.scores, self.times, self.first = np.asarray(scores, np.float32), times, tracker.number
        self.evidence, self.views = evidence, max(1, len(tracker.view_names))
        above = exceeds(self.scores, rules.open_at)
        self.supported = np.ones(len(scores), np.bool_) if onset is None else above & exceeds(onset, rules.open_at)
        self.hot: Ints = np.flatnonzero(above)
        self.cold: Ints = np.flatnonzero(~exceeds(self.scores, rules.close_at))  # also where there is no score

    def next_hot(self, at: int) -> int:
        """The first row from `at` on that is above the threshold; the number of rows if there is none."""
        return self._next(self.hot, at)

    def next_cold(self, at: int) -> int:
        """The same for a row below the lower limit."""
        return self._next(self.cold, at)

    def next_supported(self, at: int) -> int:
        """The same for a row that is anomalous, and was by the rows before it alone."""
        found = self.supported[at:].argmax() if len(self.supported) > at else 0
        return at + int(found) if self.supported[at:].any() else len(self.scores)

    def next_above(self, limit: float, at: int, end: int) -> int:
        """The same for a row above a limit, before `end`."""
        above = np.flatnonzero(self.scores[at:end] > limit) if limit > 0 else NO_FLOATS
        return at + int(above[0]) if len(above) else end

    def _next(self, where: Ints, at: int) -> int:
        found = int(np.searchsorted(where, at))
        return int(where[found]) if found < len(where) else len(self.scores)

    def time(self, at: int) -> Time:
        """As the row has it, or its number."""
        return self.first + at if self.times is None else plain_time(self.times[at])

    def candidate(self, at: int) -> _Candidate:
        """One that begins here, without this row so far."""
        row, time = self.first + at, self.time(at)
        return _Candidate(row, row, time, row, time, float("-inf"))

    def add_to(self, now: _Candidate, at: int, end: int) -> None:
        """Rows that belong to a candidate."""
        part = self.scores[at:end]
        peak = int(part.argmax())
        if part[peak] > now.peak_score:
            now.peak_score = float(part[peak])
            now.peak_row, now.peak = self.first + at + peak, self.time(at + peak)
        now.rows += end - at
        now.last_row, now.last = self.first + end - 1, self.time(end - 1)
        if self.evidence is not None:
            self._blame(now, self.evidence, at, end)

    def _blame(self, now: _Candidate, evidence: Evidence, at: int, end: int) -> None:
        """One row after the other, so that sums do not depend on the pieces."""
        blame = np.nan_to_num(evidence.blame[at:end].astype(np.float64), posinf=0.0, neginf=0.0)
        rows, features = blame.shape
        sums = np.array(now.blame or np.zeros((features, self.views)), np.float64)
        views = np.zeros((rows, features), np.int64)
        if evidence.views is not None:
            views = np.nan_to_num(evidence.views[at:end]).astype(np.int64)
        np.add.at(sums, (np.broadcast_to(np.arange(features), (rows, features)), views), blame)
        now.blame = sums.tolist()
