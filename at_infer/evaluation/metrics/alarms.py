"""Alarms against labels: by row, adjusted, by range and by event. All of it follows from runs, whatever the length."""

import numpy as np
from numpy.typing import NDArray

from at_infer.evaluation.metrics.runs import Runs, first_shared, rows_shared, runs_touched

Figures = dict[str, float | None]


def by_row(truth: Runs, alarms: Runs) -> Figures:
    """Precision, recall and F1 of rows, as they are."""
    return _prefixed("", int(rows_shared(truth, alarms).sum()), alarms.rows, truth.rows)


def point_adjusted(truth: Runs, alarms: Runs) -> Figures:
    """The same after point adjustment: one alarm inside an anomaly counts as all of its rows flagged."""
    shared = rows_shared(truth, alarms)
    hits = int(truth.lengths[shared > 0].sum())
    return _prefixed("pa_", hits, alarms.rows - int(shared.sum()) + hits, truth.rows)


def rates(truth: Runs, alarms: Runs, rows: int) -> Figures:
    """One point of the ROC curve, plain and point-adjusted."""
    shared = rows_shared(truth, alarms)
    false = (alarms.rows - int(shared.sum())) / (rows - truth.rows)
    adjusted = int(truth.lengths[shared > 0].sum())
    return {"tpr": int(shared.sum()) / truth.rows, "pa_tpr": adjusted / truth.rows, "fpr": false}


def pa_k_area(truth: Runs, alarms: Runs) -> Figures:
    """Area under the F1 of PA%K for K from 0 to 100: an anomaly is adjusted if more than K % of it is flagged.

    K = 0 is point adjustment, K = 100 is none. (Kim et al. 2022, "Towards a Rigorous Evaluation of Time-Series Anomaly
    Detection".)
    """
    return {"pa_k_f1_area": float(np.trapezoid(pa_k_f1(truth, alarms), dx=0.01))}


def pa_k_f1(truth: Runs, alarms: Runs) -> NDArray[np.float64]:
    """F1 of PA%K for K = 0, 1, ..., 100."""
    shared = rows_shared(truth, alarms)
    # The largest K at which a segment is still adjusted: 100 * shared > K * length, in whole numbers.
    last_k = (100 * shared - 1) // truth.lengths
    gains = np.bincount(last_k[shared > 0], (truth.lengths - shared)[shared > 0], minlength=101)[:101]
    hits = int(shared.sum()) + np.cumsum(gains[::-1])[::-1]
    flagged = alarms.rows - int(shared.sum()) + hits
    return 2 * hits / (flagged + truth.rows)


def by_range(truth: Runs, alarms: Runs) -> Figures:
    """Range-based precision and recall (Tatbul et al. 2018): flat bias, reciprocal cardinality, no existence reward."""
    precision, recall = _range_reward(alarms, truth), _range_reward(truth, alarms)
    return {"range_precision": precision, "range_recall": recall, "range_f1": harmonic(precision, recall)}


def _range_reward(of: Runs, others: Runs) -> float:
    """Mean share of each run that the others cover, divided by the number of pieces."""
    if not len(of):
        return 0.0
    pieces = np.maximum(runs_touched(of, others), 1)
    return float(np.mean(rows_shared(of, others) / of.lengths / pieces))


def by_event(truth: Runs, alarms: Runs) -> Figures:
    """An anomaly is found if any row of it is flagged; a run of alarms is false if it touches no anomaly.

    F1 joins the share of anomalies found with the precision of rows (Garg et al. 2021, composite F1): counted in runs,
    precision would be perfect for an alarm that never ends. The delay is counted from the first row of an anomaly to
    the first alarm in it, over those that were found.
    """
    delay = first_shared(truth, alarms)
    found = delay >= 0
    true_alarms = int((runs_touched(alarms, truth) > 0).sum())
    precision = int(rows_shared(alarms, truth).sum()) / alarms.rows if len(alarms) else 0.0
    recall = float(found.mean())
    return {
        "event_recall": recall,
        "event_f1": harmonic(precision, recall),
        "detection_delay_rows": float(delay[found].mean()) if found.any() else None,
        "false_alarms": float(len(alarms) - true_alarms),
    }


def harmonic(precision: float, recall: float) -> float:
    """F1; 0 where both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def _prefixed(prefix: str, hits: int, flagged: int, anomalous: int) -> Figures:
    """Without an alarm, precision counts as 0."""
    return {
        f"{prefix}precision": hits / flagged if flagged else 0.0,
        f"{prefix}recall": hits / anomalous,
        f"{prefix}f1": 2 * hits / (flagged + anomalous),
    }
