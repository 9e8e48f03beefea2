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

from at_infer.models.blame import ACTIVITIES, explain
from at_infer.models.fusion import Floats, Fusion, fuse_parts
from at_infer.models.live_step import LiveStep, run
from at_infer.models.row_sums import row_sums
from at_infer.models.running_sums import PHASES, RunningSums, SummedColumns
from at_infer.models.views import AHEAD, LEVEL_STEP, MovingMeans

Places = NDArray[np.int64]
Ring = tuple[RunningSums | None, int, int]
"""Sums, group and width; without sums it is that of scaled values."""

TOGETHER = 32
"""Series whose next rows are worked on at once."""
FEW_ROWS = 4
"""Up to this many rows of a series are worked on one by one."""
PAST = 32
"""Rows of a ring of scaled values: predictions look back at fewer, and the length must divide `PHASES`."""


class Together:
    """The last step of series that have the same settings."""

    def __init__(self) -> None:
        self.steady: Steady | None = None

    def add(self, fusions: Sequence[Fusion], parts: Sequence[Floats]) -> list[Floats]:
        """The next rows (n,3F) or (n,2F) of several series -> rows (m,C) of each that are final, as `Fusion.add`."""
        found: dict[int, Floats] = {}
        if len(fusions) > 1 and len(set(map(id, fusions))) == len(fusions):  # one series may come twice, in order
            single = [i for i, part in enumerate(parts) if len(part) == 1 and fusions[i].is_steady]
            if single and np.isnan(np.concatenate([parts[i] for i in single]).min()):
                single = [i for i in single if not np.isnan(parts[i].min())]
            if single:
                scores = self.step([fusions[i] for i in single], np.concatenate([parts[i] for i in single]))
                found = dict(zip(single, scores[:, None], strict=True))
        return [found[i] if i in found else self._add(fusions[i], part) for i, part in enumerate(parts)]

    def _add(self, fusion: Fusion, rows: Floats) -> Floats:
        if not (0 < len(rows) <= FEW_ROWS and fusion.is_steady) or np.isnan(rows.min()):
            return fusion.add(rows)
        found = [self.step([fusion], rows[i : i + 1]) for i in range(len(rows))]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def step(self, fusions: Sequence[Fusion], rows: Floats) -> Floats:
        """The next row (S,3F) or (S,2F) of each of some series that are steady -> (S,C); none is NaN."""
        if self.steady is None:
            self.steady = Steady(fusions[0])
        for fusion in fusions:
            if fusion.lent is None:
                self.steady.enter(fusion)
        with np.errstate(over="ignore", invalid="ignore"):
            if len(rows) <= TOGETHER:
                return self.steady.step(fusions, rows)
            parts = [slice(i, i + TOGETHER) for i in range(0, len(rows), TOGETHER)]
            return np.concatenate([self.steady.step(fusions[part], rows[part]) for part in parts])


