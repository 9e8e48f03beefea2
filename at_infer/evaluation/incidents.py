"""Incidents against labelled anomalies: how many are found, how many are false, how late."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.evaluation.metrics.runs import Runs, runs, runs_touched
from at_infer.incidents.find import Found, IncidentFinder
from at_infer.incidents.rules import IncidentRules
from at_infer.tables.scores import ScoredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentFigures:
    """What a person who is told of incidents sees of the anomalies."""

    incidents: int
    false_incidents: int
    """Those that touch no anomaly."""
    false_incidents_per_day: float | None
    """Per day and series, in the same clock as all rates; None if no dates tell."""
    anomalies: int
    """Labelled; those that are closer than rules bridge count as one, as nobody could tell them apart."""
    found: int
    incident_recall: float
    delay_rows: float | None
    """From the first row of an anomaly to the begin of the first incident, mean over those that were found."""
    days: float | None
    """That rows were watched."""
    rules: IncidentRules

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        return asdict(self)


def count_incidents(
    file: ScoredFile, rules: IncidentRules, *, rows_per_day: float | None, scored_rows: int
) -> IncidentFigures:
    """One pass over scores and labels.

    An incident and an anomaly belong together if they share a row, or if the incident begins at most so many rows
    behind the anomaly as the rules bridge: a score needs some rows to rise.
    """
    finder = IncidentFinder(file, rules)
    told: list[Found] = []
    labelled: list[tuple[Runs, Runs]] = []
    flags: list[NDArray[np.bool_]] = []
    first = 0

    def end_series() -> None:
        mask = np.concatenate([np.empty(0, np.bool_), *flags])
        one = _joined(runs(mask), rules.merge_rows)
        reach = np.minimum(one.ends + rules.merge_rows, len(mask))
        labelled.append((Runs(one.starts + first, one.ends + first), Runs(one.starts + first, reach + first)))

    for chunk in file.chunks():
        for name, part in chunk.parts():
            if name is not None:
                if flags:
                    end_series()
                first, flags = part.first_row, []
                told += finder.start_series(name, part.first_row)
            told += finder.add(part)
            if part.labels is None:
                raise DataError(f"{file.source}: incidents are counted against labels; give labels")
            flags.append(part.labels)
    end_series()
    told += finder.end()
    truth, reach = (_concatenated([pair[side] for pair in labelled]) for side in (0, 1))
    incidents = Runs(*(np.array([getattr(one, side) for one in told], np.int64) for side in ("first", "end")))
    found = runs_touched(reach, incidents) > 0
    false = int((runs_touched(incidents, reach) == 0).sum())
    at = np.searchsorted(incidents.ends, truth.starts, side="right")[found]
    delays = np.maximum(incidents.starts[at] - truth.starts[found], 0)
    days = None if rows_per_day is None else scored_rows / rows_per_day
    return IncidentFigures(
        incidents=len(incidents),
        false_incidents=false,
        false_incidents_per_day=None if days is None else false / days,
        anomalies=len(truth),
        found=int(found.sum()),
        incident_recall=float(found.mean()) if len(truth) else 0.0,
        delay_rows=float(delays.mean()) if len(delays) else None,
        days=days,
        rules=rules,
    )


def _concatenated(parts: list[Runs]) -> Runs:
    return Runs(np.concatenate([one.starts for one in parts]), np.concatenate([one.ends for one in parts]))


def _joined(truth: Runs, gap: int) -> Runs:
    """Anomalies at most `gap` rows apart as one."""
    if not len(truth):
        return truth
    apart = truth.starts[1:] - truth.ends[:-1] > gap
    return Runs(truth.starts[np.append(True, apart)], truth.ends[np.append(apart, True)])
