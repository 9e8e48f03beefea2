"""Sums over the last rows of live series, one row at a time: the numbers of `window_sums`, to the last bit.

A sum that ends with the new row is made of a shorter one that ends with it too and of one that ended some rows before.
If those are kept, a row costs a few additions, however many rows are summed up.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.models.row_sums import additions

Floats = NDArray[np.float32]
Operation = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of numpy, and the arrays that it is called with."""

PHASES = 256
"""Every ring has a length that divides this: where its entries lie depends on the number of a row modulo it."""


class SummedColumns(NamedTuple):
    """Some that are summed up alike."""

    size: int
    spans: Sequence[tuple[int, int]]
    """As in `MovingMeans`: rows before and behind a row."""

    @property
    def ahead(self) -> int:
        """Rows behind the one that is summed up around."""
        return max(after for _, after in self.spans)

    @property
    def kept(self) -> int:
        """Rows before the next one that its sums depend on."""
        return max(before for before, _ in self.spans) + self.ahead

    @property
    def sums(self) -> list[tuple[int, int]]:
        """For each span how many rows are summed up, and how many have come behind them."""
        return [(before + 1 + after, self.ahead - after) for before, after in self.spans]

    @property
    def widths(self) -> list[int]:
        """Rows that are summed up."""
        return [width for width, _ in self.sums]


class StoredSum(NamedTuple):
    """The sums of `width` rows that ended `age` rows before the next row."""

    columns: int
    width: int
    age: int


class RunningSums:
    """Which sums of some columns are kept, in rings, and how those of the next row are formed of them."""

    def __init__(self, groups: Sequence[SummedColumns]) -> None:
        self.groups = groups
        self.steps = [(g, step) for g, group in enumerate(groups) for step in additions(frozenset(group.widths))]
        """Sums that are formed with each row, in this order."""
        self.reads = [StoredSum(g, step.older, step.newer) for g, step in self.steps]
        """Of earlier rows: the older halves of the sums that are formed, and those whose last row has come already."""
        self.reads += [StoredSum(g, width, age) for g, group in enumerate(groups) for width, age in group.sums if age]
        kept = {read[:2] for read in self.reads} | {(g, 1) for g in range(len(groups))}
        self.writes = [StoredSum(g, width, 0) for g, width in sorted(kept, key=lambda own: (own[1] > 1, own))]
        """Of the new row, itself first."""

    def length(self, own: StoredSum) -> int:
        """Of its ring: a power of two."""
        ages = [read.age for read in self.reads if read[:2] == own[:2]]
        oldest = max([1, *ages, self.groups[own.columns].kept if own.width == 1 else 0])
        return 1 << (oldest - 1).bit_length()

    def prepare(self, stored: dict[StoredSum, Floats]) -> tuple[list[Operation], list[list[Floats]]]:
        """What makes the sums of new rows, from arrays (size,n,F) that are read or will be written; where they are."""
        operations: list[Operation] = []
        stored = {**stored}
        for group, (width, older, newer) in self.steps:
            parts = stored[StoredSum(group, older, newer)], stored[StoredSum(group, newer, 0)]
            total = stored.setdefault(StoredSum(group, width, 0), np.empty(parts[0].shape, np.float32))
            operations.append((np.add, (*parts, total)))
        return operations, [[stored[StoredSum(g, *own)] for own in group.sums] for g, group in enumerate(self.groups)]
