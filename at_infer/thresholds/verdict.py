"""The verdict: which scores exceed a threshold."""

import numpy as np
from numpy.typing import NDArray


def exceeds(scores: NDArray[np.float32], threshold: float | np.float32) -> NDArray[np.bool_]:
    """Compared in float32, as scores are: the score that became a threshold is not above it, nor is NaN."""
    with np.errstate(invalid="ignore"):
        return scores > np.float32(threshold)
