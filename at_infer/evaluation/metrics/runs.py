"""Runs of consecutive rows, and what two sets of them share. Everything about alarms is a question to these."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Runs:
    """Sorted, disjoint runs of rows; an end is the row behind the last."""

    starts: Ints
    ends: Ints

    @property
    def lengths(self) -> Ints:
        """Rows of each."""
        return self.ends - self.starts

    @property
    def rows(self) -> int:
        """Rows of all together."""
        return int(self.lengths.sum())

    def __len__(self) -> int:
        return len(self.starts)


def runs(mask: Bools) -> Runs:
    """Where a mask is true."""
    framed = np.zeros(len(mask) + 2, np.bool_)
    framed[1:-1] = mask
    edges = np.flatnonzero(framed[1:] != framed[:-1])
    return Runs(edges[::2], edges[1::2])


def rows_shared(of: Runs, others: Runs) -> Ints:
    """For each run the number of its rows that are in `others`."""
    total = np.append(0, np.cumsum(others.lengths))

    def rows_before(row: Ints) -> Ints:
        begun = np.searchsorted(others.starts, row)
        cut = np.append(0, others.ends)[begun] - row  # the last one begun may reach beyond
        found: Ints = total[begun] - np.maximum(cut, 0)
        return found

    return rows_before(of.ends) - rows_before(of.starts)


def runs_touched(of: Runs, others: Runs) -> Ints:
    """For each run the number of `others` that share a row with it."""
    touched: Ints = np.searchsorted(others.starts, of.ends) - np.searchsorted(others.ends, of.starts, side="right")
    return touched


def first_shared(of: Runs, others: Runs) -> Ints:
    """For each run the number of its first row that is in `others`, counted within the run; -1 if there is none."""
    at = np.searchsorted(others.ends, of.starts, side="right")
    begins = np.append(others.starts, np.iinfo(np.int64).max)[at]
    return np.where(begins < of.ends, np.maximum(begins - of.starts, 0), -1)
