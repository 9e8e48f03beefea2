"""What live series remember, in rings of rows (F,), and what one step reads of them and writes to them.

A step takes the next row of each of some series, or some consecutive rows of one. The operations on what it reads are
the same (`LiveStep`): each kind of step has arrays (...,n,F), for n series or n rows.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.models.running_sums import PHASES, RunningSums, StoredSum

Floats = NDArray[np.float32]
Items = NDArray[np.void]
"""Rows (F,) as one item each."""


class Ring(NamedTuple):
    """Where the last values of some columns lie in the memory of a series."""

    begin: int
    length: int
    """Rows, a power of two."""
    size: int
    """Columns."""
    reach: int
    """Rows that a step looks back."""

    def of(self, memory: Floats, place: int) -> Floats:
        """(length,size,F) of a series, whose memory begins at a place."""
        begin = place + self.begin
        return memory[begin : begin + self.length * self.size].reshape(self.length, self.size, -1)

    def before(self, number: int, rows: int) -> NDArray[np.int64]:
        """The last rows before a row, in order."""
        return np.arange(number - rows, number) % self.length

    def at(self, column: int, age: int) -> list[int]:
        """Where a value lies, so many rows before each of the next `PHASES` rows."""
        return [self.begin + (number - age) % self.length * self.size + column for number in range(PHASES)]


class Layout:
    """The memory of a series: the recent level, then its rings."""

    def __init__(self, sums: Sequence[RunningSums], reach: int) -> None:
        """Views of a row look back at so many rows before it."""
        self.sums = sums
        self.past = Ring(1, 1 << reach.bit_length(), 1, reach)
        """Of scaled values."""
        self.rows = self.past.begin + self.past.length
        """Of the memory of one series."""
        self.rings: list[dict[tuple[int, int], Ring]] = []
        """For each of `sums` by group and width."""
        for own in sums:
            rings = {}
            for group, width, _ in own.writes:
                reach = max((age for *of, age in own.reads if of == [group, width]), default=0)
                ring = Ring(self.rows, own.length(StoredSum(group, width, 0)), own.groups[group].size, reach)
                rings[group, width] = ring
                self.rows += ring.length * ring.size
            self.rings.append(rings)
        reads = [[0] * PHASES, *(self.past.at(0, age) for age in range(self.past.reach, 0, -1))]
        reads += [row for k, own in enumerate(sums) for row in self._rows(k, own.reads)]
        writes = [self.past.at(0, 0), *(row for k, own in enumerate(sums) for row in self._rows(k, own.writes))]
        self.reads, self.table = len(reads), np.array(reads + writes)
        """Rows that a step of next rows reads, then those that it writes, by the number of a row modulo `PHASES`."""

    def _rows(self, k: int, entries: Sequence[StoredSum]) -> Iterator[list[int]]:
        for group, width, age in entries:
            ring = self.rings[k][group, width]
            yield from (ring.at(column, age) for column in range(ring.size))


class StepArrays:
    """What a step of n series, or rows, reads and writes."""

    level: Floats
    """(n,F)"""
    x: Floats
    """(n,F) scaled values of the new rows."""
    before: Floats
    """(n,F) those of the row before each; those of earlier rows lie in front of it, `by_lag` bytes apart."""
    by_lag: int
    stored: list[dict[StoredSum, Floats]]
    """Arrays (size,n,F) of kept sums, the new ones at age 0."""


class NextRows(StepArrays):
    """The next row of each of some series."""

    def __init__(self, layout: Layout, series: int, features: int) -> None:
        self.layout = layout
        self.at = np.empty((len(layout.table), series), np.int64)
        rows = np.empty((*self.at.shape, features), np.float32)
        reads, past = layout.reads, layout.past.reach
        self.reads, self.writes, self.known, self.new = self.at[:reads], self.at[reads:], rows[:reads], rows[reads:]
        self.into, self.written = items(self.known), items(self.new)
        self.level, self.before, self.x, self.by_lag = self.known[0], self.known[past], self.new[0], rows.strides[0]
        self.stored = []
        known, new = self.known[past + 1 :], self.new[1:]
        for own in layout.sums:
            self.stored.append({})
            for entry in [*own.reads, *own.writes]:
                size = own.groups[entry.columns].size
                if entry.age:
                    self.stored[-1][entry], known = known[:size], known[size:]
                else:
                    self.stored[-1][entry], new = new[:size], new[size:]

    def load(self, memory: Items, numbers: Sequence[int], places: Sequence[int]) -> None:
        """Read what is known, by the numbers of the rows and the places where the memories begin."""
        if len(numbers) == 1:
            np.add(self.layout.table[:, numbers[0] % PHASES, None], places[0], self.at)
        else:
            np.take(self.layout.table, np.array(numbers) % PHASES, 1, self.at)
            self.at += np.array(places)
        memory.take(self.reads, None, self.into, "clip")

    def store(self, memory: Items) -> None:
        """Write what is new."""
        memory.put(self.writes, self.written, "clip")


class RowBlock(StepArrays):
    """Some consecutive rows of one series: new values stand behind those before them, and are themselves looked at."""

    def __init__(self, layout: Layout, count: int, features: int) -> None:
        rings = [layout.past, *(ring for rings in layout.rings for ring in rings.values())]
        reads, begins = [(0, 0, 0, 0)] * count, []
        for ring in rings:
            begins.append(len(reads))
            for column in range(ring.size):
                reads += [self._entry(ring, column, age) for age in range(-ring.reach, 0)]
                reads += [(0, 0, 0, 0)] * count  # of no use: what is new comes here
        writes, sources = [], []
        for ring, begin in zip(rings, begins, strict=True):
            some = range(max(0, count - ring.length), count)
            for column in range(ring.size):
                writes += [self._entry(ring, column, age) for age in some]
                end = begin + column * (ring.reach + count) + ring.reach
                sources += [end + age for age in some]
        self.base, self.age, self.mask, self.size = (np.array(part) for part in zip(*reads, *writes, strict=True))
        self.sources = np.array(sources)
        self.at = np.empty(len(self.base), np.int64)
        self.reads, self.writes = self.at[: len(reads)], self.at[len(reads) :]
        self.rows = np.empty((len(reads), features), np.float32)
        self.items = items(self.rows)
        self.new = np.empty(len(writes), self.items.dtype)
        values = [
            self.rows[begin : begin + ring.size * (ring.reach + count)].reshape(ring.size, -1, features)
            for ring, begin in zip(rings, begins, strict=True)
        ]
        past = values.pop(0)[0]
        self.level, self.x, self.by_lag = self.rows[:count], past[-count:], past.strides[0]
        self.before = past[-count - 1 : -1]
        self.stored = []
        for own, of in zip(layout.sums, layout.rings, strict=True):
            known = dict(zip(of, values, strict=False))
            del values[: len(of)]
            self.stored.append({})
            for group, width, age in [*own.reads, *own.writes]:
                first = of[group, width].reach - age
                self.stored[-1][StoredSum(group, width, age)] = known[group, width][:, first : first + count]

    def _entry(self, ring: Ring, column: int, age: int) -> tuple[int, int, int, int]:
        return ring.begin + column, age, ring.length - 1, ring.size

    def load(self, memory: Items, numbers: Sequence[int], places: Sequence[int]) -> None:
        """As of next rows; the number is that of the first."""
        at = self.at
        np.add(self.age, numbers[0], at)
        np.bitwise_and(at, self.mask, at)
        np.multiply(at, self.size, at)
        np.add(at, self.base, at)
        np.add(at, places[0], at)
        memory.take(self.reads, None, self.items, "clip")

    def store(self, memory: Items) -> None:
        """As of next rows."""
        self.items.take(self.sources, None, self.new, "clip")
        memory.put(self.writes, self.new, "clip")


def items(rows: Floats) -> Items:
    """Rows (...,F) as items of bytes, which numpy puts to their places in a quarter of the time."""
    return rows.view(np.dtype((np.void, rows.shape[-1] * rows.itemsize)))[..., 0]