class Steady:
    """Memories of series that are steady: for each some rows (F,) of one array, most of them in rings."""

    def __init__(self, like: Fusion) -> None:
        """Of series that have the settings of this one."""
        views, self.features, self.unit, self.weights = like.views, like.features, like.unit, like.weights
        of_features = like.normalised.centre, like.normalised.weight  # (F,V,1)
        self.centre, self.weight = (np.ascontiguousarray(part.transpose(1, 2, 0)) for part in of_features)
        self.count, self.widths = len(self.centre), len(like.widths)
        """Views that count, and widths of each."""
        coefficients = np.stack([own.T for own, _ in like.predictions], axis=1)[:, :, None]  # (p+1,2,1,F)
        self.intercepts, self.coefficients = coefficients[-1].copy(), coefficients[:-1].copy()
        residuals = [] if views.residuals is None else [SummedColumns(1, views.residuals.spans)]
        self.inner = RunningSums([*residuals, SummedColumns(2, views.means.spans)])
        """Of residuals and of squared errors of prediction."""
        self.explain = like.explain
        self.outer = RunningSums(
            [SummedColumns(self.count + (len(ACTIVITIES) if like.explain else 0), like.means.spans)]
        )
        """Of squared deviations, and of signed ones of activity if scores are explained."""
        self.rings: dict[Ring, tuple[int, int]] = {(None, 0, 0): (1, PAST)}
        """Where each begins in the memory of a series, behind the recent level, and its length."""
        self.rows = 1 + PAST
        for sums in self._sums:
            for of in sums.writes:
                self.rings[sums, of.columns, of.width] = self.rows, sums.length(of)
                self.rows += sums.length(of) * sums.groups[of.columns].size
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
        self.free: list[int] = []
        self.dropped: dict[int, finalize[[int], Fusion]] = {}
        """What frees the place of a series that nobody has any more."""
        self.entered: dict[int, int] = {}
        """Number of the row that each series came with."""
        self.work: dict[int, LiveStep] = {}
        """By the number of series."""

    @property
    def _sums(self) -> tuple[RunningSums, RunningSums]:
        return self.inner, self.outer

    def _table(self, *, reads: bool) -> Iterator[list[int]]:
        """Where what is read or written lies: values before the next row, and both sums."""
        for age in range(1, max(AHEAD) + 1) if reads else [0]:
            yield self._place((None, 0, 0), age, 1, 0)
        for sums in self._sums:
            for columns, width, age in sums.reads if reads else sums.writes:
                count = sums.groups[columns].size
                for column in range(count):
                    yield self._place((sums, columns, width), age, count, column)

    def _place(self, ring: Ring, age: int, count: int, column: int) -> list[int]:
        begin, length = self.rings[ring]
        return [begin + (number - age) % length * count + column for number in range(PHASES)]

    def _groups(self, fusion: Fusion) -> Iterator[tuple[RunningSums, int, MovingMeans]]:
        """What is summed up here, and what has it elsewhere."""
        yield self.outer, 0, fusion.means
        yield self.inner, len(self.inner.groups) - 1, fusion.views.means
        if fusion.views.residuals is not None:
            yield self.inner, 0, fusion.views.residuals

    def enter(self, fusion: Fusion) -> None:
        """Take over the memory of a series."""
        if not self.free:
            self._grow()
        place, views = self.free.pop(), fusion.views
        if views.level is not None:
            self.memory[place * self.rows] = views.level.median
        self._ring(place, (None, 0, 0), 1)[(fusion.number - np.arange(max(AHEAD), 0, -1)) % PAST, 0] = views.past.T
        for sums, group, means in self._groups(fusion):
            assert means.context is not None
            count = sums.groups[group].size
            rows = np.ascontiguousarray(means.context.T).reshape(-1, count, self.features)
            widths = frozenset(own.width for own in sums.writes if own.columns == group)
            known = row_sums(rows, widths)
            for width in widths:
                ring = self._ring(place, (sums, group, width), count)
                some = min(len(ring), len(known[width]))
                ring[(fusion.number - np.arange(some, 0, -1)) % len(ring)] = known[width][len(known[width]) - some :]
            means.context = None
        fusion.lent, fusion.place, self.entered[place] = self, place, fusion.number
        self.dropped[place] = finalize(fusion, self.free.append, place)

    def leave(self, fusion: Fusion) -> None:
        """Give the memory back."""
        place, views, number = fusion.place, fusion.views, fusion.number
        for sums, group, means in self._groups(fusion):
            ring = self._ring(place, (sums, group, 1), sums.groups[group].size)
            kept = ring[(number - np.arange(sums.groups[group].kept, 0, -1)) % len(ring)]
            means.context = np.ascontiguousarray((kept[:, 0] if means is views.residuals else kept).T)
            means.seen += number - self.entered[place]
        past = self._ring(place, (None, 0, 0), 1)[(number - np.arange(max(AHEAD), 0, -1)) % PAST, 0]
        views.past = np.ascontiguousarray(past.T)
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
        before = len(self.memory) // self.rows
        after = max(1, 2 * before)
        grown = np.zeros((after * self.rows, self.features), np.float32)  # pages that nobody writes to take no memory
        grown[: len(self.memory)] = self.memory
        self.memory = grown
        self.free += range(after - 1, before - 1, -1)

    def step(self, fusions: Sequence[Fusion], rows: Floats) -> Floats:
        """The next row (S,3F) or (S,2F) of each of some series -> rows (S,C)."""
        work = self.work.get(len(rows))
        if work is None:
            work = self.work[len(rows)] = LiveStep(self, len(rows))
        numbers = [fusion.number for fusion in fusions]
        if len(rows) == 1:
            np.add(self.table[:, numbers[0] % PHASES, None], fusions[0].place * self.rows, work.at)
        else:
            np.take(self.table, np.array(numbers) % PHASES, 1, work.at)
            work.at += np.array([fusion.place for fusion in fusions]) * self.rows
        self.memory.take(work.reads, 0, work.known, "clip")
        given = rows.reshape(len(rows), -1, self.features)
        for k, part in enumerate(work.given):
            part[...] = given[:, k]
        run(work.before_level)
        for i, (fusion, number) in enumerate(zip(fusions, numbers, strict=True)):
            fusion.number = number + 1
            if number % LEVEL_STEP == 0 and (level := fusion.views.level) is not None:
                level.number = number
                work.level[i] = self.memory[fusion.place * self.rows] = level.step(work.residual[i])
        run(work.behind_level)
        self.memory[work.writes] = work.new
        score, logs = fuse_parts(work.parts, self.weights, self.unit)
        if not self.explain:
            return score
        roots, activity = [root.swapaxes(0, 1) for root in work.roots], work.activity.swapaxes(0, 1)
        return np.concatenate([score, *explain(roots, logs, activity, score)], axis=1)
