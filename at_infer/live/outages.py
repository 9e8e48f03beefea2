"""Features of a stream that have had no value for a while, as incidents of their own."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import nan
from typing import Any

from at_infer.incidents.incident import Cause, Incident, State, Time, incident_id, plain_time
from at_infer.incidents.tracker import Event
from at_infer.live.scorer import FeatureChange, SeriesName


@dataclass(slots=True)
class Outage:
    """A feature of a series without a value. JSON values only, for the state."""

    series: str | int | float
    feature: str
    model: str
    """Checkpoint that names it: an id outlives the engine."""
    begin: Time
    begin_row: int
    end: Time
    end_row: int
    """Of the row that was looked at last; at the end, of the one that has a value again."""
    is_open: bool = False

    def incident(self, state: State, threshold: float) -> Incident:
        """As it is at this moment; it has no score."""
        series = str(self.series)
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


class Outages:
    """What `Pushed.outages` says in, events out: opened after a while, closed when the feature is back."""

    def __init__(self) -> None:
        self.known: dict[tuple[SeriesName, str], Outage] = {}

    @property
    def open(self) -> int:
        """How many people know of."""
        return sum(outage.is_open for outage in self.known.values())

    def add(
        self, change: FeatureChange, series: Any, time: Any, *, after_rows: int, model: str, threshold: float
    ) -> list[Event]:
        """A feature goes, stays away or is back; `time` is that of the row, or its number."""
        key, now, row = (series, change.feature), plain_time(time), change.series_row
        if change.is_back:
            outage = self.known.pop(key, None)
            if outage is None or not outage.is_open:
                return []
            outage.end, outage.end_row = now, row
            return [Event("closed", outage.incident("closed", threshold))]
        outage = self.known.setdefault(key, Outage(series, change.feature, model, now, row, now, row))
        outage.end, outage.end_row = now, row
        if outage.is_open or change.rows < after_rows:
            return []
        outage.is_open = True
        return [Event("opened", outage.incident("open", threshold))]

    def end(self, threshold: float, series: Sequence[SeriesName] | None = None) -> list[Event]:
        """Nobody goes on with some series, or with any: what is open is told as it is."""
        ended = [key for key in self.known if series is None or key[0] in series]
        gone = [self.known.pop(key) for key in ended]
        return [Event("closed", outage.incident("open", threshold)) for outage in gone if outage.is_open]

    def remember(self) -> list[dict[str, Any]]:
        """JSON values from which `recall` goes on."""
        return [asdict(outage) for outage in self.known.values()]

    def recall(self, kept: Sequence[dict[str, Any]]) -> None:
        """Go on where `remember` was asked: nothing opens a second time."""
        self.known = {(one["series"], one["feature"]): Outage(**one) for one in kept}
