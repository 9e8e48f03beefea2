"""The anomaly criterion (equation 6, Algorithm 3 and its ablations) in numpy."""

import numpy as np
from numpy.typing import NDArray

from at_infer.config import ScoreConfig

Floats = NDArray[np.float32]


def anomaly_score(error: Floats, discrepancy: Floats, score: ScoreConfig, *, layers_summed: int) -> Floats:
    """Score every point of every window: (B,N) error and AssDis in, (B,N) out.

    `error` is the mean squared error over the features; `discrepancy` is AssDis averaged over the layers.
    Mode `published` sums over the `layers_summed` layers instead, as the published code does.
    """
    match score.mode:
        case "paper":
            return softmax(-discrepancy) * error
        case "published":
            return softmax(-score.temperature * layers_summed * discrepancy) * error
        case "reconstruction":
            return error
        case "discrepancy":
            return softmax(-discrepancy)
        case "addition":
            return softmax(-discrepancy) + error


def softmax(x: Floats) -> Floats:
    """Softmax over the last axis, the steps of a window."""
    e: Floats = np.exp(x - x.max(axis=-1, keepdims=True))
    e /= e.sum(axis=-1, keepdims=True)
    return e
