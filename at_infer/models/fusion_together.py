"""Mode `fusion` of live series: the next row of each of many is one step of arrays, and costs a few additions.

What `Fusion` remembers of a series that is steady moves here with its first single row, into rings side by side with
those of other series. It moves back when something else is asked of it. The scores are the same to the last bit: every
number is formed by the operations of `Fusion`, in their order.
"""

from collections.abc import Sequence
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from at_infer.models.fusion import LARGEST, Floats, Fusion, fuse_parts
from at_infer.models.running_sums import PHASES, RunningSums
from at_infer.models.views import ACTIVITY_AT, AHEAD, FLOOR, LEVEL_STEP, NEXT, NEXT_AT, VIEWS

Places = NDArray[np.int64]

TOGETHER = 32
"""Series whose next rows are worked on at once."""
FEW_ROWS = 4
"""Up to so many rows of a series are worked on one by one."""
PAST = 32
"""Rows of a ring of scaled values: predictions look back at `max(AHEAD)`, and the length must divide `PHASES`."""
SHAPE = VIEWS.index("shape")


class Together:
    """The last step of series that have the same settings."""

    def __init__(self) -> None:
        self.steady: Steady | None = None

    def add(self, fusions: Sequence[Fusion], parts: Sequence[Floats]) -> list[Floats]:
        """The next rows (n,3F) or (n,2F) of several series -> rows (m,C) of each that are final, as `Fusion.add`."""
        if len(fusions) > 1 and len(set(map(id, fusions))) < len(fusions):  # one series may come twice, in order
            return [self.add([fusion], [part])[0] for fusion, part in zip(fusions, parts, strict=True)]
        if len(parts) > 1 and all(len(part) == 1 for part in parts) and all(fusion.is_steady for fusion in fusions):
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
    """Memories of series that are steady."""

    def __init__(self, like: Fusion) -> None:
        """Of series that have the settings of this one."""
        features, views = like.features, like.views
        self.features, self.unit, self.has_level = features, like.unit, views.level is not None
        centre, weight = like.normalised.centre, like.normalised.weight
        self.count = centre.shape[1]
        """Views that count."""
        self.centre, self.weight = centre[..., 0].T.copy(), weight[..., 0].T.copy()
        coefficients = np.stack([own.T for own, _ in like.predictions], axis=1)  # (p+1,2,F)
        self.intercepts, self.coefficients = coefficients[-1].copy(), coefficients[:-1, None].copy()
        self.activity = RunningSums(views.means.spans, 2 * features)
        self.means = RunningSums(like.means.spans, self.count * features)
        self.residuals = None if views.residuals is None else RunningSums(views.residuals.spans, features)
        self.widths = [[np.float32(width) for width in sums.widths] for sums in self._sums()]
        lags = np.arange(1, max(AHEAD) + 1)[:, None]
        self.lags: Places = (np.arange(PHASES) - lags) % PAST
        """(lags, PHASES): where they are in a ring."""
        self.past = np.zeros((0, features), np.float32)
        self.level = np.zeros((0, features), np.float32)
        self.numbers: Places = np.zeros(0, np.int64)
        """Rows of each series since it came here."""
        self.first: Places = np.zeros(0, np.int64)
        """Number of the first of them in its series."""
        self.free: list[int] = []
        self.dropped: dict[int, finalize[[int], Fusion]] = {}
        """What frees the place of a series that nobody has any more."""

    def _sums(self) -> list[RunningSums]:
        return [self.means, self.activity, *([] if self.residuals is None else [self.residuals])]

    def enter(self, fusion: Fusion) -> int:
        """Take over the memory of a series; its place."""
        if not self.free:
            self._grow()
        place, views = self.free.pop(), fusion.views
        self.past[place * PAST :][PAST - max(AHEAD) : PAST] = views.past.T
        for sums, means in zip(self._sums(), fusion.all_means, strict=True):
            assert means.context is not None
            sums.enter(place, np.ascontiguousarray(means.context.T).reshape(sums.kept, -1))
            means.context = None
        self.numbers[place], self.first[place] = 0, fusion.number
        if views.level is not None:
            self.level[place] = views.level.median
        fusion.lent, fusion.place = self, place
        self.dropped[place] = finalize(fusion, self.free.append, place)
        return place

    def leave(self, fusion: Fusion) -> None:
        """Give the memory back."""
        place, views = fusion.place, fusion.views
        number = int(self.numbers[place])
        for sums, means in zip(self._sums(), fusion.all_means, strict=True):
            kept = sums.leave(place, number)
            shape = (sums.kept, self.features) if means is views.residuals else (sums.kept, -1, self.features)
            means.context = np.ascontiguousarray(kept.reshape(shape).T)
            means.seen += number
        ages = np.arange(max(AHEAD), 0, -1)
        views.past = np.ascontiguousarray(self.past[place * PAST + (number - ages) % PAST].T)
        fusion.number += number
        if views.level is not None:
            views.level.number, views.level.median = fusion.number, self.level[place].copy()
        fusion.lent = None
        self.dropped.pop(place)()

    def _grow(self) -> None:
        """Room for more; the places are taken from the first on."""
        before, after = len(self.numbers), max(1, 2 * len(self.numbers))
        for sums in self._sums():
            sums.grow(after)
        for name, rows in (("past", PAST), ("level", 1), ("numbers", 1), ("first", 1)):
            own = getattr(self, name)
            grown = np.zeros((after * rows, *own.shape[1:]), own.dtype)
            grown[: len(own)] = own
            setattr(self, name, grown)
        self.free += range(after - 1, before - 1, -1)

    def step(self, fusions: Sequence[Fusion], places: Places, rows: Floats) -> Floats:
        """The next row (S,3F) or (S,2F) of each of some series -> scores (S,1,1)."""
        numbers = self.numbers.take(places)
        self.numbers[places] = numbers + 1
        phases = numbers % PHASES
        given = rows.reshape(len(rows), -1, self.features)
        x, residual = given[:, 0], given[:, 1]
        views = np.empty((len(rows), len(VIEWS), self.features), np.float32)
        of_means, of_activity, *of_residuals = self.widths
        if self.residuals is None:
            views[:, SHAPE] = given[:, 2]
        else:
            (mean,) = self.residuals.step(places, phases, residual)
            np.divide(mean, of_residuals[0][0], out=mean)
            np.subtract(residual, mean, out=views[:, SHAPE])
        errors = self._errors(places, phases, x, out=views[:, NEXT_AT:ACTIVITY_AT])
        (mean,) = self.activity.step(places, phases, np.square(errors).reshape(len(rows), -1))
        np.divide(mean, of_activity[0], out=mean)
        np.add(mean, FLOOR, out=mean)
        np.log(mean.reshape(errors.shape), out=views[:, ACTIVITY_AT:-1])
        np.subtract(residual, self._level(fusions, places, numbers, residual), out=views[:, -1])
        squares = views[:, : self.count] - self.centre
        squares *= self.weight
        np.square(squares, out=squares)
        np.minimum(squares, LARGEST, out=squares)
        sums = self.means.step(places, phases, squares.reshape(len(rows), -1))
        roots = np.empty((len(rows), len(sums), self.count, self.features), np.float32)
        for k, total in enumerate(sums):
            np.divide(total.reshape(squares.shape), of_means[k], out=roots[:, k])
        np.sqrt(roots, out=roots)
        parts = np.add.accumulate(roots, axis=-1)[..., -1] / np.float32(self.features)  # one by one
        return fuse_parts(parts.reshape(len(rows), -1, 1), self.unit)[0]

    def _errors(self, places: Places, phases: Places, x: Floats, out: Floats) -> Floats:
        """Errors (S,2,F) of both predictions, as `prediction_errors`."""
        ring = places * PAST
        at = self.lags.take(phases, axis=1)
        at += ring
        past = self.past.take(at, axis=0)  # (lags,S,F)
        self.past[ring + phases % PAST] = x
        terms = np.empty((len(NEXT) + 1, *out.shape), np.float32)
        np.subtract(x[:, None], self.intercepts, out=terms[0])
        by_lag, by_series, by_feature = past.strides
        strides = (by_lag, by_series, (AHEAD[0] - NEXT[0]) * by_lag, by_feature)
        seen: Floats = np.ndarray((len(NEXT), *out.shape), np.float32, past, (NEXT[0] - 1) * by_lag, strides)
        np.multiply(seen, self.coefficients, out=terms[1:])
        errors: Floats = np.subtract.reduce(terms, axis=0, out=out)
        return errors

    def _level(self, fusions: Sequence[Fusion], places: Places, numbers: Places, residual: Floats) -> Floats | int:
        """The recent level (S,F) of each."""
        if not self.has_level:
            return 0
        now = self.first.take(places)
        now += numbers
        due = now % LEVEL_STEP == 0
        if due.any():
            for i in np.flatnonzero(due).tolist():
                level = fusions[i].views.level
                assert level is not None
                level.number = int(now[i])
                self.level[places[i]] = level.step(residual[i])
        return self.level.take(places, axis=0)
