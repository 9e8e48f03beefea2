"""Prior against series association and the learned scale, for the worst windows and a normal one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from at_infer.report.details import FeatureShare
from at_infer.report.overview import Overview
from at_infer.report.windows import Attention, Reconstructor
from at_infer.tables.scores import ScoredFile

Floats = NDArray[np.float32]
WINDOWS_SHOWN = 5
MOST_CELLS = 2_000_000  # of all maps together: they are what makes a page large


@dataclass(frozen=True, slots=True)
class SeenWindow:
    """One window with its associations."""

    segment: int | None
    """None: a normal window."""
    series: int
    first_row: int
    scores: Floats
    name: str
    values: Floats
    """Of the feature that is shown."""
    attention: Attention


def look_inside(
    file: ScoredFile,
    overview: Overview,
    reconstructor: Reconstructor,
    data: str,
    shares: Mapping[int, Sequence[FeatureShare]],
) -> list[SeenWindow]:
    """The windows with the worst peaks, and a normal one near the first of them."""
    n, segments = reconstructor.window, overview.segments
    room = MOST_CELLS // (2 * reconstructor.metadata.model.layers * n * n) - 1
    if room < 1:
        return []
    wanted: list[tuple[int | None, int, int]] = []
    for k in range(len(segments)):
        series = int(segments.series[k])
        of = overview.series[series]
        row = int(segments.peak_row[k]) - of.first_row
        first = min(row // n * n, of.rows - n)
        if of.rows >= n and all((series, first) != window[1:] for window in wanted):
            wanted.append((k, series, first))
        if len(wanted) == min(WINDOWS_SHOWN, room):
            break
    series, near = wanted[0][1:] if wanted else (0, 0)
    normal = _normal_window(overview, n, series, near)
    wanted += [] if normal is None else [(None, series, normal)]
    placed = [(k, series, overview.series[series].first_row + first) for k, series, first in wanted]
    placed.sort(key=lambda window: window[2])
    ranges = [(first, first + n) for _, _, first in placed]
    names: Sequence[str] = reconstructor.metadata.columns
    picked = file.pick_data(data, names, ranges, clock=reconstructor.metadata.season is not None)
    blamed = {k: found[0].feature for k, found in shares.items() if found and found[0].feature in names}
    most_blamed = blamed[min(blamed)] if blamed else names[0]
    seen = []
    for (segment, series, first), values, times, (scores, _) in zip(
        placed, picked.values, picked.times, file.pick(ranges), strict=True
    ):
        attention = reconstructor.attention(values, times)
        if attention is not None:
            name = most_blamed if segment is None else blamed.get(segment, most_blamed)
            seen.append(SeenWindow(segment, series, first, scores, name, values[:, names.index(name)], attention))
    return sorted(seen, key=lambda window: (window.segment is None, window.segment or 0))


def _normal_window(overview: Overview, n: int, series: int, near: int) -> int | None:
    """First row, in its series, of the nearest window without a flagged or labelled row."""
    of = overview.series[series]
    begin = sum(s.buckets for s in overview.series[:series])
    high = overview.high[begin : begin + of.buckets]
    anomalies = overview.events
    starts = sorted(range(0, of.rows - n + 1, n), key=lambda first: abs(first - near))
    for first in starts:
        buckets = high[first // overview.bucket_rows : (first + n - 1) // overview.bucket_rows + 1]
        row = first + of.first_row
        labelled = anomalies is not None and bool(((anomalies.first < row + n) & (anomalies.end > row)).any())
        if not labelled and bool((buckets <= overview.cuts.threshold).all()):
            return first
    return None
