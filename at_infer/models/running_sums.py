"""Sums over the last rows of live series, one row at a time: the numbers of `window_sums`, to the last bit.

`window_sums` adds rows up by doubling: pairs, fours, eights. A new row is the end of one new pair, one new four and one
new eight, each the sum of two that are known, if those of earlier rows are kept. So a row costs a few additions,
however many rows are summed up; nothing is ever subtracted, so nothing drifts.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    def widths(self) -> list[int]:
        """Rows that are summed up."""
        return [before + 1 + after for before, after in self.spans]


class StoredSum(NamedTuple):
    """The sums of 2 ** `level` rows that ended `age` rows before the next row."""

    columns: int
    level: int
    age: int


class RunningSums:
    """Which sums of some columns are kept, in rings, and how those of the next row are formed of them."""

    def __init__(self, groups: Sequence[SummedColumns]) -> None:
        """Those with the widest sums first."""
        self.groups = groups
        tops = [max(group.widths).bit_length() - 1 for group in groups]
        self.new = [sum(g.size for g, top in zip(groups, tops, strict=True) if top >= k) for k in range(tops[0] + 1)]
        """How many columns have sums of 2 ** level rows, by level: the first ones."""
        self.reads = [StoredSum(g, k, 1 << k) for k in range(tops[0]) for g, top in enumerate(tops) if top > k]
        """What is formed into others; first the older halves of the new sums, level by level."""
        self.terms = [[self._terms(g, *span) for span in group.spans] for g, group in enumerate(groups)]
        """For each span of each group what is added up: numbers of reads, or -1 - level of a new sum."""
        self.levels = 1 + max((read.level for read in self.reads), default=0)
        """That are kept."""
        self.writes = [StoredSum(g, k, 0) for k in range(self.levels) for g, top in enumerate(tops) if top >= k]
        self.read_at, self.write_at = (self._rows(part) for part in (self.reads, self.writes))

    def _terms(self, group: int, before: int, after: int) -> list[int]:
        """A window of rows, small parts first, as `window_sums` adds them."""
        found: list[int] = []
        width, oldest = before + 1 + after, before + self.groups[group].ahead
        for level in range(width.bit_length()):
            if not width >> level & 1:
                continue
            age = oldest - (1 << level) + 1
            if level == 1 and not found and age > 2:  # not worth a ring: the sum begins with two rows that are kept
                found += [self._read(group, 0, oldest), self._read(group, 0, age)]
            else:
                found.append(self._read(group, level, age) if age else -1 - level)
            oldest = age - 1
        return found

    def _read(self, group: int, level: int, age: int) -> int:
        read = StoredSum(group, level, age)
        if read not in self.reads:
            self.reads.append(read)
        return self.reads.index(read)

    def _rows(self, entries: Sequence[StoredSum]) -> list[int]:
        """Where each begins, if they lie one behind the other, and where the last one ends."""
        return [0, *np.cumsum([self.groups[entry.columns].size for entry in entries]).tolist()]

    def levels_of(self, group: int) -> int:
        """How many are kept of a group."""
        return sum(own.columns == group for own in self.writes)

    def length(self, own: StoredSum) -> int:
        """Of its ring: a power of two."""
        ages = [read.age for read in self.reads if read[:2] == own[:2]]
        oldest = max([1, *ages, 0 if own.level else self.groups[own.columns].kept])
        return 1 << (oldest - 1).bit_length()

    def prepare(self, known: Floats, new: Floats, means: Sequence[Sequence[Floats]]) -> Iterator[Operation]:
        """What makes the means of each span of each group, of what was read (rows,S,F) and the new rows.

        It also forms the rest of what will be written (rows,S,F), which begins with the new rows.
        """
        at, here, sums = 0, 0, [new[: self.new[0]]]
        for level, count in enumerate(self.new[1:], start=1):
            here += self.new[level - 1]
            is_kept = level < self.levels
            sums.append(new[here : here + count] if is_kept else np.empty((count, *new.shape[1:]), np.float32))
            yield np.add, (known[at : at + count], sums[level - 1][:count], sums[level])
            at += count
        first = 0
        for group, spans, of_group in zip(self.groups, self.terms, means, strict=True):
            own = slice(first, first + group.size)
            for width, terms, mean in zip(group.widths, spans, of_group, strict=True):
                parts = [sums[-1 - k][own] if k < 0 else known[self.read_at[k] : self.read_at[k + 1]] for k in terms]
                total = parts[0]
                for other in parts[1:]:
                    yield np.add, (total, other, mean)
                    total = mean
                yield np.divide, (total, np.float32(width), mean)
            first += group.size
