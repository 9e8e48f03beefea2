"""How many incidents normal rows have at each threshold, with the default rules: what a rate is later read from."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from at_infer.config import ScoreConfig
from at_infer.incidents.defaults import default_rules
from at_infer.incidents.tracker import IncidentTracker
from at_infer.models.statistics import IncidentCurve
from at_infer.tables.scores import ScoredFile

Floats = NDArray[np.float32]

LEVELS = 64
HIGHEST_SHARE = 0.2
"""Of the rows above the lowest threshold."""


def incident_curve(series: Sequence[Floats], score: ScoreConfig) -> IncidentCurve:
    """Of the scores of normal rows, one array per series."""
    known = np.concatenate(series)
    known = known[~np.isnan(known)]
    usual = float(np.median(known))
    shares = np.geomspace(HIGHEST_SHARE, min(HIGHEST_SHARE, 1 / len(known)), LEVELS - 1)
    levels = np.unique([*np.quantile(known.astype(np.float64), 1 - shares), float(known.max())])
    counts = [_count(series, float(level), score, usual) for level in levels]
    return IncidentCurve(levels=levels.tolist(), counts=counts, rows=len(known))


def _count(series: Sequence[Floats], open_at: float, score: ScoreConfig, usual: float) -> int:
    rules = default_rules(open_at, score, usual=usual, look_ahead_rows=0)
    count = 0
    for scores in series:
        tracker = IncidentTracker(rules, model="")
        count += sum(event.kind == "opened" for event in [*tracker.add(scores), *tracker.end()])
    return count


def curve_of_file(source: str, score: ScoreConfig) -> IncidentCurve:
    """The same of a file of scores of normal rows."""
    series: list[list[Floats]] = []
    for chunk in ScoredFile(source).chunks():
        for name, part in chunk.parts():
            if name is not None:
                series.append([])
            series[-1].append(part.scores)
    return incident_curve([np.concatenate(parts) for parts in series], score)
