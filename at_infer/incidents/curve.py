"""Number of incidents of normal rows at each threshold, for false-alarm rates."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from at_infer.config import ScoreConfig
from at_infer.incidents.defaults import default_rules
from at_infer.incidents.find import GapFinder
from at_infer.incidents.rules import IncidentRules
from at_infer.models.statistics import IncidentCurve, IncidentOptions
from at_infer.tables.scores import ScoredFile
from at_infer.thresholds.verdict import exceeds

Floats = NDArray[np.float32]

LEVELS = 64
HIGHEST_SHARE = 0.2
"""Of the rows above the lowest threshold."""


def incident_curve(
    series: Sequence[Floats], score: ScoreConfig, options: IncidentOptions | None = None
) -> IncidentCurve:
    """Of the scores of normal rows, one array per series, or per stretch of one between gaps in time."""
    options = options or IncidentOptions()
    known = np.concatenate(series)
    known = known[~np.isnan(known)]
    median = float(np.median(known))
    shares = np.geomspace(HIGHEST_SHARE, min(HIGHEST_SHARE, 1 / len(known)), LEVELS - 1)
    levels = np.unique([*np.quantile(known.astype(np.float64), 1 - shares), float(known.max())])
    counts = []
    for level in levels.tolist():
        rules = default_rules(level, score, median=median, options=options)
        counts.append(sum(count_openings(scores, rules) for scores in series))
    return IncidentCurve(levels=levels.tolist(), counts=counts, rows=len(known), options=options)


def count_openings(scores: Floats, rules: IncidentRules) -> int:
    """How many incidents `IncidentTracker` opens for one series, all at once; no incident is made."""
    hot = np.flatnonzero(exceeds(scores, rules.open_at))
    cold = np.flatnonzero(~exceeds(scores, rules.close_at))
    # A piece lasts from its first row above the threshold to the next row below the lower limit.
    ends = np.append(cold, len(scores))[np.searchsorted(cold, hot)]
    first = np.append(True, ends[1:] != ends[:-1])[: len(hot)]
    begins, ends = hot[first], ends[first]
    apart = np.flatnonzero(np.append(True, begins[1:] - ends[:-1] > rules.merge_rows)[: len(begins)])
    if len(apart) == 0:
        return 0
    rows = np.add.reduceat(ends - begins, apart)
    lasts = ends[np.append(apart[1:], len(ends)) - 1] - 1
    count, quiet_until = 0, 0
    for last in lasts[rows >= rules.min_rows].tolist():
        if last >= quiet_until:
            count, quiet_until = count + 1, last + 1 + rules.cool_down_rows
    return count


def curve_of_file(source: str, score: ScoreConfig, options: IncidentOptions | None = None) -> IncidentCurve:
    """The same of a file of scores of normal rows."""
    series: list[list[Floats]] = []
    file = ScoredFile(source)
    gaps = GapFinder(file)
    for chunk in file.chunks():
        for name, part in chunk.parts():
            for first, end in gaps.stretches(part, begins=name is not None):
                if (first == 0 and name is not None) or first in gaps.found:
                    series.append([])
                series[-1].append(part.scores[first:end])
    return incident_curve([np.concatenate(parts) for parts in series], score, options)
