"""The thresholds a reader can choose from, and what each would flag."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from at_infer.report.thresholds import Cuts, Ints, LevelTally, ThresholdCounts

MOST_CUTS = 240
DECADES = 6  # scores that are smaller than the largest by more than this share the first bar


@dataclass(frozen=True, slots=True)
class ThresholdGrid:
    """Rising thresholds; one of them is the one in use."""

    cuts: Ints
    values: NDArray[np.float64]
    used: int
    """Index of the threshold in use."""


def choose_threshold_grid(total: ThresholdCounts, cuts: Cuts) -> ThresholdGrid:
    """Thresholds from below the lowest score to the highest, on a log scale unless scores can be negative."""
    occupied = total.rows.levels[total.rows.levels > 0]
    chosen = np.array([cuts.at])
    if len(occupied):
        first, last = int(occupied[0]) - 1, int(occupied[-1])
        low, high = cuts.values(np.array([_lowest_shown(total.rows, cuts), last]))
        wanted = np.geomspace(low, high, MOST_CUTS - 2) if low > 0 else np.linspace(low, high, MOST_CUTS - 2)
        inner = cuts.levels(wanted.astype(np.float32))
        chosen = np.concatenate([[first], inner[(inner > first) & (inner <= last)], [last], chosen])
    chosen = np.unique(chosen)
    return ThresholdGrid(chosen, cuts.values(chosen), int(np.searchsorted(chosen, cuts.at)))


def _lowest_shown(rows: LevelTally, cuts: Cuts) -> int:
    """The level that one score in a thousand is below, but not many decades under the highest."""
    known = rows.levels > 0
    levels, counts = rows.levels[known], rows.counts[known]
    low = levels[np.searchsorted(np.cumsum(counts), counts.sum() / 1000)]
    value, high = cuts.values(np.array([low, levels[-1]]))
    if 0 <= value < high * 10.0**-DECADES and cuts.values(levels[:1])[0] >= 0:
        low = int(cuts.levels(np.array([high * 10.0**-DECADES], np.float32))[0])
    return int(low)
