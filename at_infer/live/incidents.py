"""Incidents of a stream: a tracker for each series, its memory, and who is told."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.tracker import Event, Evidence, IncidentTracker
from at_infer.live.delivery import Delivery
from at_infer.live.outages import Outages
from at_infer.live.scorer import FeatureChange, Pushed, SeriesName, StreamScorer
from at_infer.live.tally import Tally
from at_infer.models.fusion import LABELS
from at_infer.scoring.scorer import Scorer
from at_infer.scoring.windows import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTracker:
    """What a state keeps of the incidents of a series."""

    series: str | int | float
    model: str
    """Checkpoint that names its incident: an id outlives the engine."""
    tracker: dict[str, Any]
    """As `IncidentTracker.remember` gives it."""


class LiveIncidents:
    """Rows of all series in, events out; tells each event to every delivery."""

    def __init__(
        self, stream: StreamScorer, rules: IncidentRules, tally: Tally, deliveries: Sequence[Delivery] = ()
    ) -> None:
        self.tally, self.deliveries = tally, deliveries
        self.trackers: dict[SeriesName, IncidentTracker] = {}
        self.outages = Outages()
        self.use(stream, rules)

    def use(self, stream: StreamScorer, rules: IncidentRules) -> None:
        """The engine that scores from now on; incidents that are open keep their ids."""
        self.scorer, self.rules, self.outage_rows = stream.scorer, rules, stream.outage_rows
        for name, tracker in self.trackers.items():
            self.trackers[name] = self._tracker(name, tracker.model if tracker.current else None)
            self.trackers[name].recall(tracker.remember())

    def add_outage(self, change: FeatureChange, series: Any, time: Any) -> list[Event]:
        """One of `Pushed.outages`, before `add` is told of the same rows."""
        model, threshold = self.scorer.metadata.checkpoint_sha256, self.rules.open_at
        told = self.outages.add(change, series, time, after_rows=self.outage_rows, model=model, threshold=threshold)
        return self._tell(told)

    def add(self, pushed: Pushed, *, by_series: bool, by_time: bool) -> list[Event]:
        """Rows that are final, of any series; the time of a row is its number if it has no other."""
        rows: dict[SeriesName, list[int]] = {}
        for i in pushed.in_order():
            if (tag := pushed.tags[i]) is not None:
                rows.setdefault(tag[1] if by_series else "", []).append(i)
        events: list[Event] = []
        for name in pushed.dropped:
            if name in self.trackers:
                events += self.trackers.pop(name).end()
        if pushed.dropped:
            events += self.outages.end(self.rules.open_at, pushed.dropped)
        for name, at in rows.items():
            if name not in self.trackers:
                self.trackers[name] = self._tracker(name)
            tracker = self.trackers[name]
            times = [pushed.tags[i][-1 if by_time else 0] for i in at]
            channels = pushed.channels[at]
            onset = channels[:, -1] if self.scorer.has_onset else None
            events += tracker.add(channels[:, 0], times, onset=onset, evidence=evidence(self.scorer, channels))
            if tracker.current is None:
                tracker.model = self.scorer.metadata.checkpoint_sha256
        return self._tell(events)

    def end(self) -> list[Event]:
        """Nobody goes on from here: what is open is told as it is."""
        open_scores = [event for tracker in self.trackers.values() for event in tracker.end()]
        return self._tell([*open_scores, *self.outages.end(self.rules.open_at)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait a little for what is on its way to people."""
        for delivery in self.deliveries:
            delivery.close()

    def remember(self) -> list[KeptTracker]:
        """For the state; its names are texts or numbers, as those of the series are."""
        return [
            KeptTracker(series=name, model=tracker.model, tracker=tracker.remember())  # type: ignore[arg-type]
            for name, tracker in self.trackers.items()
        ]

    def recall(self, kept: Sequence[KeptTracker], outages: Sequence[dict[str, Any]] = ()) -> None:
        """Go on where `remember` was asked: nothing opens a second time."""
        for one in kept:
            self.trackers[one.series] = self._tracker(one.series, one.model)
            self.trackers[one.series].recall(one.tracker)
        self.outages.recall(outages)
        of_scores = sum(tracker.current is not None for tracker in self.trackers.values())
        self.tally.incidents_open = of_scores + self.outages.open

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


def evidence(scorer: Scorer, channels: Floats) -> Evidence | None:
    """What explains scored rows (n,C); None without explanations."""
    if scorer.options.explain == "none":
        return None
    features = len(scorer.metadata.columns)
    fused = scorer.config.mode == "fusion"
    return Evidence(channels[:, 1 : 1 + features], channels[:, 1 + features : 1 + 2 * features] if fused else None)
