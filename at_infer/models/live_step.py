"""The next row of each of some live series in mode `fusion`: the arrays that it needs, and the operations on them."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from at_infer.models.fusion import Floats, part_divisor
from at_infer.models.running_sums import Operation, SummedColumns
from at_infer.models.view_sums import ACTIVITY_VIEWS, LARGEST
from at_infer.models.views import ACTIVITY_AT, AHEAD, FLOOR, NEXT, NEXT_AT, VIEWS

if TYPE_CHECKING:
    from at_infer.models.fusion_together import Steady

SHAPE = VIEWS.index("shape")


class LiveStep:
    """Arrays of one step of some series, and the operations on them: without a call to make an array, or a part of one.

    They are those of `SeriesViews.add` and `Fusion.score_views`, on arrays (...,S,F).
    """

    def __init__(self, steady: "Steady", series: int) -> None:
        def room(*shape: int) -> Floats:
            return np.empty((*shape, series, steady.features), np.float32)

        self.at = np.empty((len(steady.table), series), np.int64)
        reads = steady.known[-1].stop
        self.reads, self.writes = self.at[:reads], self.at[reads:]
        self.known, self.new, views = room(reads), room(len(self.writes)), room(len(VIEWS))
        inner, outer = (self.new[part] for part in steady.new)
        sums_shape = len(steady.inner.groups) > 1
        self.level, x, errors = self.known[0], self.new[0], views[NEXT_AT:ACTIVITY_AT]
        self.residual = inner[0] if sums_shape else room()
        self.given = [x, self.residual, *([] if sums_shape else [views[SHAPE]])]
        """Where the parts of a row go."""
        adding, sums = steady.inner.prepare(self.known[steady.known[0]], inner)
        (activity_sum,), activity, width = sums[-1], room(2), np.float32(steady.inner.groups[-1].widths[0])
        self.before_level: list[Operation] = [
            *_predict(self.known[steady.lags], x, steady, errors),
            (np.square, (errors, inner[sums_shape : sums_shape + 2])),
            *adding,
            *(_shape(steady.inner.groups[0], sums[0], self.residual, views) if sums_shape else []),
            (np.divide, (activity_sum, width, activity)),
            (np.add, (activity, FLOOR, activity)),
            (np.log, (activity, views[ACTIVITY_AT:-1])),
        ]
        count = steady.count
        squares, signed = outer[:count], []
        if steady.explain:
            signed = [(np.positive, (squares[ACTIVITY_VIEWS], outer[count : steady.outer.groups[0].size]))]
        adding, (sums_of_squares,) = steady.outer.prepare(self.known[steady.known[1]], outer)
        self.activity = sums_of_squares[0][count:]
        self.roots = roots = room(steady.widths, count)
        total = np.empty(roots.shape, np.float32)
        self.parts = np.empty((steady.widths * count, series), np.float32)
        divisors = part_divisor(np.array(steady.outer.groups[0].widths, np.float32), steady.features)
        divisor = np.repeat(divisors, count)[:, None]
        self.behind_level: list[Operation] = [
            (np.subtract, (self.residual, self.level, views[-1])),
            (np.subtract, (views[:count], steady.centre, squares)),
            (np.multiply, (squares, steady.weight, squares)),
            *signed,
            (np.square, (squares, squares)),
            (partial(np.minimum, out=squares), (squares, LARGEST)),
            *adding,
            *((np.sqrt, (of_width[:count], root)) for of_width, root in zip(sums_of_squares, roots, strict=True)),
            (np.add.accumulate, (roots, -1, None, total)),  # feature by feature
            (np.divide, (total[..., -1].reshape(self.parts.shape), divisor, self.parts)),
        ]


def _shape(group: SummedColumns, sums: list[Floats], residual: Floats, views: Floats) -> Iterator[Operation]:
    """Residuals without the mean of those before them."""
    (total,), mean = sums, np.empty_like(residual)
    yield np.divide, (total[0], np.float32(group.widths[0]), mean)
    yield np.subtract, (residual, mean, views[SHAPE])


def _predict(past: Floats, x: Floats, steady: "Steady", errors: Floats) -> Iterator[Operation]:
    """Errors (2,S,F) of both predictions, from rows before (lags,S,F), as `prediction_errors` forms them."""
    terms = np.empty((len(NEXT) + 1, *errors.shape), np.float32)
    by_lag, *others = past.strides
    shape, strides = (len(NEXT), *errors.shape), (by_lag, (AHEAD[0] - NEXT[0]) * by_lag, *others)
    seen: Floats = as_strided(past[NEXT[0] - 1 :], shape, strides)
    yield np.subtract, (x, steady.intercepts, terms[0])
    yield np.multiply, (seen, steady.coefficients, terms[1:])
    yield np.subtract.reduce, (terms, 0, None, errors)


def run(operations: list[Operation]) -> None:
    """One after the other."""
    for function, arrays in operations:
        function(*arrays)
