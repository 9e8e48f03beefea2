"""An evaluation as a table for people: plain text or markdown, the baselines always beside the score."""

from collections.abc import Iterator
from pathlib import Path

from at_infer.evaluation.evaluate import CONTESTANTS, Compared, Evaluation
from at_infer.evaluation.incidents import IncidentFigures

SECTIONS: dict[str, dict[str, str]] = {
    "Without a threshold": {
        "auc_roc": "AUC-ROC",
        "auc_pr": "AUC-PR",
        "vus_roc": "VUS-ROC",
        "vus_pr": "VUS-PR",
        "best_f1": "best F1 (threshold from the labels)",
    },
    "At the threshold, not adjusted": {
        "precision": "precision",
        "recall": "recall",
        "f1": "F1",
        "range_precision": "range-based precision",
        "range_recall": "range-based recall",
        "range_f1": "range-based F1",
        "affiliation_precision": "affiliation precision",
        "affiliation_recall": "affiliation recall",
        "affiliation_f1": "affiliation F1",
        "event_recall": "event recall",
        "event_f1": "event F1 (with row precision)",
        "detection_delay_rows": "detection delay, rows",
        "false_alarms": "false alarms (runs)",
        "false_alarms_per_day": "false alarms per day",
    },
    "Point-adjusted (the paper's protocol; chance does well here)": {
        "pa_precision": "point-adjusted precision",
        "pa_recall": "point-adjusted recall",
        "pa_f1": "point-adjusted F1",
        "pa_k_f1_area": "PA%K F1, area under K",
    },
}
COUNTS = {"detection_delay_rows", "false_alarms", "false_alarms_per_day"}


def as_text(found: Evaluation, source: str, *, incidents: IncidentFigures | None = None, markdown: bool = False) -> str:
    """The whole evaluation."""
    return "\n".join(_lines(found, source, incidents, markdown)) + "\n"


def _lines(found: Evaluation, source: str, incidents: IncidentFigures | None, markdown: bool) -> Iterator[str]:
    yield from (f"- {line}" if markdown else line for line in _preamble(found, source))
    if incidents is not None:
        yield from _incidents(incidents, markdown)
    yield from _tables("All rows as one series", found.concatenated, found.every_nth, markdown)
    counted = f"{len(found.series)} series" + (
        f", {found.one_kind_series} without rows of both kinds excluded" if found.one_kind_series else ""
    )
    if len(found.series) > 1 or found.one_kind_series:
        yield from _tables(f"Mean per series ({counted})", found.per_series_mean, found.every_nth, markdown)
    if found.roc:
        yield from _roc(found, markdown)
    yield from _verdict(found)


def _preamble(found: Evaluation, source: str) -> Iterator[str]:
    """Rows, labels and threshold of the evaluation."""
    share = found.anomalous_rows / found.rows
    yield (
        f"{Path(source).name}: {found.rows} scored rows, {found.anomalous_rows} anomalous ({share:.2%}) in "
        f"{found.segments} segments; {found.unscored_rows} rows without a score excluded; labels matched by "
        f"{found.joined_on}"
    )
    yield f"Threshold {found.threshold.value:.6g}: {found.threshold.how}"
    rate = "the model's ratio r" if found.threshold.ratio is not None else "the model's rate of alarms"
    yield (
        f"Baselines: random is uniform (seed {found.seed}); random and every Nth row (N = {found.every_nth}) alarm at "
        f"{rate}, {found.baseline_ratio:.4g}; constant alarms on every row"
    )
    yield (
        f"VUS: buffers 0 to {found.parameters['vus_largest_buffer']}, {found.parameters['vus_thresholds']} thresholds; "
        f"range-based: {found.parameters['range_based']}; PA%K: {found.parameters['pa_k']}"
    )
    if found.rows_per_day is None:
        yield "False alarms per day: unknown, the rows have no dates; give at-infer evaluate --rows-per-day"


def _incidents(told: IncidentFigures, markdown: bool) -> Iterator[str]:
    """Metrics of incidents, which come first."""
    rules = told.rules
    yield ""
    yield "### Incidents" if markdown else "INCIDENTS"
    yield ""
    body = [
        ["incidents", str(told.incidents)],
        ["separate labelled anomalies", str(told.anomalies)],
        ["incident recall", f"{told.incident_recall:.4f}"],
        ["false incidents", str(told.false_incidents)],
    ]
    if told.false_incidents_per_day is not None:
        body.append(["false incidents per day and series", f"{told.false_incidents_per_day:.4g}"])
    if told.delay_rows is not None:
        body.append(["incident delay, rows", f"{told.delay_rows:.4g}"])
    yield from grid(["Incident metric", "score"], body, markdown)
    yield ""
    yield (
        f"An incident opens above {rules.open_at:.6g}, closes below {rules.close_at:.6g} and bridges "
        f"{rules.merge_rows} rows"
    )


def _tables(title: str, compared: Compared, every_nth: int, markdown: bool) -> Iterator[str]:
    yield ""
    yield f"### {title}" if markdown else title.upper()
    for section, metrics in SECTIONS.items():
        head = [section, "score", "random", f"every {every_nth}th", "constant"]
        body = [
            [name, *(_figure(metric, compared[metric][one]) for one in CONTESTANTS)]
            for metric, name in metrics.items()
            if any(value is not None for value in compared[metric].values())
        ]
        yield ""
        yield from grid(head, body, markdown)


def _roc(found: Evaluation, markdown: bool) -> Iterator[str]:
    yield ""
    title = "ROC over the ratio r, point-adjusted, with the F1 that is not"
    yield f"### {title}" if markdown else title.upper()
    yield ""
    head = ["r", "contestant", "threshold", "PA TPR", "FPR", "PA F1", "TPR", "F1"]
    names = dict(zip(CONTESTANTS, ("score", "random", "every Nth", "constant"), strict=True))
    body = []
    for point in found.roc:
        for one, name in names.items():
            at = point[one]
            first = [f"{point['ratio']:.1%}", name, f"{point['threshold']:.4g}" if one == "score" else "-"]
            body.append([*first, *(f"{at[key]:.4f}" for key in ("pa_tpr", "fpr", "pa_f1", "tpr", "f1"))])
    yield from grid(head, body, markdown)


def _verdict(found: Evaluation) -> Iterator[str]:
    """A sentence for each figure that is no evidence."""
    adjusted, plain = found.concatenated["pa_f1"], found.concatenated["vus_pr"]
    best = max((value or 0.0, name) for name, value in adjusted.items() if name != "score")
    yield ""
    if found.threshold.leaking:
        yield "LEAKING: the threshold has seen the test scores; do not compare these figures with others."
    if (adjusted["score"] or 0.0) <= best[0]:
        yield (
            f"The point-adjusted F1 of {adjusted['score']:.4f} is no evidence: {best[1].replace('_', ' ')} reaches "
            f"{best[0]:.4f} without reading the data."
        )
    if (plain["score"] or 0.0) <= (plain["random"] or 0.0):
        yield f"By VUS-PR the score ({plain['score']:.4f}) ranks rows no better than chance ({plain['random']:.4f})."


def _figure(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if metric in COUNTS else f"{value:.4f}"


def grid(head: list[str], body: list[list[str]], markdown: bool) -> Iterator[str]:
    """Lines of a table: names in the first column, figures in the others."""
    if markdown:
        yield f"| {' | '.join(head)} |"
        yield f"| --- |{' ---: |' * (len(head) - 1)}"
        yield from (f"| {' | '.join(line)} |" for line in body)
        return
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    for line in [head, *body]:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        yield "  ".join(cells).rstrip()
