"""Next rows of live series in mode `fusion`: the operations on them, and the arrays that these need."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from at_infer.models.live_memory import NextRows, RowBlock, StepArrays
from at_infer.models.parts import Floats, part_divisor
from at_infer.models.pattern_distances import PatternDistances
from at_infer.models.running_sums import Operation, StoredSum, SummedColumns
from at_infer.models.view_sums import ACTIVITY_VIEWS, LARGEST
from at_infer.models.views import ACTIVITY_AT, AHEAD, FLOOR, NEXT, NEXT_AT, VIEWS

if TYPE_CHECKING:
    from at_infer.models.fusion_together import Steady

SHAPE = VIEWS.index("shape")


class LiveStep:
    """One step of next rows: without a call to make an array, or a part of one.

    Operations are those of `SeriesViews.add` and `Fusion.score_views`, on arrays (...,n,F) of n series or rows.
    """

    def __init__(self, steady: "Steady", series: int, rows: int) -> None:
        """Of the next row of each of some series, or of some rows of one."""
        count, features = series * rows, steady.features

        def room(*shape: int) -> Floats:
            return np.empty((*shape, count, features), np.float32)

        self.arrays = arrays = (NextRows if rows == 1 else RowBlock)(steady.layout, count, features)
        self.load, self.store, self.level, x = arrays.load, arrays.store, arrays.level, arrays.x
        views = room(len(VIEWS))
        errors, (inner, outer) = views[NEXT_AT:ACTIVITY_AT], arrays.stored
        sums_shape = len(steady.inner.groups) > 1
        self.residual = inner[StoredSum(0, 1, 0)][0] if sums_shape else room()
        self.given = [x, self.residual, *([] if sums_shape else [views[SHAPE]])]
        """Where the parts of a row go."""
        adding, sums = steady.inner.prepare(inner)
        (activity_sum,), activity, width = sums[-1], room(2), np.float32(steady.inner.groups[-1].widths[0])
        self.before_level: list[Operation] = [
            *_predict(arrays, steady, errors),
            (np.square, (errors, inner[StoredSum(len(steady.inner.groups) - 1, 1, 0)])),
            *adding,
            *(_shape(steady.inner.groups[0], sums[0], self.residual, views) if sums_shape else []),
            (np.divide, (activity_sum, width, activity)),
            (np.add, (activity, FLOOR, activity)),
            (np.log, (activity, views[ACTIVITY_AT:-1])),
        ]
        counted, of_views = steady.count, len(steady.centre)
        squares, more = np.split(outer[StoredSum(0, 1, 0)], [counted])
        deviations, distances = np.split(squares, [of_views])
        signed = [(np.positive, (squares[ACTIVITY_VIEWS], more))] if steady.explain else []
        adding, (sums_of_squares,) = steady.outer.prepare(outer)
        self.activity = sums_of_squares[0][counted:]
        self.roots = roots = room(steady.widths, counted)
        self.parts = np.empty((steady.widths * counted, count), np.float32)
        by_feature = np.empty((features, self.parts.size), np.float32)
        divisors = part_divisor(np.array(steady.outer.groups[0].widths, np.float32), features)
        divisor = np.repeat(divisors, counted)[:, None]
        self.behind_level: list[Operation] = [
            (np.subtract, (self.residual, self.level, views[-1])),
            (np.subtract, (views[:of_views], _of_each(steady.centre, count), deviations)),
            (np.multiply, (deviations, _of_each(steady.weight, count), deviations)),
            *signed,
            (np.square, (deviations, deviations)),
            *(_compare(arrays, steady.patterns, distances) if steady.patterns is not None else []),
            (partial(np.minimum, out=squares), (squares, LARGEST)),
            *adding,
            *((np.sqrt, (of_width[:counted], root)) for of_width, root in zip(sums_of_squares, roots, strict=True)),
            (np.copyto, (by_feature, roots.reshape(-1, features).T)),
            (np.add.reduce, (by_feature, 0, None, self.parts.reshape(-1))),  # one by one
            (np.divide, (self.parts, divisor, self.parts)),
        ]


def _shape(group: SummedColumns, sums: list[Floats], residual: Floats, views: Floats) -> Iterator[Operation]:
    """Residuals without the mean of those before them."""
    (total,), mean = sums, np.empty_like(residual)
    yield np.divide, (total[0], np.float32(group.widths[0]), mean)
    yield np.subtract, (residual, mean, views[SHAPE])


def _predict(arrays: StepArrays, steady: "Steady", errors: Floats) -> Iterator[Operation]:
    """Errors (2,n,F) of both predictions, from rows before, as `prediction_errors` forms them."""
    terms = np.empty((len(NEXT) + 1, *errors.shape), np.float32)
    shape, by_lag = (len(NEXT), *errors.shape), -arrays.by_lag
    seen: Floats = as_strided(
        arrays.before, shape, (by_lag, (AHEAD[0] - NEXT[0]) * by_lag, *arrays.before.strides), writeable=False
    )
    yield np.subtract, (arrays.x, _of_each(steady.intercepts, len(arrays.x)), terms[0])
    yield np.multiply, (seen, _of_each(steady.coefficients, len(arrays.x)), terms[1:])
    yield np.subtract.reduce, (terms, 0, None, errors)


def _compare(arrays: StepArrays, patterns: PatternDistances, distances: Floats) -> Iterator[Operation]:
    """Squared distances (V,n,F) of each row, with those before it, to normal patterns."""
    rows = np.empty((*arrays.x.T.shape, patterns.nearest.rows), np.float32)  # (F,n,R)
    shape, by_lag = (patterns.nearest.rows - 1, *arrays.before.shape), -arrays.by_lag
    seen: Floats = as_strided(arrays.before, shape, (by_lag, *arrays.before.strides), writeable=False)
    yield np.copyto, (rows[..., -1], arrays.x.T)
    yield np.copyto, (rows[..., -2::-1], seen.T)
    yield partial(patterns.of_stretches, out=distances.transpose(2, 0, 1)), (rows,)


def _of_each(constants: Floats, count: int) -> Floats:
    """(...,1,F) -> (...,n,F): numpy walks through equal shapes in one go."""
    return np.repeat(constants, count, axis=-2)


def run(operations: list[Operation]) -> None:
    """One after the other."""
    for function, arrays in operations:
        function(*arrays)
