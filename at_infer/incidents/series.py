"""All that can happen to one series: scores above the threshold, and features without values."""

from collections.abc import Sequence

from at_infer.incidents.outages import Bools, OutageTracker
from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.tracker import Event, Evidence, Floats, IncidentTracker, Times


class SeriesIncidents:
    """Both trackers of a series whose rows come with their scores."""

    def __init__(
        self,
        rules: IncidentRules,
        *,
        model: str,
        series: str = "",
        features: Sequence[str | None] = (),
        views: Sequence[str | None] = (),
        columns: Sequence[str] = (),
    ) -> None:
        """`features` and `views` are as for `IncidentTracker`, `columns` the names of what may have no value."""
        self.scores = IncidentTracker(rules, model=model, series=series, features=features, views=views)
        self.outages = OutageTracker(rules, model=model, series=series, features=columns)

    def add(
        self,
        scores: Floats,
        times: Times | None = None,
        *,
        onset: Floats | None = None,
        evidence: Evidence | None = None,
        missing: Bools | None = None,
    ) -> list[Event]:
        """The next rows; `missing` (n,F) is true where they have no value."""
        events = self.scores.add(scores, times, onset=onset, evidence=evidence)
        return events if missing is None else events + self.outages.add(missing, times)

    def cross_gap(self) -> list[Event]:
        """A gap in time lies before the next row."""
        return self.scores.cross_gap() + self.outages.cross_gap()

    def end(self) -> list[Event]:
        """No more rows come, or others that do not follow these."""
        return self.scores.end() + self.outages.end()
