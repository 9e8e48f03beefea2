"""Validation scores, whole or as the quantiles a model kept: one object for both."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.thresholds.gap import gap_threshold
from at_infer.thresholds.peaks import INITIAL_LEVEL, peaks_threshold
from at_infer.thresholds.ratio import quantile_threshold, ratio_threshold
from at_infer.thresholds.verdict import exceeds

MOST_TAIL_ROWS = 1_000_000  # a tail rebuilt from quantiles gains nothing from more

# Every percent up to 99 %, then ever finer: thresholds live in the last percent.
QUANTILE_LEVELS: tuple[float, ...] = tuple(
    np.unique(
        np.concatenate(
            [
                np.linspace(0.0, 0.99, 100),
                np.linspace(0.99, 0.999, 91),
                np.linspace(0.999, 0.9999, 91),
                np.linspace(0.9999, 1.0, 101),
            ]
        ).round(8)
    ).tolist()
)


def quantiles(scores: NDArray[np.float32]) -> list[float]:
    """The scores' quantiles at `QUANTILE_LEVELS`."""
    return [float(q) for q in np.quantile(scores.ravel().astype(np.float64), QUANTILE_LEVELS)]


@dataclass(frozen=True, slots=True)
class ValidationScores:
    """Their quantiles."""

    source: str
    rows: int
    levels: list[float]
    values: list[float]
    """Quantiles."""
    scores: NDArray[np.float32] | None = None
    """All of them, if they are at hand."""

    @classmethod
    def of_scores(cls, source: str, scores: NDArray[np.float32]) -> "ValidationScores":
        """Rows without a score are left out."""
        known = scores[~np.isnan(scores)]
        if not len(known):
            raise DataError(f"{source}: no row has a score")
        return cls(source, len(known), list(QUANTILE_LEVELS), quantiles(known), known)

    def share_above(self, threshold: float) -> float:
        """Share of the scores that exceed it."""
        if self.scores is not None:
            return float(exceeds(self.scores, threshold).mean())
        values = np.asarray(self.values)
        if threshold < values[0] or threshold >= values[-1]:
            return float(threshold < values[0])
        # Equal quantiles are a jump: of these the highest level counts.
        at = int(np.searchsorted(values, threshold, side="right"))
        low, high = values[at - 1], values[at]
        level = self.levels[at - 1] + (threshold - low) / (high - low) * (self.levels[at] - self.levels[at - 1])
        return 1 - float(level)

    def at_levels(self, levels: list[float]) -> list[float]:
        """Quantiles at levels of one's own."""
        return [float(value) for value in np.interp(levels, self.levels, self.values)]

    def at_ratio(self, ratio: float) -> float:
        """The threshold that this share exceeds."""
        if self.scores is not None:
            return ratio_threshold(self.scores, ratio)
        return quantile_threshold(self.levels, self.values, ratio)

    def by_gap(self, *, logarithmic: bool = False) -> float:
        """The gap statistic of the paper's appendix, of scores or of their logarithms."""
        return gap_threshold(self.levels, self.values, logarithmic=logarithmic)

    def by_peaks(self, rate: float) -> float:
        """Peaks over threshold, for a share of alarms on normal rows."""
        initial = quantile_threshold(self.levels, self.values, 1 - INITIAL_LEVEL)
        if self.scores is not None:
            tail = self.scores[self.scores > initial].astype(np.float64)
            return peaks_threshold(tail - initial, initial, self.rows, rate)
        rows = min(self.rows, MOST_TAIL_ROWS)
        peaks = round((1 - INITIAL_LEVEL) * rows)
        ranks = (np.arange(rows - peaks, rows) + 0.5) / rows
        tail = np.interp(ranks, self.levels, self.values)
        return peaks_threshold(tail[tail > initial] - initial, initial, rows, rate)


@dataclass(frozen=True, slots=True)
class Bin:
    """Scores from `low` to `high`."""

    low: float
    high: float
    share: float


def histogram(of: ValidationScores, bins: int = 20) -> list[Bin]:
    """Equal steps of the logarithm if positive scores span more than a factor of 100, else of the score."""
    low, high = of.values[0], of.values[-1]
    if low == high:
        return [Bin(low, high, 1.0)]
    floor = max(low, high * 1e-6)
    if low >= 0 and high > 100 * floor:
        edges = np.geomspace(floor, high, bins + 1)
        edges[0] = low
    else:
        edges = np.linspace(low, high, bins + 1)
    above = np.array([1.0, *(of.share_above(edge) for edge in edges[1:-1]), 0.0])
    return [Bin(float(a), float(b), float(s)) for a, b, s in zip(edges[:-1], edges[1:], -np.diff(above), strict=True)]
