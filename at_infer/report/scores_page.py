"""A report on scores for a page: plain values as JSON, long rows of numbers as arrays."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from at_infer.evaluation.metrics.runs import Runs
from at_infer.incidents.find import Found
from at_infer.incidents.incident import as_seconds
from at_infer.report.details import Details
from at_infer.report.grid import ThresholdGrid
from at_infer.report.overview import Overview, SeriesOverview, worst_series
from at_infer.report.payload import Arrays, rounded
from at_infer.report.scores import MOST_SERIES, ScoresReport
from at_infer.report.segments import Segments
from at_infer.report.thresholds import ThresholdCounts


def describe_scores(report: ScoresReport) -> tuple[dict[str, Any], Arrays]:
    """The report for a page."""
    overview, grid, file = report.overview, report.grid, report.file
    kept = worst_series(overview)[:MOST_SERIES]
    arrays = Arrays()
    _add_levels(arrays, overview, kept)
    labelled = overview.events is not None
    description = {
        "kind": "scores",
        "source": Path(file.source).name,
        "headline": _headline(report),
        "subline": _worst(report),
        "facts": _facts(report),
        "rows": overview.rows,
        "unscored": overview.unscored,
        "threshold": report.threshold,
        "clock": overview.clock,
        "zone": file.zone,
        "time": file.keys.time,
        "subSecond": _step(overview.series) < 500,
        "bucketRows": overview.bucket_rows,
        "days": report.days,
        "labelled": labelled,
        "segmentCount": overview.segment_count,
        "incidents": _incidents(report),
        "eventCount": overview.event_count,
        "seriesCount": len(overview.series),
        "grid": {"values": grid.values, "used": grid.used, **_counts(overview.total, grid, labelled=labelled)},
        "series": [_series(report, overview.series[k], k) for k in kept],
        "segments": _segments(overview.segments, report),
        "events": None if overview.events is None else _segments(overview.events, None),
        "details": _add_details(arrays, report.details),
        "windows": _add_windows(arrays, report),
        "notes": report.notes,
    }
    if len(kept) > 1:
        per_series = [_counts(overview.series[k].counts, grid, labelled=labelled) for k in kept]
        for name in per_series[0]:
            arrays.add(f"grid.{name}", np.stack([entry[name] for entry in per_series]), "i4")
    return description, arrays


def _headline(report: ScoresReport) -> list[tuple[str, bool]]:
    """What was found, in pieces of text that stand out or not."""
    overview = report.overview
    count = len(overview.incidents.spans)
    of = f" in {overview.rows:,} rows" + (f" of {len(overview.series):,} series" if len(overview.series) > 1 else "")
    if not count:
        return [(f"Nothing above the threshold{of}", False)]
    return [(f"{count:,} incident{'s' if count > 1 else ''}", True), (of, False)]


def _worst(report: ScoresReport) -> list[tuple[str, bool]]:
    """When, where and which sensors."""
    worst = report.overview.incidents.worst
    if not worst:
        return [(f"The highest score stays below the threshold of {report.threshold:.4g}.", False)]
    one = worst[0].incident
    times = f", {_short(one.ratio)} times the threshold" if report.threshold > 0 else ""
    text = [
        ("Worst: ", False),
        (f"{one.series + ', ' if one.series else ''}{_begin(report, worst[0])}", True),
        (f", peak {_short(one.peak_score)}{times}", False),
    ]
    names = [cause.feature for cause in one.causes] or [entry.feature for entry in report.details.shares.get(0, [])]
    if names:
        text += [(", mostly ", False), (", ".join(names[:2]), True)]
    return [*text, (".", False)]


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"


def _begin(report: ScoresReport, found: Found) -> str:
    """When an incident began, as people write it."""
    time = _times(report, found)[0]
    if report.overview.clock == "date":
        return f"{datetime.fromtimestamp(time / 1000, UTC):%Y-%m-%d %H:%M:%S} {report.file.zone}".rstrip()
    if report.overview.clock == "number":
        return f"{report.file.keys.time} {time:.15g}"
    return f"row {found.first:,}"


def _times(report: ScoresReport, found: Found) -> list[float]:
    """Of the first and the last row, as the page counts: milliseconds since 1970, numbers, or NaN."""
    clock = report.overview.clock
    times = (found.incident.begin, found.incident.end)
    if clock == "date":
        return [1000 * seconds for seconds in map(as_seconds, times) if seconds is not None]
    return [float(time) if clock == "number" else float("nan") for time in times]


def _incidents(report: ScoresReport) -> dict[str, Any]:
    """The worst incidents, worst first, and how many there are of which kind."""
    told, labelled = report.overview.incidents, report.overview.events is not None
    figures, rules = told.figures(days=report.days), told.rules
    shown = Runs(*(np.array([getattr(one, side) for one in told.worst], np.int64) for side in ("first", "end")))
    false = told.are_false(shown)
    return {
        "count": figures.incidents,
        "perDay": None if report.days is None else figures.incidents / report.days,
        "anomalies": figures.anomalies if labelled else None,
        "found": figures.found if labelled else None,
        "false": figures.false_incidents if labelled else None,
        "rules": {"open": rules.open_at, "close": rules.close_at, "merge": rules.merge_rows, "least": rules.min_rows},
        "expectedPerDay": rules.expected_per_day,
        "exact": report.file.explained == "all",
        "shown": [
            {
                "id": found.incident.id,
                "series": found.series,
                "name": found.incident.series,
                "open": found.incident.state == "open",
                "first": found.first,
                "end": found.end,
                "peakRow": found.peak,
                "times": _times(report, found),
                "peak": found.incident.peak_score,
                "causes": [list(cause) for cause in found.incident.causes],
                "verdict": ("false" if is_false else "hit") if labelled else "",
            }
            for found, is_false in zip(told.worst, false.tolist(), strict=True)
        ],
    }


def _counts(counts: ThresholdCounts, grid: ThresholdGrid, *, labelled: bool) -> dict[str, Any]:
    found = {"rows": counts.rows.above(grid.cuts), "segments": counts.runs.starts.above(grid.cuts)}
    if labelled:
        found["found"] = counts.events.above(grid.cuts)
        found["false"] = counts.false_runs_above(grid.cuts)
    return found


def _facts(report: ScoresReport) -> list[tuple[str, str]]:
    known, file = report.facts, report.file
    score = known.score
    facts = [
        ("file", file.source),
        ("score", "" if score is None else score.mode + (f", mean of {score.smooth} rows" if score.smooth > 1 else "")),
        ("threshold", f"{report.threshold:.6g}"),
        ("model", known.engine_file),
        ("precision", known.precision),
        ("windows", known.alignment),
        ("labels", "" if file.labels is None else f"{file.labels}, column {file.label_column}"),
    ]
    return [(name, text) for name, text in facts if text]


def _series(report: ScoresReport, series: SeriesOverview, index: int) -> dict[str, Any]:
    return {
        "index": index,
        "name": series.name,
        "first": series.first_row,
        "rows": series.rows,
        "buckets": series.buckets,
        "segments": series.segments,
        "flagged": series.flagged,
        "peak": series.peak,
        "span": series.span,
        "days": report.overview.days(report.rows_per_day, series),
    }


def _segments(segments: Segments, report: ScoresReport | None) -> dict[str, Any]:
    return {
        "series": segments.series,
        "first": segments.first,
        "end": segments.end,
        "peak": segments.peak,
        "peakRow": segments.peak_row,
        "times": segments.times,
        "hit": segments.touched,
        "top": [] if report is None else [report.details.shares[k] for k in range(len(segments))],
    }


def _add_levels(arrays: Arrays, overview: Overview, kept: list[int]) -> None:
    begins = np.append(0, np.cumsum([series.buckets for series in overview.series]))
    at = np.concatenate([np.arange(begins[k], begins[k + 1]) for k in kept])
    arrays.add("high", rounded(overview.high[at]), "f4")
    if overview.bucket_rows > 1:
        arrays.add("low", rounded(overview.low[at]), "f4")
    if overview.times is not None:
        arrays.add("times", np.diff(_drawn(overview.times[at], overview.series), prepend=0.0), "f8")


def _drawn(times: NDArray[np.float64], series: list[SeriesOverview]) -> NDArray[np.float64]:
    """Times to a hundredth of the mean step, if that is a whole number: what is left compresses well."""
    step = _step(series)
    if not 100 <= step < np.inf:
        return times
    unit = 10.0 ** np.floor(np.log10(step / 100))
    return np.asarray(np.round(times / unit) * unit)


def _step(series: list[SeriesOverview]) -> float:
    """Mean time from row to row, of the fastest series."""
    steps = [(s.span[1] - s.span[0]) / (s.rows - 1) for s in series if s.span is not None and s.rows > 1]
    return min(steps, default=np.inf)


def _add_details(arrays: Arrays, details: Details) -> list[dict[str, Any]]:
    found = []
    for detail in details.segments:
        name = f"detail.{detail.segment}"
        arrays.add(f"{name}.score", detail.scores, "f4")
        if detail.times is not None:
            arrays.add(f"{name}.times", np.diff(detail.times, prepend=0.0), "f8")
        for j, values in enumerate(detail.values):
            arrays.add(f"{name}.value.{j}", values, "f4")
        for j, values in enumerate(detail.reconstructions):
            arrays.add(f"{name}.reconstruction.{j}", values, "f4")
        found.append(
            {
                "segment": detail.segment,
                "first": detail.first_row,
                "names": detail.names,
                "reconstructed": bool(detail.reconstructions),
            }
        )
    return found


def _add_windows(arrays: Arrays, report: ScoresReport) -> list[dict[str, Any]]:
    found = []
    for k, window in enumerate(report.windows):
        for name in ("prior", "series"):
            values = getattr(window.attention, name)
            # The square root leaves steps for the small weights, of which most rows consist.
            arrays.add(f"window.{k}.{name}", np.round(255 * np.sqrt(np.clip(values, 0, 1))), "u1")
        arrays.add(f"window.{k}.sigma", window.attention.sigma, "f4")
        arrays.add(f"window.{k}.score", window.scores, "f4")
        arrays.add(f"window.{k}.value", window.values, "f4")
        found.append(
            {
                "segment": window.segment,
                "series": report.overview.series[window.series].name,
                "first": window.first_row,
                "feature": window.name,
                "layers": len(window.attention.sigma),
                "rows": len(window.scores),
            }
        )
    return found
