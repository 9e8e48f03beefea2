"""How far the last rows of several features are from the nearest of their normal patterns. Pure numpy.

A stretch is compared by means of five rows, each feature without its level in the stretch, all features together: the
nearest pattern is that of the smallest sum over them. What then remains of a feature is its own distance.
"""

import numpy as np

from at_infer.models.patterns import LARGEST, Floats, PatternView
from at_infer.models.row_products import block_rows

MEAN_ROWS = 5
"""Of one number of a pattern: shorter changes are for the linear views."""
NUMBERS_AT_ONCE = 131_072
"""Of stretches that are compared: half a megabyte, which stays in the cache."""


class PatternsOfSeveral:
    """Normal patterns of all features together."""

    views: tuple[PatternView, ...] = ("pattern",)
    one_unit = True

    def __init__(self, patterns: Floats) -> None:
        """Means of five rows each, without the level of the stretch: (K,S,F)."""
        count, self.numbers, self.features = patterns.shape
        self.rows = MEAN_ROWS * self.numbers
        self.patterns: Floats = np.ascontiguousarray(patterns.reshape(count, -1))
        self.products: Floats = np.ascontiguousarray(-2 * self.patterns.T)
        self.squares: Floats = np.square(self.patterns).sum(axis=-1)
        self.block = block_rows([self.products])
        """Stretches that are multiplied at once."""
        self.at_once = max(1, NUMBERS_AT_ONCE // self.patterns.shape[1] // self.block) * self.block

    def squared_distances(self, known: Floats) -> Floats:
        """Rows (F,R-1+n) -> of each of the last n, with those before it, to the nearest pattern (F,1,n)."""
        count = known.shape[-1] - self.rows + 1
        if count < 1:
            return np.empty((self.features, len(self.views), 0), np.float32)
        known = np.clip(known, -LARGEST, LARGEST)
        sums = known[:, : 1 - MEAN_ROWS].copy()
        for k in range(1, MEAN_ROWS):
            sums += known[:, k : sums.shape[1] + k]
        found = np.empty((self.features, len(self.views), count), np.float32)
        for first in range(0, count, self.at_once):
            part = slice(first, min(first + self.at_once, count))
            shifted = [sums[:, part.start + k : part.stop + k] for k in range(0, self.rows, MEAN_ROWS)]
            found[..., part] = self._of_sums(np.stack(shifted))
        return found

    def of_stretches(self, stretches: Floats) -> Floats:
        """Of some stretches (F,n,R) -> (F,1,n)."""
        rows = np.clip(stretches, -LARGEST, LARGEST).transpose(2, 0, 1)
        sums = rows[::MEAN_ROWS].copy()
        for k in range(1, MEAN_ROWS):
            sums += rows[k::MEAN_ROWS]
        return self._of_sums(sums)

    def _of_sums(self, sums: Floats) -> Floats:
        """Sums of five rows (S,F,n), which become means without their level -> (F,1,n)."""
        sums /= np.float32(MEAN_ROWS)
        sums -= np.add.reduce(sums, axis=0) / np.float32(self.numbers)  # one by one
        count = sums.shape[-1]
        blocks = -(-count // self.block)
        rows = np.zeros((blocks * self.block, self.numbers * self.features), np.float32)
        rows[:count] = sums.reshape(-1, count).T
        products = rows.reshape(blocks, self.block, -1) @ self.products
        products += self.squares
        nearest = products.argmin(axis=-1).reshape(-1)[:count]
        rest = rows[:count]
        rest -= self.patterns[nearest]
        np.square(rest, out=rest)
        found = rest[:, : self.features].copy()
        for first in range(self.features, rest.shape[1], self.features):
            found += rest[:, first : first + self.features]
        return found.T[:, None]
