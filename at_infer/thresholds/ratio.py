"""The paper's r: a threshold that a given share of the validation scores exceeds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from at_infer.errors import ConfigError, DataError
from at_infer.models.statistics import Threshold, check_ratio


def ratio_threshold(scores: NDArray[np.float32], ratio: float) -> float:
    """The smallest threshold that at most a share `ratio` of the scores exceeds."""
    check_ratio(ratio)
    if not scores.size:
        raise DataError("validation: there are no scores to take a threshold from")
    above = int(ratio * scores.size) + 1
    while above / scores.size > ratio:  # the product is rounded: 0.29 * 100 is less than 29
        above -= 1
    kth = scores.size - 1 - above
    return float(np.partition(scores.ravel(), kth)[kth])


def quantile_threshold(levels: Sequence[float], values: Sequence[float], ratio: float) -> float:
    """The threshold that a share `ratio` of the validation scores exceeds, from their kept quantiles."""
    check_ratio(ratio)
    return float(np.interp(1 - ratio, levels, values))


def carried_threshold(threshold: Threshold, levels: Sequence[float], values: Sequence[float]) -> Threshold:
    """The threshold of the same ratio for another score mode, whose quantiles were kept."""
    if threshold.ratio is None:
        raise ConfigError(f"threshold: one found by method {threshold.method} cannot be carried to another score mode")
    return replace(threshold, value=quantile_threshold(levels, values, threshold.ratio))
