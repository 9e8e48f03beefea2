"""Mode `fusion` of live series: the next row of each of many is one step of arrays, and costs a few additions.

What `Fusion` remembers of a series that is steady moves here with its first single row, into rings side by side with
those of other series. It moves back when something else is asked of it. The scores are the same to the last bit: every
number is formed by the operations of `Fusion`, in their order.
"""

from collections.abc import Iterator, Sequence
from weakref import finalize

import numpy as np

from at_infer.models.blame import ACTIVITIES, explain
from at_infer.models.fusion import Floats, Fusion
from at_infer.models.live_memory import Layout, items
from at_infer.models.live_step import LiveStep, run
from at_infer.models.parts import fuse_parts
from at_infer.models.patterns import LIVE_ROWS
from at_infer.models.row_sums import row_sums
from at_infer.models.running_sums import RunningSums, SummedColumns
from at_infer.models.views import AHEAD, LEVEL_STEP, MovingMeans

TOGETHER = 32
"""Series whose next rows are worked on at once."""
FEW_ROWS = 64
"""More rows of a series take the way of files."""
BLOCK = 16
"""Rows of one series that are worked on at once: fewer than those that have one recent level."""


class Together:
    """The last step of series that have the same settings."""

    def __init__(self) -> None:
        self.steady: Steady | None = None

    def add(self, fusions: Sequence[Fusion], parts: Sequence[Floats]) -> list[Floats]:
        """The next rows (n,3F) or (n,2F) of several series -> rows (m,C) of each that are final, as `Fusion.add`."""
        if len(set(fusions)) < len(fusions):  # one series may come twice, in order
            return [self.add([fusion], [part])[0] for fusion, part in zip(fusions, parts, strict=True)]
        few = [
            i
            for i, (fusion, part) in enumerate(zip(fusions, parts, strict=True))
            if 0 < len(part) <= FEW_ROWS and fusion.is_steady and not np.isnan(part.min())
        ]
        found: dict[int, Floats] = {}
        if few:
            scores = self.step([fusions[i] for i in few for _ in parts[i]], np.concatenate([parts[i] for i in few]))
            ends = np.cumsum([len(parts[i]) for i in few[:-1]])
            found = dict(zip(few, np.split(scores, ends), strict=True))
        return [found[i] if i in found else fusions[i].add(part) for i, part in enumerate(parts)]

    def step(self, fusions: Sequence[Fusion], rows: Floats) -> Floats:
        """Next rows (n,3F) or (n,2F), none of them NaN, with the series of each, those of one side by side -> (n,C).

        The series are steady.
        """
        if self.steady is None:
            self.steady = Steady(fusions[0])
        for fusion in fusions:
            if fusion.lent is None:
                self.steady.enter(fusion)
        with np.errstate(over="ignore", invalid="ignore"):
            if len(rows) == 1:
                return self.steady.step(fusions, rows)
            found = [(at, self.steady.step(some, rows[at])) for at, some in _steps(fusions)]
        if len(found) == 1:
            return found[0][1]
        scores = np.empty((len(rows), fusions[0].channels), np.float32)
        for at, part in found:
            scores[at] = part
        return scores


def _steps(fusions: Sequence[Fusion]) -> Iterator[tuple[slice | list[int], Sequence[Fusion]]]:
    """The rows of each step, and their series: next rows of several or some rows of one, whichever are fewer steps."""
    count, single = len(fusions), len(set(fusions)) == len(fusions)
    if single or fusions[0] is fusions[-1]:
        most = TOGETHER if single else BLOCK
        for i in range(0, count, most):
            part = slice(i, i + most)
            yield part, fusions[part] if single else fusions[:1]
        return
    own: dict[Fusion, list[int]] = {}
    for i, fusion in enumerate(fusions):
        own.setdefault(fusion, []).append(i)
    most_rows = max(map(len, own.values()))
    if len(own) < most_rows:
        yield from ((rows[i : i + BLOCK], [fusion]) for fusion, rows in own.items() for i in range(0, len(rows), BLOCK))
        return
    for k in range(most_rows):
        nth = [rows[k] for rows in own.values() if k < len(rows)]
        for i in range(0, len(nth), TOGETHER):
            yield nth[i : i + TOGETHER], [fusions[row] for row in nth[i : i + TOGETHER]]


