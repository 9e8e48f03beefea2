"""Normal patterns: means of similar stretches of the training part, and how far the last rows are from the nearest.

In whole windows a stretch has as many rows as activity is measured over, so that both are known for the same rows. Live
it has half as many, which forget an anomaly that is over sooner. Of a single feature, rows are compared one by one
(`patterns_of_one`); of several, all features together, by means of a few rows (`patterns_of_several`).
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from at_infer.errors import ConfigError
from at_infer.models.views import ACTIVITY

Floats = NDArray[np.float32]

PatternView = Literal["pattern", "form"]
PATTERN_VIEWS: tuple[PatternView, ...] = get_args(PatternView)
"""Distance without the level, and without level and height."""
WHOLE_ROWS, LIVE_ROWS = ACTIVITY, ACTIVITY // 2
"""Of a pattern, in whole windows and live."""
MOST_PATTERNS = 1024
LARGEST = np.float32(1e6)
"""Beyond it all rows are as far away as can be."""


class Patterns(Protocol):
    """Normal patterns of a model. A row has the same distance, to the last bit, however many come at once."""

    features: int
    rows: int
    """Of a pattern."""
    numbers: int
    """That are compared for each feature, and whose squared differences a distance is the sum of."""
    views: tuple[PatternView, ...]
    """Kinds of distance."""
    one_unit: bool
    """Distances of all features are measured in the same unit."""

    def squared_distances(self, known: Floats) -> Floats:
        """Rows (F,R-1+n) -> of each of the last n, with those before it, to its nearest pattern (F,V,n)."""
        ...

    def of_stretches(self, stretches: Floats) -> Floats:
        """Of some stretches (F,n,R) -> (F,V,n)."""
        ...


def encode(patterns: Floats) -> str:
    """As a text for the metadata."""
    return b64encode(np.ascontiguousarray(patterns, "<f4").tobytes()).decode()


def decode(text: str, shape: Sequence[int]) -> Floats:
    """Patterns of this shape, where -1 is their number; `ConfigError` if the text is something else."""
    try:
        values = np.frombuffer(b64decode(text, validate=True), "<f4").astype(np.float32)
        patterns = values.reshape(shape)
    except ValueError:
        wanted = " x ".join("any number" if size == -1 else str(size) for size in shape)
        raise ConfigError(f"patterns: are not {wanted}") from None
    if not 1 <= patterns.shape[list(shape).index(-1)] <= MOST_PATTERNS or not (np.abs(patterns) <= LARGEST).all():
        raise ConfigError(f"patterns: are not 1 to {MOST_PATTERNS}, or beyond {LARGEST:g}")
    return patterns
