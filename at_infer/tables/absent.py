"""Which features have no value in a row, as a column of the output beside the scores."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

Bools = NDArray[np.bool_]

MISSING = "missing_features"
"""Names of the features that a row has no value of; null if it has all."""


def missing_column(missing: Bools, features: Sequence[str]) -> pl.Series:
    """Of rows (n,F)."""
    kind = pl.List(pl.String)
    if not missing.any():
        return pl.Series(MISSING, [None], dtype=kind).new_from_index(0, len(missing))
    patterns, of_row = np.unique(missing, axis=0, return_inverse=True)
    named = [[name for name, is_missing in zip(features, row, strict=True) if is_missing] or None for row in patterns]
    return pl.Series(MISSING, named, dtype=kind).gather(of_row.reshape(-1))


def read_missing(column: pl.Series, features: Sequence[str]) -> Bools:
    """The reverse: rows (n,F)."""
    found = np.zeros((len(column), len(features)), np.bool_)
    there = set(column.explode().drop_nulls().unique())
    for j in (j for j, name in enumerate(features) if name in there):
        found[:, j] = column.list.contains(features[j]).fill_null(value=False).to_numpy()
    return found
