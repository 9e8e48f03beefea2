"""Sums over the last rows of many series, one row of each at a time: the numbers of `window_sums`, to the last bit.

`window_sums` adds rows up by doubling: pairs, fours, eights. A new row is the end of one new pair, one new four and one
new eight, each the sum of two that are known, if those of earlier rows are kept. So a row costs a few additions, however
many rows are summed up; nothing is ever subtracted, so nothing drifts.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Places = NDArray[np.int64]

PHASES = 64
"""Every ring has a length that divides this: where its entries lie depends on the row's number modulo it."""


class RunningSums:
    """Of each series, rings of its last rows, pairs, fours and so on, in `memory` (series x `rows`, width)."""

    def __init__(self, spans: Sequence[tuple[int, int]], width: int) -> None:
        """`spans` are those of `MovingMeans`: rows before and behind a row."""
        ahead = max(after for _, after in spans)
        self.kept = max(before for before, _ in spans) + ahead
        """Rows before the next one that its sums depend on."""
        self.widths = [before + 1 + after for before, after in spans]
        self.top = max(width.bit_length() for width in self.widths) - 1
        """The sums of 2 ** top rows are the largest."""
        self.reads: list[tuple[int, int]] = [(level, 1 << level) for level in range(self.top)]
        """Level and age of what is read of each series; first the older halves of the new sums."""
        self.terms = [self._terms(ahead + before, width) for (before, _), width in zip(spans, self.widths, strict=True)]
        """For each span what is added up: numbers of what was read, or -1 - level of a new sum."""
        self.levels = 1 + max(level for level, _ in self.reads)
        """That have a ring."""
        oldest = [max(age for level, age in self.reads if level == own) for own in range(self.levels)]
        self.lengths = [1 << (age - 1).bit_length() for age in [max(self.kept, oldest[0]), *oldest[1:]]]
        if max(self.lengths) > PHASES:
            raise ValueError(f"spans: {self.widths} rows are too many")
        self.rows, begins = sum(self.lengths), np.cumsum([0, *self.lengths]).tolist()
        ages = [*self.reads, *((level, 0) for level in range(self.levels))]
        self.table: Places = np.array(
            [[begins[level] + (row - age) % self.lengths[level] for row in range(PHASES)] for level, age in ages]
        )
        """(reads and writes, PHASES): where they are in the memory of a series, by the number of the row."""
        self.begins = begins
        self.memory: Floats = np.zeros((0, width), np.float32)

    def _terms(self, oldest: int, width: int) -> list[int]:
        """A window of so many rows from the one of age `oldest` on, small parts first, as `window_sums` adds them."""
        found = []
        for level in range(width.bit_length()):
            if not width >> level & 1:
                continue
            age = oldest - (1 << level) + 1
            if level == 1 and not found and age > 2:  # not worth a ring: the sum begins with two rows that are kept
                found += [self._read(0, oldest), self._read(0, age)]
            else:
                found.append(self._read(level, age) if age else -1 - level)
            oldest = age - 1
        return found

    def _read(self, level: int, age: int) -> int:
        if (level, age) not in self.reads:
            self.reads.append((level, age))
        return self.reads.index((level, age))

    def grow(self, series: int) -> None:
        """Room for so many."""
        grown = np.zeros((series * self.rows, self.memory.shape[1]), np.float32)
        grown[: len(self.memory)] = self.memory
        self.memory = grown

    def enter(self, place: int, rows: Floats) -> None:
        """The last rows (kept, width) of a series, whose next row is number 0 here."""
        sums, first = rows, place * self.rows
        for level in range(self.levels):
            length = self.lengths[level]
            count = min(length, len(sums))
            ring = self.memory[first + self.begins[level] :][:length]
            ring[length - count :] = sums[len(sums) - count :]
            half = 1 << level
            sums = sums[:-half] + sums[half:]

    def leave(self, place: int, number: int) -> Floats:
        """The last rows (kept, width) of a series, in order, when so many have come."""
        ages = np.arange(self.kept, 0, -1)
        found: Floats = self.memory[place * self.rows + (number - ages) % self.lengths[0]]
        return found

    def step(self, places: Places, phases: Places, rows: Floats) -> list[Floats]:
        """The next row (S,width) of each of some series -> the sums (S,width) of each span."""
        at = self.table.take(phases, axis=1)
        at += places * self.rows
        known = self.memory.take(at[: len(self.reads)], axis=0)
        new = np.empty((self.top + 1, *rows.shape), np.float32)
        new[0] = rows
        for level in range(self.top):
            np.add(known[level], new[level], out=new[level + 1])
        self.memory[at[len(self.reads) :]] = new[: self.levels]
        sums = []
        for first, *terms in self.terms:
            total = known[first] if first >= 0 else new[-1 - first]
            for term in terms:
                total = total + (known[term] if term >= 0 else new[-1 - term])
            sums.append(total)
        return sums
