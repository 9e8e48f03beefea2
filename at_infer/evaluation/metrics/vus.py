"""VUS-ROC and VUS-PR (Paparrizos et al. 2022): areas under curves of labels with soft edges, averaged over their width.

Same definition, thresholds and edges as the published implementation and aeon's. For a buffer w, w // 2 rows before an
anomaly and w // 2 - 1 behind it count sqrt(1 - distance / w); where two such edges meet, a row counts 1. Published code
walks over all rows for each of 250 thresholds and each buffer. Here rows are counted once by the lowest threshold that
flags them and by their distance to the nearest anomalies, and the whole surface follows from the counts.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.evaluation.metrics.ranking import Floats
from at_infer.evaluation.metrics.runs import Bools, Ints, Runs

BUFFER = 100
"""The largest buffer; all from 0 to here are averaged."""
THRESHOLDS = 250
"""Equally spaced ranks of the scores, as in the published implementation."""
FAR = 255


class Volumes(NamedTuple):
    """Means over the buffers."""

    roc: float
    pr: float


def volumes(scores: Floats, labels: Bools, truth: Runs, thresholds: Floats, buffer: int = BUFFER) -> Volumes:
    """`thresholds` fall from the highest score to the lowest one."""
    steps = len(thresholds)
    # The first threshold that flags a row.
    step = (steps - np.searchsorted(thresholds[::-1], scores, side="right")).astype(np.int16)
    flagged = np.cumsum(np.bincount(step, minlength=steps))
    inside = np.bincount(step[labels], minlength=steps)
    edges = _edges(step, labels, truth, buffer // 2, steps)
    seen = _anomalies_seen(step, truth, buffer // 2, steps)
    # From here on one row per buffer, one column per threshold.
    soft_hits = np.cumsum([inside + _edge_weights(edges, width, steps) for width in range(buffer + 1)], axis=1)
    anomalous = (truth.rows + soft_hits[:, -1:]) / 2
    recall = np.minimum(soft_hits / anomalous, 1) * seen[np.arange(buffer + 1) // 2]
    false = np.minimum((flagged - soft_hits) / (len(scores) - anomalous), 1)
    precision = soft_hits / flagged
    # A curve starts at precision 1. If several rows share the highest score that is a promise nobody kept: a constant
    # score would get half of it as area. The curve then starts at the first precision there is.
    start = precision[:, :1] if flagged[0] > 1 else np.ones((buffer + 1, 1))
    none, all_ = np.zeros((buffer + 1, 1)), np.ones((buffer + 1, 1))
    pr = np.trapezoid(np.hstack([start, precision]), np.hstack([none, recall]), axis=1)
    roc = np.trapezoid(np.hstack([none, recall, all_]), np.hstack([none, false, all_]), axis=1)
    return Volumes(float(np.mean(roc)), float(np.mean(pr)))


class _Edges(NamedTuple):
    """Rows near anomalies, those alike counted together."""

    half: Ints
    """The smallest w // 2 whose edge reaches the row."""
    second: Ints
    """The smallest at which a second edge reaches it; FAR: none."""
    behind: Bools
    """The first edge is the one behind an anomaly."""
    step: Ints
    rows: NDArray[np.float64]
    """How many there are."""


def _edges(step: NDArray[np.int16], labels: Bools, truth: Runs, reach: int, steps: int) -> _Edges:
    half = np.full(len(step), FAR, np.uint8)
    second = np.full(len(step), FAR, np.uint8)
    behind = np.zeros(len(step), np.bool_)
    for distance in range(1, reach + 1):
        for is_behind in (False, True):
            # Behind an anomaly an edge is one row shorter than before it.
            row = truth.ends + (distance - 2) if is_behind else truth.starts - distance
            if is_behind and distance == 1:
                continue
            row = row[(row >= 0) & (row < len(step))]
            fresh = half[row] == FAR
            later = row[~fresh]
            row = row[fresh]
            half[row], behind[row] = distance, is_behind
            second[later[second[later] == FAR]] = distance
    near = np.flatnonzero((half != FAR) & ~labels)
    kinds = (reach + 1, reach + 2, 2, steps)
    code = np.ravel_multi_index(
        (half[near], np.minimum(second[near], reach + 1), behind[near].astype(np.int64), step[near]), kinds
    )
    if len(code) > np.prod(kinds) // 8:
        every = np.bincount(code)
        found = np.flatnonzero(every)
        rows = every[found]
    else:
        found, rows = np.unique(code, return_counts=True)
    first, other, is_behind_, of_step = np.unravel_index(found, kinds)
    other = np.where(other > reach, FAR, other)
    return _Edges(first, other, is_behind_.astype(np.bool_), of_step, rows.astype(np.float64))


def _edge_weights(edges: _Edges, width: int, steps: int) -> NDArray[np.float64]:
    """Sum of the soft labels of a buffer's edges, per threshold."""
    if width < 2:
        return np.zeros(steps)
    reached = edges.half <= width // 2
    distance = edges.half[reached] - edges.behind[reached]
    soft = np.where(edges.second[reached] <= width // 2, 1.0, np.sqrt(1 - distance / width))
    return np.bincount(edges.step[reached], soft * edges.rows[reached], minlength=steps).astype(np.float64)


def _anomalies_seen(step: NDArray[np.int16], truth: Runs, reach: int, steps: int) -> NDArray[np.float64]:
    """Share of the anomalies, each with its edges, that a threshold has flagged a row of, for every w // 2."""
    starts, ends = truth.starts, truth.ends
    # Rows between two anomalies belong to none: every other result of reduceat.
    bounds = np.stack([starts, ends], axis=1).ravel()
    padded = np.append(step, np.int16(steps))
    first = np.minimum.reduceat(padded, bounds)[::2]
    shares = np.empty((reach + 1, steps))
    for half in range(reach + 1):
        if half:
            first = np.minimum(first, step[np.maximum(starts - half, 0)])
            first = np.minimum(first, step[np.minimum(ends - 1 + (half - 1), len(step) - 1)])
        # Anomalies whose edges touch are one.
        apart = np.append(True, starts[1:] - half > ends[:-1] + max(half - 1, 0))
        joined = np.minimum.reduceat(first, np.flatnonzero(apart))
        shares[half] = np.cumsum(np.bincount(joined, minlength=steps)) / len(joined)
    return shares
