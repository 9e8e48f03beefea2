"""From validation scores to the threshold delta above which a point is an anomaly."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Threshold
from at_infer.errors import ConfigError, DataError

# Every percent up to 99 %, then ever finer: thresholds live in the last percent.
QUANTILE_LEVELS: tuple[float, ...] = tuple(
    np.unique(
        np.concatenate(
            [
                np.linspace(0.0, 0.99, 100),
                np.linspace(0.99, 0.999, 91),
                np.linspace(0.999, 0.9999, 91),
                np.linspace(0.9999, 1.0, 101),
            ]
        ).round(8)
    ).tolist()
)


def ratio_threshold(scores: NDArray[np.float32], ratio: float) -> float:
    """The smallest threshold that at most a share `ratio` of the scores exceeds (the paper's r)."""
    if not 0 <= ratio < 1:
        raise ConfigError(f"ratio: {ratio:g} is not a share in [0, 1); 0.01 means one percent")
    if not scores.size:
        raise DataError("validation: there are no scores to take a threshold from")
    above = int(ratio * scores.size) + 1
    while above / scores.size > ratio:  # the product is rounded: 0.29 * 100 is less than 29
        above -= 1
    kth = scores.size - 1 - above
    return float(np.partition(scores.ravel(), kth)[kth])


def quantiles(scores: NDArray[np.float32]) -> list[float]:
    """The scores' quantiles at `QUANTILE_LEVELS`."""
    return [float(q) for q in np.quantile(scores.ravel().astype(np.float64), QUANTILE_LEVELS)]


def threshold_from_quantiles(levels: Sequence[float], values: Sequence[float], like: Threshold) -> Threshold:
    """The threshold of the same ratio as `like`, for another score mode whose quantiles were kept."""
    if like.ratio is None:
        raise ConfigError(f"threshold: one found by method {like.method} cannot be carried to another score mode")
    return replace(like, value=float(np.interp(1 - like.ratio, levels, values)))
