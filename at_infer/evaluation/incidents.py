"""Incidents against labelled anomalies: how many are found, how many are false, how late."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from at_infer.evaluation.evaluate import Evaluation, evaluate
from at_infer.evaluation.metrics.runs import Runs, runs, runs_touched
from at_infer.incidents.defaults import rules_of_scores
from at_infer.incidents.find import Found, IncidentFinder
from at_infer.incidents.rules import IncidentRules
from at_infer.tables.labels import read_labelled
from at_infer.tables.scores import ScoredChunk, ScoredFile
from at_infer.thresholds.choose import EvaluationThreshold, choose_for_evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentFigures:
    """Incident metrics."""

    incidents: int
    false_incidents: int
    """Those that touch no anomaly."""
    false_incidents_per_day: float | None
    """Per day and series, in the same clock as all rates; None if no dates tell."""
    anomalies: int
    """Labelled; those closer together than the rows that are bridged count as one."""
    found: int
    incident_recall: float
    delay_rows: float | None
    """From the first row of an anomaly to the begin of the first incident, mean over those that were found."""
    days: float | None
    """Days of observation, summed over the series."""
    rules: IncidentRules

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        return asdict(self)


class IncidentCounter:
    """Takes the rows of scores and labels, those of one series after the other.

    An incident and an anomaly belong together if they share a row, or if the incident begins at most so many rows
    behind the anomaly as the rules bridge: a score needs some rows to rise.
    """

    def __init__(self, file: ScoredFile, rules: IncidentRules, keep: int = 0) -> None:
        self.finder, self.rules, self.keep = IncidentFinder(file, rules), rules, keep
        self.spans: list[tuple[int, int]] = []
        """Rows of every incident."""
        self.worst: list[Found] = []
        """At most `keep`, worst first."""
        self.outages: list[Found] = []
        """Incidents of missing features: no label says whether they are false."""
        self.truth: list[Runs] = []
        self.reach: list[Runs] = []
        """Rows in which an incident belongs to an anomaly."""
        self._flags: list[NDArray[np.bool_]] = []
        self._first = 0

    def start_series(self, name: str, first_row: int) -> None:
        """The rows that come next belong to another series."""
        self._end_labels()
        self._take(self.finder.start_series(name, first_row))
        self._first = first_row

    def add(self, rows: ScoredChunk) -> None:
        """The next rows of the series."""
        self._take(self.finder.add(rows))
        if rows.labels is not None:
            self._flags.append(rows.labels)

    def end(self) -> None:
        """No more rows come."""
        self._take(self.finder.end())
        self._end_labels()
        self._prune()

    @property
    def incidents(self) -> Runs:
        """All of them."""
        spans = np.array(self.spans, np.int64).reshape(-1, 2)
        return Runs(spans[:, 0], spans[:, 1])

    def are_false(self, incidents: Runs) -> NDArray[np.bool_]:
        """Those that belong to no anomaly."""
        return np.equal(runs_touched(incidents, _concatenated(self.reach)), 0)

    def figures(self, *, days: float | None) -> IncidentFigures:
        """After `end`."""
        truth, reach, incidents = _concatenated(self.truth), _concatenated(self.reach), self.incidents
        found = runs_touched(reach, incidents) > 0
        false = int(self.are_false(incidents).sum())
        at = np.searchsorted(incidents.ends, truth.starts, side="right")[found]
        delays = np.maximum(incidents.starts[at] - truth.starts[found], 0)
        return IncidentFigures(
            incidents=len(incidents),
            false_incidents=false,
            false_incidents_per_day=None if days is None else false / days,
            anomalies=len(truth),
            found=int(found.sum()),
            incident_recall=float(found.mean()) if len(truth) else 0.0,
            delay_rows=float(delays.mean()) if len(delays) else None,
            days=days,
            rules=self.rules,
        )

    def _take(self, found: list[Found]) -> None:
        self.outages += [one for one in found if one.incident.kind != "anomaly"]
        found = [one for one in found if one.incident.kind == "anomaly"]
        self.spans += [(one.first, one.end) for one in found]
        self.worst += found
        if len(self.worst) > 2 * self.keep:
            self._prune()

    def _prune(self) -> None:
        self.worst = sorted(self.worst, key=lambda one: (-one.incident.peak_score, one.first))[: self.keep]

    def _end_labels(self) -> None:
        mask = np.concatenate([np.empty(0, np.bool_), *self._flags])
        one = _joined(runs(mask), self.rules.merge_rows)
        reach = np.minimum(one.ends + self.rules.merge_rows, len(mask))
        self.truth.append(Runs(one.starts + self._first, one.ends + self._first))
        self.reach.append(Runs(one.starts + self._first, reach + self._first))
        self._flags = []


def count_incidents(
    file: ScoredFile, rules: IncidentRules, *, rows_per_day: float | None, scored_rows: int
) -> IncidentFigures:
    """One pass over scores and labels."""
    counter = IncidentCounter(file, rules)
    for chunk in file.chunks():
        for name, part in chunk.parts():
            if name is not None:
                counter.start_series(name, part.first_row)
            counter.add(part)
    counter.end()
    return counter.figures(days=None if rows_per_day is None else scored_rows / rows_per_day)


def evaluate_file(
    file: ScoredFile, asked: EvaluationThreshold, *, seed: int = 0, rows_per_day: float | None = None
) -> tuple[Evaluation, IncidentFigures | None]:
    """Scores and incidents against labels; no incidents where another column takes the place of the score."""
    rows = read_labelled(file)
    threshold = choose_for_evaluation(rows.scores, file.properties, asked, source=file.source)
    found = evaluate(rows, threshold, seed=seed, rows_per_day=rows_per_day)
    return found, evaluate_incidents(file, found) if file.score_column == "score" else None


def evaluate_incidents(file: ScoredFile, found: Evaluation) -> IncidentFigures:
    """Incidents by the rules of the file, with the threshold and the clock of its evaluation."""
    rules = rules_of_scores(file.properties, source=file.source, threshold=found.threshold.value)
    return count_incidents(file, rules, rows_per_day=found.rows_per_day, scored_rows=found.rows)


def _concatenated(parts: list[Runs]) -> Runs:
    return Runs(np.concatenate([one.starts for one in parts]), np.concatenate([one.ends for one in parts]))


def _joined(truth: Runs, gap: int) -> Runs:
    """Anomalies at most `gap` rows apart as one."""
    if not len(truth):
        return truth
    apart = truth.starts[1:] - truth.ends[:-1] > gap
    return Runs(truth.starts[np.append(True, apart)], truth.ends[np.append(apart, True)])