class Steady:
    """Memories of series that are steady: for each some rows (F,) of one array, most of them in rings."""

    def __init__(self, like: Fusion) -> None:
        """Of series that have the settings of this one."""
        views, self.features, self.unit, self.weights = like.views, like.features, like.unit, like.weights
        of_features = like.normalised.centre, like.normalised.weight  # (F,V,1)
        self.centre, self.weight = (np.ascontiguousarray(part.transpose(1, 2, 0)) for part in of_features)
        self.count, self.widths = like.count, len(like.widths)
        """Views that count, those of patterns among them, and widths of each."""
        self.patterns, self.pattern_views = like.patterns, like.pattern_views
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
        self.layout = Layout([self.inner, self.outer], max(max(AHEAD), LIVE_ROWS - 1))
        self.memory = np.zeros((0, self.features), np.float32)
        self.items = items(self.memory)
        self.free: list[int] = []
        self.dropped: dict[int, finalize[[int], Fusion]] = {}
        """What frees the place of a series that nobody has any more."""
        self.entered: dict[int, int] = {}
        """Number of the row that each series came with."""
        self.work: dict[tuple[int, int], LiveStep] = {}
        """By the numbers of series, and of rows of each."""

    def _groups(self, fusion: Fusion) -> Iterator[tuple[int, int, MovingMeans]]:
        """What is summed up here, and what has it elsewhere."""
        yield 1, 0, fusion.means
        yield 0, len(self.inner.groups) - 1, fusion.views.means
        if fusion.views.residuals is not None:
            yield 0, 0, fusion.views.residuals

    def enter(self, fusion: Fusion) -> None:
        """Take over the memory of a series."""
        if not self.free:
            self._grow()
        place, views, past = self.free.pop(), fusion.views, self.layout.past
        if views.level is not None:
            self.memory[place] = views.level.median
        past.of(self.memory, place)[past.before(fusion.number, past.reach), 0] = views.past.T
        for k, group, means in self._groups(fusion):
            assert means.context is not None
            rings = {width: ring for (of, width), ring in self.layout.rings[k].items() if of == group}
            rows = np.ascontiguousarray(means.context.T).reshape(-1, rings[1].size, self.features)
            known = row_sums(rows, frozenset(rings))
            for width, ring in rings.items():
                some = min(ring.length, len(known[width]))
                ring.of(self.memory, place)[ring.before(fusion.number, some)] = known[width][len(known[width]) - some :]
            means.context = None
        fusion.lent, fusion.place, self.entered[place] = self, place, fusion.number
        self.dropped[place] = finalize(fusion, self.free.append, place)

    def leave(self, fusion: Fusion) -> None:
        """Give the memory back."""
        place, views, number, past = fusion.place, fusion.views, fusion.number, self.layout.past
        for k, group, means in self._groups(fusion):
            ring = self.layout.rings[k][group, 1]
            kept = ring.of(self.memory, place)[ring.before(number, self.layout.sums[k].groups[group].kept)]
            means.context = np.ascontiguousarray((kept[:, 0] if means is views.residuals else kept).T)
            means.seen += number - self.entered[place]
        views.past = np.ascontiguousarray(past.of(self.memory, place)[past.before(number, past.reach), 0].T)
        if fusion.patterns is not None:
            fusion.patterns.past = views.past.copy()
            fusion.patterns.seen += number - self.entered[place]
        if views.level is not None:
            views.level.number = number
        fusion.lent = None
        self.dropped.pop(place)()

    def _grow(self) -> None:
        """Room for more; places are taken from the first on."""
        before, rows = len(self.memory), self.layout.rows
        after = max(rows, 2 * before)
        grown = np.zeros((after, self.features), np.float32)  # pages that nobody writes to take no memory
        grown[:before] = self.memory
        self.memory, self.items = grown, items(grown)
        self.free += range(after - rows, before - 1, -rows)

    def step(self, fusions: Sequence[Fusion], rows: Floats) -> Floats:
        """Next rows (n,3F) or (n,2F), one of each of some series or some of one -> rows (n,C)."""
        series, count = len(fusions), len(rows) // len(fusions)
        work = self.work.get((series, count))
        if work is None:
            work = self.work[series, count] = LiveStep(self, series, count)
        work.load(self.items, [fusion.number for fusion in fusions], [fusion.place for fusion in fusions])
        given = rows.reshape(len(rows), -1, self.features)
        for k, part in enumerate(work.given):
            part[...] = given[:, k]
        run(work.before_level)
        for i, fusion in enumerate(fusions):
            waits = -fusion.number % LEVEL_STEP
            if waits < count and (level := fusion.views.level) is not None:
                first, end = i * count + waits, (i + 1) * count
                level.number = fusion.number + waits
                work.level[first:end] = self.memory[fusion.place] = level.step(work.residual[first])
            fusion.number += count
        run(work.behind_level)
        work.store(self.items)
        score, logs = fuse_parts(work.parts, self.weights, self.unit)
        if not self.explain:
            return score
        roots, activity = work.roots.swapaxes(1, 2), work.activity.swapaxes(0, 1)
        of_rows = explain(roots, logs, activity, score, self.pattern_views)
        return np.concatenate([score, *of_rows], axis=1)
