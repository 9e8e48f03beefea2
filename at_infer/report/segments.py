"""Runs of flagged or of labelled rows, found chunk by chunk; only the worst are kept, all are counted."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from at_infer.evaluation.metrics.runs import runs
from at_infer.tables.scores import ScoredChunk

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(slots=True)
class Segments:
    """One entry per segment in every array; rows are counted from the first of the file."""

    series: Ints
    first: Ints
    end: Ints
    """The row behind the last."""
    peak: Floats
    """Highest score; -inf if no row has one."""
    peak_row: Ints
    touched: Bools
    """Has a row that is also in the other mask: labelled, or flagged."""
    evidence: NDArray[np.float64]
    """That of the rows, summed: one row per segment."""
    times: NDArray[np.float64]
    """(segments, 2), of the first and the last row; NaN if rows are only numbered."""

    def __len__(self) -> int:
        return len(self.first)

    def take(self, which: Ints) -> "Segments":
        """Some of them, in that order."""
        return Segments(*(getattr(self, entry.name)[which] for entry in fields(self)))

    def joined(self, other: "Segments") -> "Segments":
        """These, then the others."""
        return Segments(*(np.concatenate([getattr(s, entry.name) for s in (self, other)]) for entry in fields(self)))

    def worst_first(self) -> Ints:
        """By peak; of equals the longer, then the earlier."""
        return np.lexsort((self.first, self.first - self.end, -self.peak))


def no_segments(evidence_columns: int) -> Segments:
    """None at all."""
    whole = np.empty(0, np.int64)
    peak, touched = np.empty(0, np.float32), np.empty(0, np.bool_)
    return Segments(whole, whole, whole, peak, whole, touched, np.empty((0, evidence_columns)), np.empty((0, 2)))


class SegmentFinder:
    """Collects the runs of a mask over the rows of one series after another."""

    def __init__(self, evidence_columns: int, keep: int) -> None:
        self.found, self.count, self.rows = no_segments(evidence_columns), 0, 0
        self.keep, self._open = keep, no_segments(evidence_columns)
        self.series = -1

    def start_series(self) -> None:
        """The rows that come next belong to another series."""
        self.end()
        self.series += 1

    def add(self, mask: Bools, other: Bools, rows: ScoredChunk) -> None:
        """The next rows of the series."""
        part, first_row = self._part(mask, other, rows), rows.first_row
        if len(self._open) and len(part) and part.first[0] == self._open.end[0]:
            _extend(part, self._open)
            self._open = self._open.take(np.empty(0, np.int64))
        self.end()
        if len(part) and part.end[-1] == first_row + len(mask):
            last = np.array([len(part) - 1])
            self._open, part = part.take(last), part.take(np.arange(len(part) - 1))
        self._close(part)

    def end(self) -> None:
        """A run that is still open ends here."""
        self._close(self._open)
        self._open = self._open.take(np.empty(0, np.int64))

    def _close(self, part: Segments) -> None:
        if not len(part):
            return
        self.count += len(part)
        self.rows += int((part.end - part.first).sum())
        self.found = self.found.joined(part)
        if len(self.found) > 2 * self.keep:
            self.found = self.found.take(np.sort(self.found.worst_first()[: self.keep]))

    def worst(self) -> Segments:
        """The worst ones, worst first."""
        return self.found.take(self.found.worst_first()[: self.keep])

    def _part(self, mask: Bools, other: Bools, rows: ScoredChunk) -> Segments:
        part = runs(mask)
        if not len(part):
            return no_segments(self.found.evidence.shape[1])
        inside = np.flatnonzero(mask)  # rows of all runs, one after another
        begins = np.cumsum(part.lengths) - part.lengths  # where in them each run begins
        known = np.nan_to_num(rows.scores[inside], nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        peak = np.maximum.reduceat(known, begins)
        at_peak = np.flatnonzero(known == np.repeat(peak, part.lengths))
        of_run = np.repeat(np.arange(len(part)), part.lengths)[at_peak]
        peak_row = inside[at_peak[np.searchsorted(of_run, np.arange(len(part)))]]
        evidence = np.zeros((len(part), 0))
        if rows.evidence is not None:
            evidence = np.add.reduceat(rows.evidence[inside], begins, dtype=np.float64)
        times = np.full((len(part), 2), np.nan)
        if rows.times is not None:
            times = rows.times[np.stack([part.starts, part.ends - 1], axis=1)]
        return Segments(
            np.full(len(part), self.series),
            part.starts + rows.first_row,
            part.ends + rows.first_row,
            peak,
            peak_row + rows.first_row,
            np.logical_or.reduceat(other[inside], begins),
            evidence,
            times,
        )


def _extend(part: Segments, before: Segments) -> None:
    """The first segment of `part` continues the one before."""
    part.first[0] = before.first[0]
    if before.peak[0] >= part.peak[0]:
        part.peak[0], part.peak_row[0] = before.peak[0], before.peak_row[0]
    part.touched[0] |= before.touched[0]
    part.evidence[0] += before.evidence[0]
    part.times[0, 0] = before.times[0, 0]
