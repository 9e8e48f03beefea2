"""One pass over a file of scores: levels to zoom into, segments, and what every threshold would flag."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from at_infer.evaluation.incidents import IncidentCounter
from at_infer.incidents.rules import IncidentRules
from at_infer.models.spacing import Clock
from at_infer.report.levels import Envelope, Floats, Times, bucket_rows
from at_infer.report.segments import SegmentFinder, Segments
from at_infer.report.thresholds import Cuts, ThresholdCounts
from at_infer.tables.observed import ObservedTime
from at_infer.tables.scores import ScoredChunk, ScoredFile
from at_infer.thresholds.verdict import exceeds

MOST_SEGMENTS = 2000

Observe = Callable[[int, int], None]


@dataclass(slots=True)
class SeriesOverview:
    """One series of the file."""

    name: str
    first_row: int
    rows: int = 0
    buckets: int = 0
    segments: int = 0
    flagged: int = 0
    unscored: int = 0
    peak: float = float("-inf")
    span: tuple[float, float] | None = None
    """First and last time."""
    days: float | None = None
    """Days of observation, if its times are dates."""
    counts: ThresholdCounts = field(default_factory=ThresholdCounts)


@dataclass(frozen=True, slots=True)
class Overview:
    """What one look at every row shows."""

    rows: int
    unscored: int
    bucket_rows: int
    low: Floats
    high: Floats
    times: Times | None
    clock: Clock | None
    series: list[SeriesOverview]
    """In the order of the file."""
    segments: Segments
    """Worst first, at most MOST_SEGMENTS."""
    segment_count: int
    events: Segments | None
    """Labelled anomalies, worst first; `touched` are found."""
    event_count: int
    cuts: Cuts
    total: ThresholdCounts
    incidents: IncidentCounter
    """All of them, and the MOST_SEGMENTS worst."""

    def days(self, rows_per_day: float | None, which: SeriesOverview | None = None) -> float | None:
        """Days that scored rows of a series, or of all of them together, took; None if neither dates nor a rate tell.

        The same clock as that of an evaluation: rows that were watched, each series by itself.
        """
        series = self.series if which is None else [which]
        rows = sum(s.rows for s in series)
        scored = rows - sum(s.unscored for s in series)
        if rows_per_day is None:
            days = sum(s.days or 0.0 for s in series)
            if not days or not scored:
                return None
            rows_per_day = rows / days
        return scored / rows_per_day if scored else None


def look(file: ScoredFile, rules: IncidentRules, observe: Observe = lambda _done, _rows: None) -> Overview:
    """Read all rows once."""
    threshold, told = rules.open_at, IncidentCounter(file, rules, MOST_SEGMENTS)
    cuts = Cuts(threshold)
    envelope = Envelope(bucket_rows(file.rows))
    flagged, labelled = (SegmentFinder(file.evidence_columns, MOST_SEGMENTS) for _ in range(2))
    series: list[SeriesOverview] = []
    observed = ObservedTime()

    def end_series() -> None:
        if series:
            envelope.end()
            flagged.end()
            labelled.end()
            last = series[-1]
            last.counts.end()
            last.days = observed.days
            last.buckets = envelope.counts[-1]
            at = np.array([cuts.at])
            last.flagged = int(last.counts.rows.above(at)[0])
            last.segments = int(last.counts.runs.starts.above(at)[0])

    for chunk in file.chunks():
        for name, part in chunk.parts():
            if name is not None:
                end_series()
                series.append(SeriesOverview(name, part.first_row))
                observed = ObservedTime()
                told.start_series(name, part.first_row)
                envelope.start_series()
                flagged.start_series()
                labelled.start_series()
            above = exceeds(part.scores, threshold)
            labels = np.zeros(len(above), np.bool_) if part.labels is None else part.labels
            envelope.add(part.scores, part.times)
            told.add(part)
            flagged.add(above, labels, part)
            if part.labels is not None:
                labelled.add(labels, above, part)
            if part.times is not None and file.clock == "date":
                observed.add(part.times)
            _count(series[-1], part, cuts)
        observe(chunk.first_row + len(chunk.scores), file.rows)
    end_series()
    told.end()
    total = ThresholdCounts()
    for entry in series:
        total.include(entry.counts)
    return Overview(
        rows=file.rows,
        unscored=sum(entry.unscored for entry in series),
        bucket_rows=envelope.width,
        low=np.concatenate(envelope.low),
        high=np.concatenate(envelope.high),
        times=np.concatenate(envelope.times) if envelope.times else None,
        clock=file.clock,
        series=series,
        segments=flagged.worst(),
        segment_count=flagged.count,
        events=labelled.worst() if file.labels is not None else None,
        event_count=labelled.count,
        cuts=cuts,
        total=total,
        incidents=told,
    )


def worst_series(overview: Overview) -> list[int]:
    """All series, worst first: by flagged rows, then by peak."""
    series = overview.series
    return sorted(range(len(series)), key=lambda k: (-series[k].flagged, -series[k].peak, k))


def _count(series: SeriesOverview, part: ScoredChunk, cuts: Cuts) -> None:
    known = ~np.isnan(part.scores)
    series.rows += len(part.scores)
    series.unscored += int((~known).sum())
    series.peak = max(series.peak, float(np.max(part.scores, initial=-np.inf, where=known)))
    if part.times is not None and len(part.times):
        first = series.span[0] if series.span is not None else float(part.times[0])
        series.span = (first, float(part.times[-1]))
    series.counts.add(cuts.levels(part.scores), part.labels)
