"""What every threshold would flag, counted in one pass and constant memory.

A float32 that is cut to its upper 16 bits keeps its order and 0.8 % of precision. Scores are counted by these levels;
one more cut at the threshold in use makes the counts exact there too. A row without a score has level 0.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from at_infer.thresholds.verdict import exceeds

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Cuts:
    """Levels of scores, and the thresholds between them: a score exceeds threshold k if its level exceeds k."""

    def __init__(self, threshold: float) -> None:
        self.threshold = np.float32(threshold)
        self.at = int(_coarse(np.array([self.threshold]))[0])
        """The cut that is the threshold in use."""

    def levels(self, scores: Floats) -> Ints:
        """0 for NaN, else 1 and more."""
        return np.where(np.isnan(scores), 0, _coarse(scores) + exceeds(scores, self.threshold))

    def values(self, cuts: Ints) -> NDArray[np.float64]:
        """The thresholds themselves, exactly: the highest score that is not above."""
        coarse = cuts - (cuts > self.at)
        value = _highest(coarse)
        value[cuts == self.at] = self.threshold
        return value.astype(np.float64)


def _coarse(scores: Floats) -> Ints:
    """1 to 65536, rising with the score."""
    bits = (scores + np.float32(0)).view(np.uint32)  # -0.0 becomes 0.0
    ordered = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    return (ordered >> 16).astype(np.int64) + 1


def _highest(coarse: Ints) -> Floats:
    ordered = ((coarse - 1) << 16 | 0xFFFF).astype(np.uint32)
    bits = np.where(ordered >> 31, ordered & np.uint32((1 << 31) - 1), ~ordered).astype(np.uint32)
    bits[bits == 1 << 31] += np.uint32(1)  # -0.0 is not below 0.0, its neighbour is
    return bits.view(np.float32)


class LevelTally:
    """How many things have which level, few bytes per level that occurs."""

    def __init__(self) -> None:
        self.levels = np.empty(0, np.int64)
        self.counts = np.empty(0, np.int64)

    def add(self, levels: Ints, weight: int = 1) -> None:
        """Count some levels, or take them off again."""
        if not len(levels):
            return
        lowest = int(levels.min())
        counts = np.bincount(levels - lowest)
        occupied = np.flatnonzero(counts)
        self._merge(occupied + lowest, weight * counts[occupied])

    def include(self, other: "LevelTally") -> None:
        """Count what the other has counted."""
        self._merge(other.levels, other.counts)

    def above(self, cuts: Ints) -> Ints:
        """For each cut, how many are above it."""
        total = np.append(0, np.cumsum(self.counts[::-1]))[::-1]  # [i]: of levels i and up
        return total[np.searchsorted(self.levels, cuts, side="right")]

    def _merge(self, levels: Ints, counts: Ints) -> None:
        """Levels are given once each and in order."""
        if not len(self.levels):
            self.levels, self.counts = levels, counts
        if not len(levels) or self.levels is levels:
            return
        self.levels, place = np.unique(np.concatenate([self.levels, levels]), return_inverse=True)
        summed = np.zeros(len(self.levels), np.int64)
        np.add.at(summed, place, np.concatenate([self.counts, counts]))
        self.counts = summed


@dataclass(slots=True)
class RunTally:
    """Runs of rows above any threshold: one begins at a cut wherever a row is above it and the row before is not."""

    starts: LevelTally = field(default_factory=LevelTally)
    last: int = 0

    def add(self, levels: Ints) -> None:
        """The next rows; series are kept apart by a level 0 in between."""
        before = np.append(self.last, levels[:-1])
        rising = levels > before
        self.starts.add(levels[rising])
        self.starts.add(before[rising], -1)
        self.last = int(levels[-1])


@dataclass(slots=True)
class ThresholdCounts:
    """Of one series: rows and runs above any threshold, and with labels what of it is right."""

    rows: LevelTally = field(default_factory=LevelTally)
    runs: RunTally = field(default_factory=RunTally)
    labelled_runs: RunTally = field(default_factory=RunTally)
    bridges: LevelTally = field(default_factory=LevelTally)
    """For each stretch between two anomalies, the lowest level of it and its two neighbours: above a threshold that is
    lower, one run of rows touches both anomalies."""
    events: LevelTally = field(default_factory=LevelTally)
    """Highest level of each anomaly."""
    _open_event: int | None = None
    _since_label: int | None = None

    def add(self, levels: Ints, labels: Bools | None) -> None:
        """The next rows of the series."""
        if not len(levels):
            return
        self.rows.add(levels)
        self.runs.add(levels)
        if labels is not None:
            self.labelled_runs.add(np.where(labels, levels, 0))
            self._add_labelled(levels, labels)

    def end(self) -> None:
        """The series is over."""
        if self._open_event is not None:
            self.events.add(np.array([self._open_event]))
            self._open_event = None

    def false_runs_above(self, cuts: Ints) -> Ints:
        """Runs of rows that touch no anomaly."""
        touching = self.labelled_runs.starts.above(cuts) - self.bridges.above(cuts)
        return self.runs.starts.above(cuts) - touching

    def include(self, other: "ThresholdCounts") -> None:
        """Count another series too."""
        for own, more in zip(self._tallies(), other._tallies(), strict=True):
            own.include(more)

    def _tallies(self) -> list[LevelTally]:
        return [self.rows, self.runs.starts, self.labelled_runs.starts, self.bridges, self.events]

    def _add_labelled(self, levels: Ints, labels: Bools) -> None:
        at = np.flatnonzero(labels)
        if not len(at) or at[0] > 0:
            self.end()
        if not len(at):
            if self._since_label is not None:
                self._since_label = min(self._since_label, int(levels.min()))
            return
        lowest = np.minimum.reduceat(levels, at)  # from each labelled row to before the next
        gaps = np.diff(at) > 1
        self.bridges.add(np.minimum(lowest[:-1], levels[at[1:]])[gaps])
        events = np.maximum.reduceat(np.where(labels, levels, 0), at[np.append(True, gaps)])
        if self._since_label is not None and (at[0] > 0 or self._open_event is None):
            first = min(self._since_label, int(levels[: at[0] + 1].min()))
            self.bridges.add(np.array([first]))
        if self._open_event is not None:
            events[0] = max(events[0], self._open_event)
        closed = len(events) if at[-1] < len(levels) - 1 else len(events) - 1
        self.events.add(events[:closed])
        self._open_event = int(events[-1]) if closed < len(events) else None
        self._since_label = int(lowest[-1])
