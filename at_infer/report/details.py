"""The worst segments row by row: their scores, and the features that went wrong beside their reconstruction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.report.overview import Overview
from at_infer.report.windows import Reconstructor
from at_infer.tables.scores import Range, ScoredFile

Floats = NDArray[np.float32]

MOST_ROWS = 1000
DEFAULT_SEGMENTS, DEFAULT_ROWS = 100, 40_000  # what a page holds if nothing else is asked for
CONTEXT_ROWS = 100
FEATURES_SHOWN = 4


class FeatureShare(NamedTuple):
    """What part of a segment's error, summed over its rows, is that of one feature."""

    feature: str
    share: float
    exact: bool
    """False: it may be more. Only the top feature of each row is known, and in some rows another one is it."""

    def __str__(self) -> str:
        return f"{self.feature}, {'' if self.exact else 'at least '}{100 * self.share:.3g} % of the error"


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
    shares: dict[int, list[FeatureShare]]
    """Of segments: features by their share of the error, largest first."""


def shares_of(evidence: NDArray[np.float64], names: Sequence[str]) -> list[FeatureShare]:
    """Features by their share of the error, largest first.

    `evidence` has the error of each, and maybe at its end that of features which are not known one by one.
    """
    total, known = float(evidence.sum()), evidence[: len(names)]
    if not total > 0:
        return []
    order = np.argsort(-known, kind="stable")[:FEATURES_SHOWN]
    exact = len(evidence) == len(names) or int((known > 0).sum()) == 1  # one that is the top of every row
    return [FeatureShare(names[j], float(known[j] / total), exact) for j in order if known[j] > 0]


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
    around = [_around(overview, k) for k in range(min(DEFAULT_SEGMENTS if count is None else count, len(segments)))]
    if count is None:
        rows = np.cumsum([end - first for first, end in around])
        around = around[: max(1, int((rows <= DEFAULT_ROWS).sum()))]
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
        seasonal = reconstructor is not None and reconstructor.metadata.season is not None
        picked = file.pick_data(data, columns, wide, clock=seasonal)
        for detail, (first, _), values, times in zip(details, wide, picked.values, picked.times, strict=True):
            x_hat = None
            if reconstructor is not None:
                x_hat, errors = reconstructor.reconstruct(values, times)
                if file.explained is None:
                    inside = errors[_inside(overview, detail.segment, first)]
                    shares[detail.segment] = shares_of(np.nansum(inside, axis=0, dtype=np.float64), picked.features)
            _add_features(detail, overview, picked.features, values, x_hat, first, shares[detail.segment])
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


def _inside(overview: Overview, k: int, first_row: int) -> slice:
    """Rows of a segment among rows from `first_row` on."""
    return slice(max(int(overview.segments.first[k]) - first_row, 0), int(overview.segments.end[k]) - first_row)


def _add_features(
    detail: Detail,
    overview: Overview,
    names: list[str],
    values: Floats,
    x_hat: Floats | None,
    first_row: int,
    shares: list[FeatureShare],
) -> None:
    """The features with the largest errors; without errors those whose values stand out."""
    begin = detail.first_row - first_row
    shown = slice(begin, begin + len(detail.scores))
    known = [entry.feature for entry in shares if entry.feature in names]
    detail.names = known or _departed(values, _inside(overview, detail.segment, first_row), names)
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
