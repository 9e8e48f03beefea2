"""What a score is worth against labels, in percent."""

import numpy as np
from numpy.typing import NDArray

from at_infer.evaluation.metrics.alarms import by_event
from at_infer.evaluation.metrics.ranking import rank
from at_infer.evaluation.metrics.runs import runs
from at_infer.evaluation.metrics.vus import THRESHOLDS, volumes

Floats = NDArray[np.float32]

METRICS = ("vus_pr", "auc_pr", "event_recall")
MOST_FLAGGED = 0.1
"""Of the normal rows: an alarm that never ends is one false alarm, but of no use."""


def worth(scores: Floats, labels: NDArray[np.bool_], rows_a_day: int) -> dict[str, float]:
    """VUS-PR and AUC-PR, and event recall at one false alarm a day."""
    recall = event_recall(scores, labels, len(labels) / rows_a_day)
    return worth_of_ranking(scores, labels) | {"event_recall": round(100 * recall, 2)}


def worth_of_ranking(scores: Floats, labels: NDArray[np.bool_]) -> dict[str, float]:
    """VUS-PR (buffer up to 100) and AUC-PR, as `at-infer evaluate` has them."""
    ranking = rank(scores, labels, THRESHOLDS)
    volume = volumes(scores, labels, runs(labels), ranking.samples)
    return {"vus_pr": round(100 * volume.pr, 2), "auc_pr": round(100 * ranking.auc_pr, 2)}


def event_recall(scores: Floats, labels: NDArray[np.bool_], days: float) -> float:
    """Share of anomalies with an alarm, at the lowest threshold down to which there is one false alarm a day at most.

    A false alarm is a run of rows above the threshold that touches no anomaly; less than a day may have one.
    """
    truth, normal = runs(labels), ~labels
    recall = 0.0
    for share in np.geomspace(1 / len(scores), 1, 200):
        flagged = scores >= np.quantile(scores, 1 - share, method="higher")
        figures = by_event(truth, runs(flagged))
        too_many = (figures["false_alarms"] or 0) > max(days, 1)
        if too_many or flagged[normal].mean() > MOST_FLAGGED:
            break
        recall = figures["event_recall"] or 0.0
    return recall
