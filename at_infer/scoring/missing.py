"""Missing values: the policy a model was trained with, applied to one series block by block."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Fill

Rows = NDArray[np.float32]


class Filler:
    """Fills the gaps (NaN) of one series in place; give it the blocks of the series in order."""

    def __init__(self, fill: Fill, mean: Sequence[float], last: Rows | None = None) -> None:
        self.fill = fill
        self.mean = np.asarray(mean, np.float32)
        # Nothing to repeat at the start of a series: its gaps get the mean.
        self.last = self.mean if last is None else np.where(np.isnan(last), self.mean, last)

    def apply(self, block: Rows) -> None:
        """Fill (rows, F); with policy `error` gaps stay as they are."""
        if self.fill == "error" or not len(block):
            return
        for j in np.flatnonzero(np.isnan(block).any(axis=0)):
            column = block[:, j]
            if self.fill == "mean":
                column[np.isnan(column)] = self.mean[j]
            else:
                known = np.maximum.accumulate(np.where(np.isnan(column), -1, np.arange(len(column))))
                column[:] = np.where(known < 0, self.last[j], column[known])
        self.last = block[-1].copy()
