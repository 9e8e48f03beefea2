"""Incidents of a stream: a tracker for each series, its state, and notifications."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from at_infer.incidents.outages import OutageTracker
from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.tracker import Event, Evidence, IncidentTracker
from at_infer.live.delivery import Delivery
from at_infer.live.pushed import Pushed, SeriesName
from at_infer.live.scorer import StreamScorer
from at_infer.live.tally import Tally
from at_infer.models.fusion import LABELS
from at_infer.scoring.scorer import Scorer
from at_infer.scoring.series import Bools
from at_infer.scoring.windows import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTracker:
    """Stored state of the incidents of a series."""

    series: str | int | float
    model: str
    """Checkpoint that names its incident: an id outlives the engine."""
    tracker: dict[str, Any]
    """As `IncidentTracker.remember` gives it."""
    outages: dict[str, Any] | None = None
    """The same of features without values; None if they are not looked for."""


class LiveIncidents:
    """Rows of all series in, events out; tells each event to every delivery."""

    def __init__(
        self, stream: StreamScorer, rules: IncidentRules, tally: Tally, deliveries: Sequence[Delivery] = ()
    ) -> None:
        self.tally, self.deliveries = tally, deliveries
        self.trackers: dict[SeriesName, IncidentTracker] = {}
        self.outages: dict[SeriesName, OutageTracker] = {}
        """Of features without values, where these are left out of the score."""
        self.use(stream, rules)

    def use(self, stream: StreamScorer, rules: IncidentRules) -> None:
        """The engine that scores from now on; incidents that are open keep their ids."""
        self.scorer, self.rules = stream.scorer, rules
        for name, tracker in self.trackers.items():
            self.trackers[name] = self._tracker(name, tracker.model if tracker.current else None)
            self.trackers[name].recall(tracker.remember())
        for name, outages in self.outages.items():
            self.outages[name] = self._outages(name)
            self.outages[name].recall(outages.remember())

    def add(self, pushed: Pushed, *, by_series: bool, by_time: bool) -> list[Event]:
        """Rows that came, and rows that are final, of any series; a row's time is its number if it has no other."""
        events: list[Event] = []
        for name in pushed.dropped:
            events += self.trackers.pop(name).end() if name in self.trackers else []
            events += self.outages.pop(name).end() if name in self.outages else []
        at = -1 if by_time else 0
        if pushed.missing is not None:
            events += self._add_missing(pushed, pushed.missing, at)
        rows = _by_series(pushed, by_series=by_series)
        for name, stretches in rows.items():
            if name not in self.trackers:
                self.trackers[name] = self._tracker(name)
            tracker = self.trackers[name]
            for number, entries in enumerate(stretches):
                events += tracker.cross_gap() if number else []
                channels = pushed.channels[entries]
                onset = channels[:, -1] if self.scorer.has_onset else None
                times = [pushed.tags[i][at] for i in entries]
                events += tracker.add(channels[:, 0], times, onset=onset, evidence=evidence(self.scorer, channels))
            if tracker.current is None:
                tracker.model = self.scorer.metadata.checkpoint_sha256
        return self._tell(events)

    def _add_missing(self, pushed: Pushed, missing: Bools, at: int) -> list[Event]:
        """Rows as they came: whether a feature has a value does not wait for a score."""
        events: list[Event] = []
        for name, taken in pushed.taken.items():
            if name not in self.outages:
                self.outages[name] = self._outages(name)
            outages = self.outages[name]
            gaps = [number for number, row in enumerate(taken.rows) if row in taken.gaps]
            for first, end in pairwise(sorted({0, *gaps, len(taken.rows)})):
                events += outages.cross_gap() if first in gaps else []
                rows = taken.rows[first:end]
                events += outages.add(missing[rows], [pushed.given_tags[i][at] for i in rows])
        return events

    def end(self) -> list[Event]:
        """The stream ends without a state: report open incidents."""
        of_scores = [event for tracker in self.trackers.values() for event in tracker.end()]
        return self._tell(of_scores + [event for outages in self.outages.values() for event in outages.end()])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait briefly for pending notifications."""
        for delivery in self.deliveries:
            delivery.close()

    def remember(self) -> list[KeptTracker]:
        """For the state; its names are texts or numbers, as those of the series are."""
        found = []
        for name in self.trackers | self.outages:
            tracker, outages = self.trackers.get(name) or self._tracker(name), self.outages.get(name)
            found.append(
                KeptTracker(
                    series=name,  # type: ignore[arg-type]
                    model=tracker.model,
                    tracker=tracker.remember(),
                    outages=None if outages is None else outages.remember(),
                )
            )
        return found

    def recall(self, kept: Sequence[KeptTracker]) -> None:
        """Go on where `remember` was asked: nothing opens a second time."""
        for one in kept:
            self.trackers[one.series] = self._tracker(one.series, one.model)
            self.trackers[one.series].recall(one.tracker)
            if one.outages is not None:
                self.outages[one.series] = self._outages(one.series)
                self.outages[one.series].recall(one.outages)
        of_scores = sum(tracker.current is not None for tracker in self.trackers.values())
        self.tally.incidents_open = of_scores + sum(outages.open for outages in self.outages.values())

    def _outages(self, name: SeriesName) -> OutageTracker:
        known = self.scorer.metadata
        return OutageTracker(self.rules, model=known.checkpoint_sha256, features=known.columns, series=str(name))

    def _tracker(self, name: SeriesName, model: str | None = None) -> IncidentTracker:
        scorer = self.scorer
        return IncidentTracker(
            self.rules,
            model=scorer.metadata.checkpoint_sha256 if model is None else model,
            series=str(name),
            features=scorer.metadata.columns,
            views=LABELS if scorer.config.mode == "fusion" else (),
        )

    def _tell(self, events: list[Event]) -> list[Event]:
        for event in events:
            self.tally.events[event.kind] += 1
            self.tally.incidents_open += {"opened": 1, "worse": 0, "closed": -1}[event.kind]
            for delivery in self.deliveries:
                delivery.offer(event)
        return events


def _by_series(pushed: Pushed, *, by_series: bool) -> dict[SeriesName, list[list[int]]]:
    """Entries that are final, of each series up to each gap in time; an empty list in front: the gap is the first."""
    names = {row: name for name, taken in pushed.taken.items() for row in taken.gaps}
    found: dict[SeriesName, list[list[int]]] = {}
    for i in pushed.in_order():
        if i in names:
            found.setdefault(names[i], [[]]).append([])
        if (tag := pushed.tags[i]) is not None:
            found.setdefault(tag[1] if by_series else "", [[]])[-1].append(i)
    return found


def evidence(scorer: Scorer, channels: Floats) -> Evidence | None:
    """What explains scored rows (n,C); None without explanations."""
    if scorer.options.explain == "none":
        return None
    features = len(scorer.metadata.columns)
    fused = scorer.config.mode == "fusion"
    return Evidence(channels[:, 1 : 1 + features], channels[:, 1 + features : 1 + 2 * features] if fused else None)
