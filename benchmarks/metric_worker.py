"""The metrics of vus, TSB-AD, aeon and tadpak, in a Python that has them; benchmarks/metric_peers.py asks for them.

    python benchmarks/metric_worker.py FILE.npz

The file has `labels`, `scores` and `threshold`. The answer is one JSON line: value and CPU seconds of each metric.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np
from aeon.benchmarking.metrics.anomaly_detection import (
    range_pr_vus_score,
    range_precision,
    range_recall,
    range_roc_vus_score,
)
from tadpak.pak import pak
from TSB_AD.evaluation.affiliation.generics import convert_vector_to_events
from TSB_AD.evaluation.affiliation.metrics import pr_from_events
from TSB_AD.evaluation.basic_metrics import basic_metricor, generate_curve
from vus.basic_metrics import basic_metricor as authors


def main() -> None:
    """Every metric once, after one that is not timed: some are compiled when first called."""
    given = np.load(sys.argv[1])
    labels, scores = given["labels"].astype(int), given["scores"].astype(np.float64)
    alarms = (given["scores"] > given["threshold"]).astype(int)
    grader = basic_metricor()

    def as_published() -> dict[str, float]:
        *_, roc, pr = authors().RangeAUC_volume(labels, scores, 100)
        return {"vus_roc": roc, "vus_pr": pr}

    def of_tsb_ad() -> dict[str, float]:
        *_, roc, pr = generate_curve(labels, scores, 100, "opt", 250)
        return {"vus_roc": roc, "vus_pr": pr}

    def of_aeon() -> dict[str, float]:
        return {
            "vus_roc": range_roc_vus_score(labels, scores, max_buffer_size=100),
            "vus_pr": range_pr_vus_score(labels, scores, max_buffer_size=100),
        }

    def affiliated() -> dict[str, float]:
        found = pr_from_events(convert_vector_to_events(alarms), convert_vector_to_events(labels), (0, len(labels)))
        return {
            "affiliation_precision": found["Affiliation_Precision"],
            "affiliation_recall": found["Affiliation_Recall"],
        }

    def ranges() -> dict[str, float]:
        return {"range_precision": range_precision(labels, alarms), "range_recall": range_recall(labels, alarms)}

    def by_row() -> dict[str, float]:
        return {
            "auc_roc": grader.metric_ROC(labels, scores),
            "auc_pr": grader.metric_PR(labels, scores),
            "f1": grader.metric_PointF1(labels, scores, preds=alarms),
            "pa_f1": grader.metric_PointF1PA(labels, scores, preds=alarms),
        }

    def adjusted_from_k() -> dict[str, float]:
        adjusted = [pak(scores, labels, float(given["threshold"]), k) > 0 for k in range(101)]
        f1 = [2 * (one & (labels > 0)).sum() / (one.sum() + labels.sum()) for one in adjusted]
        return {"pa_k_f1_area": np.trapezoid(f1, dx=0.01)} | {f"pa_{k}_f1": f1[k] for k in (20, 50)}

    asked: dict[str, Callable[[], dict[str, float]]] = {
        "VUS of its authors": as_published,
        "VUS of TSB-AD": of_tsb_ad,
        "VUS of aeon": of_aeon,
        "affiliation of TSB-AD": affiliated,
        "ranges of aeon": ranges,
        "rows of TSB-AD": by_row,
        "PA%K of tadpak": adjusted_from_k,
    }
    ranges()
    answer = {}
    for name, compute in asked.items():
        begin = time.process_time()
        values = {metric: float(value) for metric, value in compute().items()}
        answer[name] = {"values": values, "cpu_s": time.process_time() - begin}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
