"""Missing values: the policy a model was trained with, applied to one series block by block."""

from collections.abc import Sequence
from typing import Any

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

    def apply(self, block: Rows, *, complete: bool = False) -> None:
        """Fill (rows, F), unless it is complete; with policy `error` gaps stay as they are."""
        if self.fill == "error" or not len(block):
            return
        for j in [] if complete else np.flatnonzero(np.isnan(block).any(axis=0)):
            column = block[:, j]
            if self.fill == "mean":
                column[np.isnan(column)] = self.mean[j]
            else:
                known = np.maximum.accumulate(np.where(np.isnan(column), -1, np.arange(len(column))))
                column[:] = np.where(known < 0, self.last[j], column[known])
        self.last = block[-1].copy()


PATIENCE = 25
"""Rows that a value may be missing, and is filled by the model's policy, before its feature counts as missing."""
SETTLE = 74
"""Rows that a feature stays left out at most after it is back: as far as views look back, but for the level."""
TOLD_AFTER = 10
"""Rows without a value after which a stream says that a feature is missing."""


class MissingFeatures:
    """Which features of one stretch are missing in which rows, and so left out of the score.

    With fill `error` a feature is missing at once, otherwise after `PATIENCE` rows. When it comes back, it stays left
    out for as many rows as it was missing, `SETTLE` at most: what looks back still sees filled values.
    """

    def __init__(self, fill: Fill, features: int) -> None:
        self.patience = 0 if fill == "error" else PATIENCE
        self.run = np.zeros(features, np.int64)
        """Rows without a value until now."""
        self.settle = np.zeros(features, np.int64)
        """Rows to come that stay left out."""

    def remember(self) -> dict[str, Rows]:
        """State that the mask of later rows depends on."""
        return {"missing.run": self.run.astype(np.float32), "missing.settle": self.settle.astype(np.float32)}

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""
        self.run, self.settle = (kept[f"missing.{name}"].astype(np.int64) for name in ("run", "settle"))

    def mask(self, rows: Rows) -> Rows:
        """1 where a feature of raw rows (n,F) is left out, else 0; never all that have a value."""
        empty = np.isnan(rows)
        found = np.zeros(rows.shape, np.float32)
        for j in np.flatnonzero(empty.any(axis=0) | (self.run > 0) | (self.settle > 0)).tolist():
            run, settle = int(self.run[j]), int(self.settle[j])
            for i, is_empty in enumerate(empty[:, j].tolist()):
                if not is_empty and run > self.patience:
                    settle = max(settle, min(run, SETTLE))
                run = run + 1 if is_empty else 0
                found[i, j] = run > self.patience or settle > 0
                settle = max(0, settle - 1)
            self.run[j], self.settle[j] = run, settle
        nothing = found.all(axis=1)
        found[nothing] = empty[nothing]
        return found
