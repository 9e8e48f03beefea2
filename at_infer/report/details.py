"""The worst segments row by row: their scores, and the features that went wrong beside their reconstruction."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from at_infer.report.overview import Overview
from at_infer.report.windows import Reconstructor
from at_infer.tables.scores import Range, ScoredFile

Floats = NDArray[np.float32]

MOST_ROWS = 1000
USUAL_SEGMENTS, USUAL_ROWS = 100, 40_000  # what a page holds if nothing else is asked for
CONTEXT_ROWS = 100
FEATURES_SHOWN = 4
Shares = list[tuple[str, float]]


@dataclass(slots=True)
class Detail:
    """Rows around one segment."""

    segment: int
    """Which of the overview's."""
    first_row: int
    scores: Floats
    times: NDArray[np.float64] | None
    names: list[str] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    reconstructions: list[Floats] = field(default_factory=list)
    """Empty without an engine."""


@dataclass(frozen=True, slots=True)
class Details:
    """All that is shown row by row."""

    segments: list[Detail]
    shares: dict[int, Shares]
    """Of segments: features by their share of the error, largest first."""


def shares_of(evidence: NDArray[np.float64], names: Sequence[str]) -> Shares:
    """Features by their share of the whole, largest first."""
    total = float(evidence.sum())
    if not total > 0:
        return []
    order = np.argsort(-evidence, kind="stable")[:FEATURES_SHOWN]
    return [(names[j], float(evidence[j] / total)) for j in order if evidence[j] > 0]


def look_closer(
    file: ScoredFile,
    overview: Overview,
    *,
    count: int | None,
    data: str | None,
    columns: Sequence[str] | None,
    reconstructor: Reconstructor | None,
) -> Details:
    """Read the rows around the worst segments again, with their features."""
    segments = overview.segments
    shares = {k: shares_of(segments.evidence[k], file.features) for k in range(len(segments))}
    around = [_around(overview, k) for k in range(min(USUAL_SEGMENTS if count is None else count, len(segments)))]
    if count is None:
        rows = np.cumsum([end - first for first, end in around])
        around = around[: max(1, int((rows <= USUAL_ROWS).sum()))]
    chosen = sorted(range(len(around)), key=lambda k: around[k])
    ranges = [around[k] for k in chosen]
    details = [
        Detail(k, first, scores, times)
        for k, (first, _), (scores, times) in zip(chosen, ranges, file.pick(ranges), strict=True)
    ]
    if data is not None and chosen:
        wide = (
            ranges
            if reconstructor is None
            else [_covered(overview, reconstructor, r, k) for k, r in zip(chosen, ranges, strict=True)]
        )
        picked = file.pick_data(data, columns, wide)
        for detail, (first, _), values in zip(details, wide, picked.values, strict=True):
            _add_features(detail, overview, picked.features, values, first, reconstructor, shares)
    return Details(sorted(details, key=lambda detail: detail.segment), shares)


def _around(overview: Overview, k: int) -> Range:
    """The segment and some rows on both sides, not too many and not of another series."""
    segments = overview.segments
    first, end, peak = int(segments.first[k]), int(segments.end[k]), int(segments.peak_row[k])
    series = overview.series[int(segments.series[k])]
    first, end = first - CONTEXT_ROWS, end + CONTEXT_ROWS
    if end - first > MOST_ROWS:
        first = max(first, min(peak - MOST_ROWS // 2, end - MOST_ROWS))
        end = first + MOST_ROWS
    return max(first, series.first_row), min(end, series.first_row + series.rows)


def _covered(overview: Overview, reconstructor: Reconstructor, rows: Range, k: int) -> Range:
    series = overview.series[int(overview.segments.series[k])]
    first, end = reconstructor.stretch(rows[0] - series.first_row, rows[1] - series.first_row, series.rows)
    return first + series.first_row, end + series.first_row


def _add_features(
    detail: Detail,
    overview: Overview,
    names: list[str],
    values: Floats,
    first_row: int,
    reconstructor: Reconstructor | None,
    shares: dict[int, Shares],
) -> None:
    """The features to blame; which ones these are is told by the engine, else by the file, else by the values."""
    k = detail.segment
    begin = detail.first_row - first_row
    shown = slice(begin, begin + len(detail.scores))
    inside = slice(int(overview.segments.first[k]) - first_row, int(overview.segments.end[k]) - first_row)
    inside = slice(max(inside.start, 0), inside.stop)
    x_hat = None
    if reconstructor is not None:
        x_hat, errors = reconstructor.reconstruct(values)
        found = shares_of(np.nansum(errors[inside], axis=0, dtype=np.float64), names)
        shares[k] = found or shares[k]
    known = [name for name, _ in shares[k] if name in names]
    detail.names = known or _departed(values, inside, names)
    at = [names.index(name) for name in detail.names]
    detail.values = [values[shown, j] for j in at]
    detail.reconstructions = [] if x_hat is None else [x_hat[shown, j] for j in at]


def _departed(values: Floats, inside: slice, names: list[str]) -> list[str]:
    """Features that lie furthest from the rows around, in their standard deviations."""
    around = np.ones(len(values), np.bool_)
    around[inside] = False
    if not around.any():
        return names[:FEATURES_SHOWN]
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64)
        spread = np.maximum(wide[around].std(axis=0), 1e-9)
        distance = np.abs(wide[inside] - wide[around].mean(axis=0)).max(axis=0) / spread
    return [names[j] for j in np.argsort(-np.nan_to_num(distance), kind="stable")[:FEATURES_SHOWN]]
