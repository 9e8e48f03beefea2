"""Training rows in place: missing values filled, features scaled by the statistics of the training part."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.models.statistics import Scaler
from at_infer.tables import Table

Rows = NDArray[np.float32]
Span = tuple[int, int]  # first row and one past the last

BLOCK_CELLS = 1 << 18  # cells looked at together, so that float64 copies and masks stay small


def fill_forward(table: Table, spans: list[Span]) -> None:
    """Repeat the last known value of the same span, in place; what is missing at its start stays so."""
    firsts = np.array([first for first, _ in spans])
    for j in np.flatnonzero(count_missing(table.values)):
        column = table.values[:, j]
        last_known = -1
        for start in range(0, len(column), BLOCK_CELLS):
            row = np.arange(start, min(start + BLOCK_CELLS, len(column)))
            known = np.where(np.isnan(column[row]), -1, row)
            known[0] = max(known[0], last_known)
            known = np.maximum.accumulate(known)
            last_known = known[-1]
            series_first = firsts[np.searchsorted(firsts, row, side="right") - 1]
            column[row] = np.where(known >= series_first, column[known], np.nan)


def fit_scaler(table: Table, spans: list[Span]) -> Scaler:
    """Mean and standard deviation of the values known in the training part; a constant column keeps its unit."""
    features = len(table.columns)
    count, mean, variance = np.zeros(features, np.int64), np.zeros(features), np.zeros(features)
    low, high = np.full(features, np.inf), np.full(features, -np.inf)
    for block in blocks(table.values, spans):
        count += (~np.isnan(block)).sum(axis=0)
        mean += np.nansum(block, axis=0, dtype=np.float64)
        low, high = np.fmin(low, np.fmin.reduce(block)), np.fmax(high, np.fmax.reduce(block))
    for name, known in zip(table.columns, count, strict=True):
        if known == 0:
            raise DataError(
                f"{table.source}: column {name!r} has no value in the training part; leave it out with exclude={name!r}"
            )
    mean /= count
    for block in blocks(table.values, spans):
        variance += np.nansum(np.square(block - mean), axis=0)
    constant = low == high
    mean = np.where(constant, low, mean)
    scale = np.where(constant, 1.0, np.sqrt(variance / count))
    return Scaler(mean=mean.tolist(), scale=scale.tolist())


def scale_rows(table: Table, scaler: Scaler) -> None:
    """Scale in place, in float32 as the exported graph does it; a value still missing becomes the mean, which is 0."""
    mean, scale = np.asarray(scaler.mean, np.float32), np.asarray(scaler.scale, np.float32)
    for block in blocks(table.values, [(0, len(table.values))]):
        missing = np.isnan(block)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            block -= mean
            block /= scale
        block[missing] = 0.0
        if not np.isfinite(block).all():
            name = table.columns[int(np.argmin(np.isfinite(block).all(axis=0)))]
            raise DataError(
                f"{table.source}: column {name!r} is too large or too small to be scaled in float32; "
                f"multiply it by a constant"
            )


def count_missing(values: Rows) -> NDArray[np.int64]:
    """Of each feature."""
    count = np.zeros(values.shape[1], np.int64)
    for block in blocks(values, [(0, len(values))]):
        count += np.isnan(block).sum(axis=0)
    return count


def blocks(values: Rows, spans: list[Span]) -> Iterator[Rows]:
    """Views of a limited number of cells, in order, over the given spans."""
    rows = max(1, BLOCK_CELLS // values.shape[1])
    for first, end in spans:
        for start in range(first, end, rows):
            yield values[start : min(start + rows, end)]
