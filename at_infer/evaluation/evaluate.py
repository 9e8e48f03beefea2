"""Scores against labels: every metric, for the whole and per series, beside what scores that saw no data reach."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.evaluation.metrics.affiliation import affiliation
from at_infer.evaluation.metrics.alarms import Figures, by_event, by_range, by_row, pa_k_area, point_adjusted, rates
from at_infer.evaluation.metrics.baselines import NAMES, baseline, nth
from at_infer.evaluation.metrics.ranking import rank
from at_infer.evaluation.metrics.runs import runs
from at_infer.evaluation.metrics.vus import BUFFER, THRESHOLDS, volumes
from at_infer.tables.labels import LabelledRows
from at_infer.thresholds.chosen import ChosenThreshold
from at_infer.thresholds.verdict import exceeds

ROC_RATIOS = (0.005, 0.01, 0.015, 0.02, 0.1, 0.2, 0.3)
"""The paper's."""
CONTESTANTS = ("score", *NAMES)

PARAMETERS: dict[str, Any] = {
    "vus_largest_buffer": BUFFER,
    "vus_thresholds": THRESHOLDS,
    "range_based": "flat bias, reciprocal cardinality, no existence reward",
    "pa_k": "K = 0, 1, ..., 100, trapezoids",
}

Compared = dict[str, dict[str, float | None]]
"""Metric -> contestant -> figure; None where it is not defined."""


class ScoresAndAlarms(NamedTuple):
    """Scores, and which of them are alarms."""

    scores: NDArray[np.float32]
    alarms: NDArray[np.bool_]

    def part(self, first: int, end: int) -> "ScoresAndAlarms":
        """Some of the rows."""
        return ScoresAndAlarms(self.scores[first:end], self.alarms[first:end])


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesEvaluation:
    """One series with anomalous and normal rows."""

    name: str
    rows: int
    anomalous_rows: int
    figures: Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything that was found."""

    rows: int
    unscored_rows: int
    """Left out: they have no score."""
    anomalous_rows: int
    segments: int
    joined_on: str
    threshold: ChosenThreshold
    baseline_ratio: float
    every_nth: int
    """N of the baseline that alarms on every Nth row."""
    seed: int
    rows_per_day: float | None
    parameters: dict[str, Any]
    concatenated: Compared
    """All rows as one long series, as the published benchmarks do."""
    per_series_mean: Compared
    """Mean over the series with rows of both kinds for which a figure is defined."""
    series: list[SeriesEvaluation]
    one_kind_series: int
    """Series left out of the mean: all their rows are normal, or all anomalous."""
    roc: list[dict[str, Any]]
    """Per ratio r, the rates of every contestant; empty if no validation scores are known."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        values = asdict(self)
        del values["threshold"]
        return {**values, "protocol": self.threshold.to_dict()}


