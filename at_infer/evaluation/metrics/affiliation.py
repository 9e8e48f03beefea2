"""Affiliation precision and recall (Huet et al. 2022): how near alarms and anomalies are, against a random alarm.

Time is cut into one zone per anomaly, at the middle between neighbours. Within a zone, precision is the mean over the
flagged time x of the chance that a uniformly random time is at least as far from the anomaly as x; recall is the mean
over the anomaly's times y of the chance that a random time is at least as far from y as the nearest alarm. A row is an
interval of length 1. All integrals are exact.
"""

import numpy as np
from numpy.typing import NDArray

from at_infer.evaluation.metrics.alarms import Figures, harmonic
from at_infer.evaluation.metrics.runs import Runs

Reals = NDArray[np.float64]
CHUNK_ROWS = 1 << 20


def affiliation(truth: Runs, alarms: Runs, rows: int) -> Figures:
    """Means over the zones; for precision over those with an alarm, 0 if there is none."""
    middles = (truth.ends[:-1] + truth.starts[1:]) / 2
    borders = np.concatenate([[0.0], middles, [float(rows)]])
    precision, recall = _precision(truth, alarms, borders), _recall(truth, alarms, borders)
    return {
        "affiliation_precision": precision,
        "affiliation_recall": recall,
        "affiliation_f1": harmonic(precision, recall),
    }


def _precision(truth: Runs, alarms: Runs, borders: Reals) -> float:
    if not len(alarms):
        return 0.0
    # Runs of alarms, cut at the borders between zones.
    inner = borders[1:-1]
    within = np.searchsorted(alarms.starts, inner) - 1
    cut = inner[(within >= 0) & (inner < alarms.ends[within])]
    lefts = np.sort(np.concatenate([alarms.starts, cut]))
    rights = np.sort(np.concatenate([alarms.ends, cut]))
    zone = np.searchsorted(inner, lefts, side="right")
    chances = _chance_integral(truth, borders, zone, rights) - _chance_integral(truth, borders, zone, lefts)
    summed = np.bincount(zone, chances, minlength=len(truth))
    flagged = np.bincount(zone, rights - lefts, minlength=len(truth))
    return float(np.mean(summed[flagged > 0] / flagged[flagged > 0]))


def _chance_integral(truth: Runs, borders: Reals, zone: NDArray[np.int64], x: Reals) -> Reals:
    """Integral from the anomaly's start to x of the chance that a random time of the zone is at least as far."""
    begin, end = truth.starts[zone], truth.ends[zone]
    low, high = borders[zone], borders[zone + 1]
    distance = np.where(x < begin, begin - x, np.maximum(x - end, 0))
    nearer = (end - begin) * distance + _ramp(distance, begin - low) + _ramp(distance, high - end)
    outside = distance - nearer / (high - low)
    return np.where(x < begin, -outside, np.minimum(x, end) - begin + outside)


def _ramp(distance: Reals, most: Reals) -> Reals:
    """Integral of min(t, most) for t from 0 to the distance."""
    reached = np.minimum(distance, most)
    return reached * reached / 2 + most * (distance - reached)


def _recall(truth: Runs, alarms: Runs, borders: Reals) -> float:
    if not len(alarms):
        return 0.0
    lengths = truth.lengths
    first = np.append(0, np.cumsum(lengths))
    total = np.zeros(len(truth))
    for at in range(0, int(first[-1]), CHUNK_ROWS):
        number = np.arange(at, min(at + CHUNK_ROWS, int(first[-1])))
        zone = np.searchsorted(first, number, side="right") - 1
        row = truth.starts[zone] + number - first[zone]
        total += np.bincount(zone, _row_recall(row, alarms, borders[zone], borders[zone + 1]), minlength=len(truth))
    return float(np.mean(total / lengths))


def _row_recall(row: NDArray[np.int64], alarms: Runs, low: Reals, high: Reals) -> Reals:
    """Integral over one row of an anomaly. It is linear between quarters of a row, so their middles give it exactly."""
    after = np.searchsorted(alarms.ends, row, side="right")  # the first run of alarms that ends behind this row
    begins = np.append(alarms.starts, np.iinfo(np.int64).max // 2)[after].astype(np.float64)
    ends = np.append(-1, alarms.ends)[after].astype(np.float64)  # of the run before it
    next_alarm = np.where(begins < high, begins, np.inf)
    last_alarm = np.where(ends > low, ends, -np.inf)
    total = np.zeros(len(row))
    for part in (0.125, 0.375, 0.625, 0.875):
        y = row + part
        distance = np.maximum(np.minimum(next_alarm - y, y - last_alarm), 0)
        nearer = np.minimum(distance, y - low) + np.minimum(distance, high - y)
        total += (1 - nearer / (high - low)) / 4  # no alarm in the zone: infinitely far, chance 0
    return total
