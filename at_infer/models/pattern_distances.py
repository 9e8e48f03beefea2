"""Distances of a series to the normal patterns of a model, row by row, in units of validation rows. Pure numpy."""

from functools import lru_cache

import numpy as np

from at_infer.models.patterns import PATTERN_VIEWS, Floats, Patterns, decode
from at_infer.models.patterns_of_one import PatternsOfOne
from at_infer.models.patterns_of_several import MEAN_ROWS, PatternsOfSeveral
from at_infer.models.views import FLOOR, Remembering, append


@lru_cache(maxsize=4)
def known_patterns(text: str, features: int, rows: int) -> Patterns:
    """Of a model, all series of which share them; `ConfigError` if the text is not of so many features and rows."""
    if features == 1:
        return PatternsOfOne(decode(text, (1, len(PATTERN_VIEWS), -1, rows)))
    return PatternsOfSeveral(decode(text, (-1, rows // MEAN_ROWS, features)))


class PatternDistances(Remembering):
    """Squared distances of one series in units of their mean on validation rows, row by row."""

    kept = ("past", "seen")

    def __init__(self, nearest: Patterns, unit: Floats, *, causal: bool) -> None:
        """`unit` (F,V) is the root of that mean. A causal distance is that of a row and those before it."""
        self.nearest, self.after = nearest, 0 if causal else nearest.rows - 1 - nearest.rows // 2
        """Rows behind a row that its distance depends on."""
        self.weight: Floats = np.asarray(1 / np.square(unit), np.float32)[..., None]
        self.past = np.zeros((nearest.features, nearest.rows - 1), np.float32)
        self.last = np.ones((nearest.features, len(nearest.views), 1), np.float32)
        """Of the last row that has one, for those behind it; rows too near to the beginning count as normal."""
        self.seen = 0

    def add(self, x: Floats, *, end: bool = False) -> Floats:
        """Scaled rows (F,n) -> of the rows (F,V,m) that are known now; at the end the last one stands for the rest."""
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
        """Of rows, each with those before it (F,n,R), whose series has enough of them -> (F,V,n)."""
        np.multiply(self.nearest.of_stretches(stretches), self.weight, out=out)


def measure_patterns(nearest: Patterns, parts: list[Floats]) -> dict[str, list[float]]:
    """Root mean square of the distances of validation rows, parts (F,n), by view."""
    total, count = np.zeros((nearest.features, len(nearest.views))), 0
    for part in parts:
        if part.shape[-1] >= nearest.rows:
            total += (found := nearest.squared_distances(part)).sum(axis=-1, dtype=np.float64)
            count += found.shape[-1]
    if nearest.one_unit:
        total[:] = total.mean(axis=0)
    unit = np.sqrt(total / max(1, count) + FLOOR * nearest.numbers)
    return dict(zip(nearest.views, unit.T.tolist(), strict=True))
