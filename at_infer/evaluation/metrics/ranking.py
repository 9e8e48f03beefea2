"""Scores without a threshold: areas under ROC and precision-recall curve, and the best F1 any threshold could reach."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.evaluation.metrics.runs import Bools

Floats = NDArray[np.float32]


class Ranking(NamedTuple):
    """Metrics of the ranking by score."""

    auc_roc: float
    auc_pr: float
    """Average precision: the sum of precision times gain in recall."""
    best_f1: float
    """Of all thresholds; finding it takes the labels."""
    samples: Floats
    """Scores at equally spaced ranks, from the highest to the lowest."""


def rank(scores: Floats, labels: Bools, samples: int) -> Ranking:
    """Sort once; rows with equal scores are flagged together, so they share one point of every curve."""
    keys = _sortable(scores)
    keys <<= np.uint64(1)
    keys |= labels
    keys.sort()
    keys = keys[::-1]
    anomalous = (keys & np.uint64(1)).astype(np.bool_)
    keys >>= np.uint64(1)
    last = np.append(np.flatnonzero(keys[1:] != keys[:-1]), len(keys) - 1)
    hits = np.cumsum(anomalous)[last]
    gains, flagged = np.diff(hits, prepend=0), last + 1
    rises = np.diff(flagged, prepend=0) - gains
    positives = int(hits[-1])
    precision = hits / flagged
    f1 = 2 * hits / (flagged + positives)
    # Trapezoids in whole numbers: twice the area, in rows times rows.
    twice = 2 * int(np.dot(rises, hits)) - int(np.dot(rises, gains))
    ranks = np.linspace(0, len(keys) - 1, samples).astype(np.int64)
    return Ranking(
        auc_roc=twice / (2 * positives * (len(keys) - positives)),
        auc_pr=float(np.dot(gains, precision)) / positives,
        best_f1=float(f1.max()),
        samples=_unsortable(keys[ranks]),
    )


SIGN = np.uint32(1 << 31)


def _sortable(scores: Floats) -> NDArray[np.uint64]:
    """Integers in the order of the scores: one sort then orders scores and labels together, several times faster."""
    bits = (scores + np.float32(0)).view(np.uint32)  # the sum makes -0 equal to 0
    flip = np.where(bits >> np.uint32(31), ~np.uint32(0), SIGN)
    return (bits ^ flip).astype(np.uint64)


def _unsortable(ordered: NDArray[np.uint64]) -> Floats:
    bits = ordered.astype(np.uint32)
    return np.where(bits & SIGN, bits & ~SIGN, ~bits).view(np.float32)


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation, equal values sharing their mean rank; 1 for two constants."""
    ranks_a, ranks_b = _ranks(a), _ranks(b)
    if np.ptp(ranks_a) == 0 or np.ptp(ranks_b) == 0:
        return float(np.ptp(a) == np.ptp(b))
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def _ranks(values: Floats) -> NDArray[np.float64]:
    values = np.where(np.abs(values) < 1e-30, 0, values)  # a softmax that underflows ends in noise
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = ((last - counts + 1 + last) / 2)[place]
    return ranks
