"""How far the last rows of a feature are from the nearest of its normal patterns. Pure numpy.

A pattern is the mean of similar stretches of the training part: without its level, and a second time also divided by
its standard deviation. In whole windows a stretch has as many rows as activity is measured over, so that both are known
for the same rows. Live it has half as many, which forget an anomaly that is over sooner. Rows are compared in blocks
(`row_products`), so that a row has the same distance, to the last bit, however many come at once.
"""

from base64 import b64decode, b64encode
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from at_infer.errors import ConfigError
from at_infer.models.row_products import rows_alike
from at_infer.models.views import ACTIVITY, FLOOR, Remembering, append

Floats = NDArray[np.float32]

PatternView = Literal["pattern", "form"]
PATTERN_VIEWS: tuple[PatternView, ...] = get_args(PatternView)
"""Distance without the level, and without level and height."""
WHOLE_ROWS, LIVE_ROWS = ACTIVITY, ACTIVITY // 2
"""Of a pattern, in whole windows and live."""
MOST_PATTERNS = 1024
LEAST_HEIGHT = np.float32(0.05)
"""Rows with a lower standard deviation, in that of the training part, are not made higher than noise."""
LARGEST = np.float32(1e6)
"""Beyond it all rows are as far away as can be."""
SUMS = 16
"""Columns of a product that is a sum in each of them: as a matrix with fewer, it would not be one for a BLAS."""


def encode(patterns: Floats) -> str:
    """(F,2,K,R) as a text for the metadata."""
    return b64encode(np.ascontiguousarray(patterns, "<f4").tobytes()).decode()


def decode(text: str, features: int, rows: int) -> Floats:
    """(F,2,K,R) of so many features and rows; `ConfigError` if the text is something else."""
    try:
        values = np.frombuffer(b64decode(text, validate=True), "<f4").astype(np.float32)
        patterns = values.reshape(features, len(PATTERN_VIEWS), -1, rows)
    except ValueError:
        raise ConfigError(f"patterns: are not those of {features} features") from None
    if not 1 <= patterns.shape[2] <= MOST_PATTERNS or not np.isfinite(patterns).all():
        raise ConfigError(f"patterns: are not 1 to {MOST_PATTERNS}, or not finite")
    return patterns


@lru_cache(maxsize=4)
def known_patterns(text: str, features: int, rows: int) -> "NearestPattern":
    """Of a model, all series of which share them."""
    return NearestPattern(decode(text, features, rows))


class NearestPattern:
    """Normal patterns of each feature."""

    def __init__(self, patterns: Floats) -> None:
        """Centred patterns, then such that are divided by their standard deviation as well: (F,2,K,R)."""
        self.features, _, self.count, self.rows = patterns.shape
        both = patterns.reshape(self.features, -1, self.rows)
        self.centre: Floats = (np.eye(self.rows) - 1 / self.rows).astype(np.float32)
        self.ones = np.ones((self.rows, SUMS), np.float32)
        self.products: Floats = np.ascontiguousarray(-2 * both.swapaxes(1, 2))[:, None]  # (F,1,R,2K)
        self.squares: Floats = np.square(patterns).sum(axis=-1)[:, :, None, None]  # (F,2,1,1,K)
        self.block = rows_alike([self.centre, self.ones, self.products[0, 0]])
        """Rows that are compared at once."""

    def squared_distances(self, known: Floats) -> Floats:
        """Rows (F,R-1+n) -> of each of the last n, with those before it, to its nearest pattern (F,2,n)."""
        if known.shape[-1] < self.rows:
            return np.empty((self.features, len(PATTERN_VIEWS), 0), np.float32)
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
        found: Floats = np.stack(nearest, axis=1).reshape(self.features, len(PATTERN_VIEWS), -1)[..., :count]
        return np.maximum(found, np.float32(0))


class PatternDistances(Remembering):
    """Squared distances of one series in units of their mean on validation rows, row by row."""

    kept = ("past", "seen")

    def __init__(self, nearest: NearestPattern, unit: Floats, *, causal: bool) -> None:
        """`unit` (F,2) is the root of that mean. A causal distance is that of a row and those before it."""
        self.nearest, self.after = nearest, 0 if causal else nearest.rows - 1 - nearest.rows // 2
        """Rows behind a row that its distance depends on."""
        self.weight: Floats = np.asarray(1 / np.square(unit), np.float32)[..., None]
        self.past = np.zeros((nearest.features, nearest.rows - 1), np.float32)
        self.last = np.ones((nearest.features, len(PATTERN_VIEWS), 1), np.float32)
        """Of the last row that has one, for those behind it; rows too near to the beginning count as normal."""
        self.seen = 0

    def add(self, x: Floats, *, end: bool = False) -> Floats:
        """Scaled rows (F,n) -> of the rows (F,2,m) that are known now; at the end the last one stands for the rest."""
        known, self.past = append(self.past, x)
        found = self.nearest.squared_distances(known)
        found *= self.weight
        young = max(0, min(x.shape[-1], self.nearest.rows - 1 - self.seen))
        found[..., :young] = 1
        skipped = max(0, min(x.shape[-1], self.after - self.seen))
        self.seen += x.shape[-1]
        if not self.after:
            return found
        self.last = np.concatenate([self.last, found], axis=-1)[..., -1:]
        found = found[..., skipped:]
        if end:
            found = np.concatenate([found, np.repeat(self.last, min(self.after, self.seen), axis=-1)], axis=-1)
        return found

    def of_stretches(self, stretches: Floats, out: Floats) -> None:
        """Of rows, each with those before it (F,n,R), whose series has enough of them -> (F,2,n)."""
        np.multiply(self.nearest.of_stretches(stretches), self.weight, out=out)


def measure_patterns(nearest: NearestPattern, parts: list[Floats]) -> dict[str, list[float]]:
    """Root mean square of the distances of validation rows, parts (F,n), by view."""
    total, count = np.zeros((nearest.features, len(PATTERN_VIEWS))), 0
    for part in parts:
        if part.shape[-1] >= nearest.rows:
            total += (found := nearest.squared_distances(part)).sum(axis=-1, dtype=np.float64)
            count += found.shape[-1]
    unit = np.sqrt(total / max(1, count) + FLOOR * nearest.rows)
    return dict(zip(PATTERN_VIEWS, unit.T.tolist(), strict=True))
