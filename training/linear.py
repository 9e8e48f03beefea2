"""Linear predictions of a row from earlier ones: ridge regression, each feature by itself."""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float32]

RIDGE = 1e-3
"""Added to the variance of each lag, in squared units of the scaler."""
MOST_ROWS, LEAST_ROWS = 50_000, 300
"""The last ones count, more would not change 21 numbers; of each series at least so many, if it has them."""


def last_rows(series: Sequence[Floats], most: int = MOST_ROWS) -> list[Floats]:
    """The last rows of each series, about so many of all; of very many series, of some that are spread evenly."""
    count = min(len(series), max(1, most // LEAST_ROWS))
    share = -(-most // count)
    return [series[k * len(series) // count][-share:] for k in range(count)]


def fit_linear(series: Sequence[Floats], lags: range, ridge: float = RIDGE) -> Floats:
    """Series of scaled rows (n,F) -> a coefficient per lag, and the intercept, for each feature (F,p+1)."""
    features, p, reach = series[0].shape[1], len(lags), max(lags)
    gram, target, rows = np.zeros((features, p + 1, p + 1)), np.zeros((features, p + 1)), 0
    for one in last_rows(series):
        x = one.astype(np.float64)
        count = len(x) - reach
        if count <= 0:
            continue
        seen = sliding_window_view(x[: len(x) - min(lags)], p, axis=0)[..., ::-1]  # (count,F,p), the nearest lag first
        for j in range(features):
            known = np.concatenate([seen[:, j], np.ones((count, 1))], axis=1)
            gram[j] += known.T @ known
            target[j] += known.T @ x[reach:, j]
        rows += count
    if not rows:
        return np.zeros((features, p + 1), np.float32)
    gram += np.diag([ridge * rows] * p + [1e-9 * rows])  # the intercept is not shrunk
    return np.linalg.solve(gram, target[..., None])[..., 0].astype(np.float32)