def evaluate(
    rows: LabelledRows, threshold: ChosenThreshold, *, seed: int = 0, rows_per_day: float | None = None
) -> Evaluation:
    """Score against labels and baselines."""
    scores, labels = rows.scores, rows.labels
    if not len(scores):
        raise DataError("scores: no row has a score; there is nothing to evaluate")
    if labels.all() or not labels.any():
        kind = "anomalous" if labels.any() else "normal"
        raise DataError(f"labels: every scored row is {kind}; metrics need rows of both kinds")
    alarms = exceeds(scores, threshold.value)
    # At least one alarm: beside a silent score stands one row.
    ratio = max(threshold.ratio if threshold.ratio is not None else float(alarms.mean()), 1 / len(scores))
    contestants = {"score": ScoresAndAlarms(scores, alarms)}
    for name in NAMES:
        made = baseline(name, len(scores), ratio, seed)
        contestants[name] = ScoresAndAlarms(made.scores, exceeds(made.scores, made.threshold))
    per_day = rows_per_day if rows_per_day is not None else rows.rows_per_day

    def compare(first: int, end: int) -> Compared:
        return _transposed(
            {name: figures(one.part(first, end), labels[first:end], per_day) for name, one in contestants.items()}
        )

    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda one: figures(one, labels, per_day), contestants.values())
        whole = _transposed(dict(zip(contestants, found, strict=True)))
        parts = list(_of_both_kinds(rows))
        several = pool.map(lambda part: compare(*part[1:]), parts if len(rows.series) > 1 else [])
        of_series = list(several) if len(rows.series) > 1 else [whole]
    series = [
        SeriesEvaluation(name=name, rows=end - first, anomalous_rows=int(labels[first:end].sum()), figures=compared)
        for (name, first, end), compared in zip(parts, of_series, strict=True)
    ]
    return Evaluation(
        rows=len(scores),
        unscored_rows=rows.unscored_rows,
        anomalous_rows=int(labels.sum()),
        segments=len(runs(labels)),
        joined_on=rows.joined_on,
        threshold=threshold,
        baseline_ratio=ratio,
        every_nth=nth(ratio),
        seed=seed,
        rows_per_day=per_day,
        parameters=PARAMETERS,
        concatenated=whole,
        per_series_mean=_mean(of_series),
        series=series,
        one_kind_series=len(rows.series) - len(series),
        roc=[_roc_point(scores, labels, ratio, delta, seed) for ratio, delta in threshold.at_ratios(ROC_RATIOS)],
    )


def figures(contestant: ScoresAndAlarms, labels: NDArray[np.bool_], rows_per_day: float | None) -> Figures:
    """Every metric of one contestant; labels of both kinds."""
    truth, alarms = runs(labels), runs(contestant.alarms)
    ranking = rank(contestant.scores, labels, THRESHOLDS)
    vus = volumes(contestant.scores, labels, truth, ranking.samples)
    events = by_event(truth, alarms)
    days = None if rows_per_day is None else len(labels) / rows_per_day
    false_alarms = events["false_alarms"] or 0.0
    return {
        "auc_roc": ranking.auc_roc,
        "auc_pr": ranking.auc_pr,
        "vus_roc": vus.roc,
        "vus_pr": vus.pr,
        "best_f1": ranking.best_f1,
        **by_row(truth, alarms),
        **by_range(truth, alarms),
        **affiliation(truth, alarms, len(labels)),
        **events,
        "false_alarms_per_day": None if days is None else false_alarms / days,
        **point_adjusted(truth, alarms),
        **pa_k_area(truth, alarms),
    }


def _of_both_kinds(rows: LabelledRows) -> Iterator[tuple[str, int, int]]:
    """Name, first row and end of the series that have anomalous and normal rows."""
    end = 0
    for name, count in rows.series:
        first, end = end, end + count
        part = rows.labels[first:end]
        if part.any() and not part.all():
            yield name, first, end


def _transposed(found: Mapping[str, Figures]) -> Compared:
    return {metric: {name: of_one[metric] for name, of_one in found.items()} for metric in next(iter(found.values()))}


def _mean(of_series: Sequence[Compared]) -> Compared:
    def mean(metric: str, name: str) -> float | None:
        known = [value for one in of_series if (value := one[metric][name]) is not None]
        return float(np.mean(known)) if known else None

    return {metric: {name: mean(metric, name) for name in CONTESTANTS} for metric in (of_series or [{}])[0]}


def _roc_point(
    scores: NDArray[np.float32], labels: NDArray[np.bool_], ratio: float, delta: float, seed: int
) -> dict[str, Any]:
    """Rates at one ratio: the score's threshold is from validation scores, a baseline alarms at that rate."""
    truth = runs(labels)
    point: dict[str, Any] = {"ratio": ratio, "threshold": delta}
    for name in CONTESTANTS:
        one, threshold = (scores, delta) if name == "score" else baseline(name, len(labels), ratio, seed)
        alarms = runs(exceeds(one, threshold))
        point[name] = {**rates(truth, alarms, len(labels)), **by_row(truth, alarms), **point_adjusted(truth, alarms)}
    return point
