"""How far the last rows of a feature are from the nearest of its normal patterns. Pure numpy.

Rows are compared without their level, and a second time also divided by their standard deviation.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from at_infer.models.patterns import LARGEST, PATTERN_VIEWS, Floats, PatternView
from at_infer.models.row_products import block_rows

LEAST_HEIGHT = np.float32(0.05)
"""Rows with a lower standard deviation, in that of the training part, are not made higher than noise."""
SUMS = 16
"""Columns of a product that is a sum in each of them: with fewer, it would not be a product of matrices for a BLAS."""


class PatternsOfOne:
    """Normal patterns of each feature by itself."""

    views: tuple[PatternView, ...] = PATTERN_VIEWS
    one_unit = False

    def __init__(self, patterns: Floats) -> None:
        """Centred patterns, then such that are divided by their standard deviation as well: (F,2,K,R)."""
        self.features, _, self.count, self.rows = patterns.shape
        self.numbers = self.rows
        both = patterns.reshape(self.features, -1, self.rows)
        self.centre: Floats = (np.eye(self.rows) - 1 / self.rows).astype(np.float32)
        self.ones = np.ones((self.rows, SUMS), np.float32)
        self.products: Floats = np.ascontiguousarray(-2 * both.swapaxes(1, 2))[:, None]  # (F,1,R,2K)
        self.squares: Floats = np.square(patterns).sum(axis=-1)[:, :, None, None]  # (F,2,1,1,K)
        self.block = block_rows([self.centre, self.ones, self.products[0, 0]])
        """Rows that are compared at once."""

    def squared_distances(self, known: Floats) -> Floats:
        """Rows (F,R-1+n) -> of each of the last n, with those before it, to its nearest pattern (F,2,n)."""
        if known.shape[-1] < self.rows:
            return np.empty((self.features, len(self.views), 0), np.float32)
        return self.of_stretches(sliding_window_view(known, self.rows, axis=-1))

    def of_stretches(self, stretches: Floats) -> Floats:
        """Of some stretches (F,n,R) -> (F,2,n)."""
        count = stretches.shape[1]
        blocks = -(-count // self.block)
        rows = np.zeros((self.features, blocks * self.block, self.rows), np.float32)
        np.clip(stretches, -LARGEST, LARGEST, out=rows[:, :count])
        centred = rows.reshape(self.features, blocks, self.block, self.rows) @ self.centre
        square = (np.square(centred) @ self.ones)[..., :1]
        height = np.maximum(np.sqrt(square / np.float32(self.rows)), LEAST_HEIGHT)
        products = centred @ self.products
        level, form = products[..., : self.count], products[..., self.count :]
        level += self.squares[:, 0]
        form /= height
        form += self.squares[:, 1]
        nearest = [square + level.min(axis=-1, keepdims=True), square / np.square(height) + form.min(-1, keepdims=True)]
        found: Floats = np.stack(nearest, axis=1).reshape(self.features, len(self.views), -1)[..., :count]
        return np.maximum(found, np.float32(0))
