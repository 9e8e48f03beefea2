"""From validation scores to the threshold delta above which a point is an anomaly."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Threshold, check_ratio
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
    check_ratio(ratio)
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


def quantile_threshold(levels: Sequence[float], values: Sequence[float], ratio: float) -> float:
    """The threshold that a share `ratio` of the validation scores exceeds, from their kept quantiles."""
    check_ratio(ratio)
    return float(np.interp(1 - ratio, levels, values))


GAP_POINTS, GAP_REFERENCES = 20_001, 10
GAP_FLOOR = 1e-12  # scores below count as this: a softmax that underflows is no cluster of its own


def gap_threshold(levels: Sequence[float], values: Sequence[float]) -> float:
    """The paper's appendix: if the scores form two clusters, the middle between them (Tibshirani's gap statistic).

    Clusters are looked for on a logarithmic scale, as the intervals of the paper's table are, in the scores that the
    quantiles stand for.
    """
    share = np.linspace(0, 1, GAP_POINTS)
    x = np.log10(np.maximum(np.interp(share, levels, values), GAP_FLOOR))
    if x[0] == x[-1]:
        raise ConfigError("threshold: all validation scores are equal, there are no two clusters; pass --ratio")
    # Within [0, 1], so that sums of squares of nearly equal scores do not drown in rounding.
    one, two, at = _dispersion((x - x[0]) / (x[-1] - x[0]))
    rng = np.random.default_rng(0)
    references = [_dispersion(np.sort(rng.uniform(size=GAP_POINTS)))[:2] for _ in range(GAP_REFERENCES)]
    log_one, log_two = np.log(references).T
    gap_one = log_one.mean() - np.log(one)
    gap_two = log_two.mean() - np.log(max(two, 1e-300))
    spread = log_two.std() * np.sqrt(1 + 1 / GAP_REFERENCES)
    if gap_one >= gap_two - spread:
        raise ConfigError("threshold: the validation scores do not form two clusters; pass --ratio or a number")
    return float(10 ** ((x[at - 1] + x[at]) / 2))


def _dispersion(x: NDArray[np.float64]) -> tuple[float, float, int]:
    """Sum of squares of sorted values around one mean, around the best two, and where the second cluster starts."""
    n = np.arange(1, len(x))
    total, squares = np.cumsum(x), np.cumsum(x * x)
    left = squares[:-1] - total[:-1] ** 2 / n
    right = (squares[-1] - squares[:-1]) - (total[-1] - total[:-1]) ** 2 / (len(x) - n)
    best = int(np.argmin(left + right))
    return float(squares[-1] - total[-1] ** 2 / len(x)), float((left + right)[best]), best + 1
