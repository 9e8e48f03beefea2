"""Mode `fusion` of live series: the next row of each of many is one step of arrays, and costs a few additions.

What `Fusion` remembers of a series that is steady moves here with its first single row, into rings side by side with
those of other series. It moves back when something else is asked of it. The scores are the same to the last bit: every
number is formed by the operations of `Fusion`, in their order.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from at_infer.models.fusion import LARGEST, Floats, Fusion, fuse_parts
from at_infer.models.running_sums import PHASES, Columns, Kept, RunningSums
from at_infer.models.views import ACTIVITY_AT, AHEAD, FLOOR, LEVEL_STEP, NEXT, NEXT_AT, VIEWS, MovingMeans

Places = NDArray[np.int64]
Ring = tuple[RunningSums | None, int, int]
"""Sums, group and level; without sums it is that of scaled values."""

TOGETHER = 32
"""Series whose next rows are worked on at once."""
FEW_ROWS = 4
"""Up to so many rows of a series are worked on one by one."""
PAST = 32
"""Rows of a ring of scaled values: predictions look back at fewer, and the length must divide `PHASES`."""
SHAPE = VIEWS.index("shape")


class Together:
    """The last step of series that have the same settings."""

    def __init__(self) -> None:
        self.steady: Steady | None = None

    def add(self, fusions: Sequence[Fusion], parts: Sequence[Floats]) -> list[Floats]:
        """The next rows (n,3F) or (n,2F) of several series -> rows (m,C) of each that are final, as `Fusion.add`."""
        if len(fusions) > 1 and len(set(map(id, fusions))) < len(fusions):  # one series may come twice, in order
            return [self._add(fusion, part) for fusion, part in zip(fusions, parts, strict=True)]
        if len(fusions) > 1 and all(len(part) == 1 for part in parts) and all(fusion.is_steady for fusion in fusions):
            rows = np.concatenate(parts)
            if not np.isnan(rows.min()):
                return [*self._step(fusions, rows)]
        return [self._add(fusion, part) for fusion, part in zip(fusions, parts, strict=True)]

    def _add(self, fusion: Fusion, rows: Floats) -> Floats:
        if not (0 < len(rows) <= FEW_ROWS and fusion.is_steady) or np.isnan(rows.min()):
            return fusion.add(rows)
        found = [self._step([fusion], rows[i : i + 1])[0] for i in range(len(rows))]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _step(self, fusions: Sequence[Fusion], rows: Floats) -> Floats:
        """One row of each -> (S,1,1)."""
        if self.steady is None:
            self.steady = Steady(fusions[0])
        steady = self.steady
        places = np.array([steady.enter(fusion) if fusion.lent is None else fusion.place for fusion in fusions])
        with np.errstate(over="ignore", invalid="ignore"):
            if len(places) <= TOGETHER:
                return steady.step(fusions, places, rows)
            parts = [slice(i, i + TOGETHER) for i in range(0, len(places), TOGETHER)]
            return np.concatenate([steady.step(fusions[part], places[part], rows[part]) for part in parts])


class Steady:
    """Memories of series that are steady: for each some rows (F,) of one array, most of them in rings."""

    def __init__(self, like: Fusion) -> None:
        """Of series that have the settings of this one."""
        views, self.features, self.unit = like.views, like.features, like.unit
        of_features = like.normalised.centre, like.normalised.weight  # (F,V,1)
        self.centre, self.weight = (np.ascontiguousarray(part.transpose(1, 2, 0)) for part in of_features)
        self.count = len(self.centre)
        """Views that count."""
        coefficients = np.stack([own.T for own, _ in like.predictions], axis=1)[:, :, None]  # (p+1,2,1,F)
        self.intercepts, self.coefficients = coefficients[-1].copy(), coefficients[:-1].copy()
        residuals = [] if views.residuals is None else [Columns(1, views.residuals.spans)]
        self.inner = RunningSums([*residuals, Columns(2, views.means.spans)])
        """Of residuals and of squared errors of prediction."""
        self.outer = RunningSums([Columns(self.count, like.means.spans)])
        """Of squared deviations."""
        self.rings: dict[Ring, tuple[int, int]] = {}
        """Where each begins in the memory of a series, and its length."""
        self.rows = 1  # the first is the recent level
        for sums, of in ((None, Kept(0, 0, 0)), *((sums, of) for sums in self._sums for of in sums.writes)):
            length = PAST if sums is None else sums.length(of)
            self.rings[sums, of.columns, of.level] = self.rows, length
            self.rows += length * (1 if sums is None else sums.groups[of.columns].count)
        self.table = np.array([[0] * PHASES, *self._table(reads=True), *self._table(reads=False)])
        """Rows of a memory that are read, then those that are written, by the number of a row modulo `PHASES`."""
        self.lags = slice(1, 1 + max(AHEAD))
        begins = np.cumsum([self.lags.stop, self.inner.read_at[-1], self.outer.read_at[-1]]).tolist()
        self.known = [slice(*pair) for pair in pairwise(begins)]
        """Of what is read, the parts of both sums."""
        begins = np.cumsum([1, self.inner.write_at[-1], self.outer.write_at[-1]]).tolist()
        self.new = [slice(*pair) for pair in pairwise(begins)]
        """The same of what is written."""
        self.memory = np.zeros((0, self.features), np.float32)
        self.numbers: Places = np.zeros(0, np.int64)
        """Of the next row of each series."""
        self.free: list[int] = []
        self.dropped: dict[int, finalize[[int], Fusion]] = {}
        """What frees the place of a series that nobody has any more."""

    @property
    def _sums(self) -> tuple[RunningSums, RunningSums]:
        return self.inner, self.outer

    def _table(self, *, reads: bool) -> Iterator[list[int]]:
        """Where what is read or written lies: values before the next row, and both sums."""
        for age in range(1, max(AHEAD) + 1) if reads else [0]:
            yield self._place((None, 0, 0), age, 1, 0)
        for sums in self._sums:
            for columns, level, age in sums.reads if reads else sums.writes:
                count = sums.groups[columns].count
                for column in range(count):
                    yield self._place((sums, columns, level), age, count, column)

    def _place(self, ring: Ring, age: int, count: int, column: int) -> list[int]:
        begin, length = self.rings[ring]
        return [begin + (number - age) % length * count + column for number in range(PHASES)]

    def _groups(self, fusion: Fusion) -> Iterator[tuple[RunningSums, int, MovingMeans]]:
        """What is summed up here, and what has it elsewhere."""
        yield self.outer, 0, fusion.means
        yield self.inner, len(self.inner.groups) - 1, fusion.views.means
        if fusion.views.residuals is not None:
            yield self.inner, 0, fusion.views.residuals

    def enter(self, fusion: Fusion) -> int:
        """Take over the memory of a series; its place."""
        if not self.free:
            self._grow()
        place, views = self.free.pop(), fusion.views
        if views.level is not None:
            self.memory[place * self.rows] = views.level.median
        self._ring(place, (None, 0, 0), 1)[(fusion.number - np.arange(max(AHEAD), 0, -1)) % PAST, 0] = views.past.T
        for sums, group, means in self._groups(fusion):
            assert means.context is not None
            count = sums.groups[group].count
            rows = np.ascontiguousarray(means.context.T).reshape(-1, count, self.features)
            for level in range(sums.levels_of(group)):
                ring = self._ring(place, (sums, group, level), count)
                some = min(len(ring), len(rows))
                ring[(fusion.number - np.arange(some, 0, -1)) % len(ring)] = rows[len(rows) - some :]
                rows = rows[: -(1 << level)] + rows[1 << level :]
            means.context = None
        self.numbers[place] = fusion.number
        fusion.lent, fusion.place = self, place
        self.dropped[place] = finalize(fusion, self.free.append, place)
        return place

    def leave(self, fusion: Fusion) -> None:
        """Give the memory back."""
        place, views = fusion.place, fusion.views
        number = int(self.numbers[place])
        for sums, group, means in self._groups(fusion):
            ring = self._ring(place, (sums, group, 0), sums.groups[group].count)
            kept = ring[(number - np.arange(sums.groups[group].kept, 0, -1)) % len(ring)]
            means.context = np.ascontiguousarray((kept[:, 0] if means is views.residuals else kept).T)
            means.seen += number - fusion.number
        past = self._ring(place, (None, 0, 0), 1)[(number - np.arange(max(AHEAD), 0, -1)) % PAST, 0]
        views.past, fusion.number = np.ascontiguousarray(past.T), number
        if views.level is not None:
            views.level.number = number
        fusion.lent = None
        self.dropped.pop(place)()

    def _ring(self, place: int, ring: Ring, count: int) -> Floats:
        """(length,count,F) of a series."""
        begin, length = self.rings[ring]
        begin += place * self.rows
        return self.memory[begin : begin + length * count].reshape(length, count, self.features)

    def _grow(self) -> None:
        """Room for more; places are taken from the first on."""
        before, after = len(self.numbers), max(1, 2 * len(self.numbers))
        self.memory = np.concatenate([self.memory, np.zeros(((after - before) * self.rows, self.features), np.float32)])
        self.numbers = np.concatenate([self.numbers, np.zeros(after - before, np.int64)])
        self.free += range(after - 1, before - 1, -1)

    def step(self, fusions: Sequence[Fusion], places: Places, rows: Floats) -> Floats:
        """The next row (S,3F) or (S,2F) of each of some series -> scores (S,1,1)."""
        numbers = self.numbers.take(places)
        self.numbers[places] = numbers + 1
        at = self.table.take(numbers % PHASES, axis=1)
        at += places * self.rows
        reads = self.known[-1].stop
        known = self.memory.take(at[:reads], axis=0)
        new = np.empty((len(at) - reads, len(rows), self.features), np.float32)
        inner, outer = (new[part] for part in self.new)
        x, residual, *shape = rows.reshape(len(rows), -1, self.features).swapaxes(0, 1)
        new[0], inner[0] = x, residual  # the latter is replaced if residuals are not summed up
        views = np.empty((len(VIEWS), len(rows), self.features), np.float32)
        errors = self._errors(known[self.lags], x, views[NEXT_AT:ACTIVITY_AT])
        np.square(errors, out=inner[self.inner.new[0] - 2 : self.inner.new[0]])
        *of_residuals, of_errors = self.inner.step(known[self.known[0]], inner)
        if shape:
            views[SHAPE] = shape[0]
        else:
            np.subtract(residual, of_residuals[0][0][0], out=views[SHAPE])
        np.log(of_errors[0] + FLOOR, out=views[ACTIVITY_AT:-1])
        np.subtract(residual, self._level(fusions, places, numbers, residual, known[0]), out=views[-1])
        squares = outer[: self.count]
        np.subtract(views[: self.count], self.centre, out=squares)
        squares *= self.weight
        np.square(squares, out=squares)
        np.minimum(squares, LARGEST, out=squares)
        (means,) = self.outer.step(known[self.known[1]], outer)
        self.memory[at[reads:]] = new
        roots = np.sqrt(np.stack(means))
        parts = np.add.accumulate(roots, axis=-1)[..., -1] / np.float32(self.features)  # one by one, as in `Fusion`
        return fuse_parts(parts.reshape(-1, len(rows)), self.unit)[0][:, None]

    def _errors(self, past: Floats, x: Floats, out: Floats) -> Floats:
        """Errors (2,S,F) of both predictions, from rows before (lags,S,F), as `prediction_errors` forms them."""
        terms = np.empty((len(NEXT) + 1, *out.shape), np.float32)
        np.subtract(x, self.intercepts, out=terms[0])
        by_lag, *others = past.strides
        strides = (by_lag, (AHEAD[0] - NEXT[0]) * by_lag, *others)
        seen: Floats = np.ndarray((len(NEXT), *out.shape), np.float32, past, (NEXT[0] - 1) * by_lag, strides)
        np.multiply(seen, self.coefficients, out=terms[1:])
        errors: Floats = np.subtract.reduce(terms, axis=0, out=out)
        return errors

    def _level(
        self, fusions: Sequence[Fusion], places: Places, numbers: Places, residual: Floats, known: Floats
    ) -> Floats:
        """The recent level (S,F) of each: as `known`, or a new one; zeros if the level is fixed."""
        for i in np.flatnonzero(numbers % LEVEL_STEP == 0).tolist():
            level = fusions[i].views.level
            if level is not None:
                level.number = int(numbers[i])
                self.memory[places[i] * self.rows] = known[i] = level.step(residual[i])
        return known
