"""The gap statistic: a threshold between two clusters of scores, if there are two."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from at_infer.errors import ConfigError

GAP_POINTS, GAP_REFERENCES = 20_001, 10
GAP_FLOOR = 1e-12  # of logarithms: scores below count as this: a softmax that underflows is no cluster of its own


def gap_threshold(levels: Sequence[float], values: Sequence[float], *, logarithmic: bool = False) -> float:
    """The paper's appendix: if the scores form two clusters, the middle between them (Tibshirani's gap statistic).

    Clusters are looked for in the scores that the quantiles stand for, as K-means does, or in their logarithms.
    """
    x = np.interp(np.linspace(0, 1, GAP_POINTS), levels, values)
    if logarithmic:
        x = np.log10(np.maximum(x, GAP_FLOOR))
    if x[0] == x[-1]:
        raise ConfigError("threshold: all validation scores are equal, there are no two clusters; give a ratio")
    # Within [0, 1], so that sums of squares of nearly equal scores do not drown in rounding.
    one, two, at = _dispersion((x - x[0]) / (x[-1] - x[0]))
    rng = np.random.default_rng(0)
    references = [_dispersion(np.sort(rng.uniform(size=GAP_POINTS)))[:2] for _ in range(GAP_REFERENCES)]
    log_one, log_two = np.log(references).T
    gap_one = log_one.mean() - np.log(one)
    gap_two = log_two.mean() - np.log(max(two, 1e-300))
    spread = log_two.std() * np.sqrt(1 + 1 / GAP_REFERENCES)
    if gap_one >= gap_two - spread:
        raise ConfigError("threshold: the validation scores do not form two clusters; give a ratio or a number")
    middle = (x[at - 1] + x[at]) / 2
    return float(10**middle if logarithmic else middle)


def _dispersion(x: NDArray[np.float64]) -> tuple[float, float, int]:
    """Sum of squares of sorted values around one mean, around the best two, and where the second cluster starts."""
    n = np.arange(1, len(x))
    total, squares = np.cumsum(x), np.cumsum(x * x)
    left = squares[:-1] - total[:-1] ** 2 / n
    right = (squares[-1] - squares[:-1]) - (total[-1] - total[:-1]) ** 2 / (len(x) - n)
    best = int(np.argmin(left + right))
    return float(squares[-1] - total[-1] ** 2 / len(x)), float((left + right)[best]), best + 1
