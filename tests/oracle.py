"""Brute-force numpy versions of the paper's formulas: loops, float64, no cleverness."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def gaussian_prior(sigma: Array) -> Array:
    """Equation 2, prior association of one head: sigma (N,) -> (N,N)."""
    n = len(sigma)
    p = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            p[i, j] = math.exp(-((j - i) ** 2) / (2 * sigma[i] ** 2)) / (math.sqrt(2 * math.pi) * sigma[i])
        p[i] /= p[i].sum()
    return p


def power_law_prior(alpha: Array) -> Array:
    """The appendix' kernel with the distance counted from 1, so that it exists on the diagonal."""
    n = len(alpha)
    p = np.array([[(abs(j - i) + 1.0) ** -alpha[i] for j in range(n)] for i in range(n)])
    return p / p.sum(axis=1, keepdims=True)


def kl(p: Array, q: Array, epsilon: float = 0.0, floor: float = 0.0) -> Array:
    """KL divergence of the last axis."""
    p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    return (p * (np.log(np.maximum(p + epsilon, floor)) - np.log(np.maximum(q + epsilon, floor)))).sum(-1)


def association_discrepancy(prior: Array, series: Array, floor: float) -> Array:
    """Algorithm 2: (L,H,N,N) x2 -> (N,)."""
    p, s = prior.mean(axis=1), series.mean(axis=1)
    return (kl(p, s, floor=floor) + kl(s, p, floor=floor)).mean(axis=0)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max())
    return e / e.sum()


def centred(difference: Array) -> Array:
    """One window (N,F) without its mean over the steps up to half a window away."""
    n = len(difference)
    result = np.empty_like(difference, dtype=np.float64)
    for i in range(n):
        near = [difference[j] for j in range(n) if abs(i - j) <= n // 2]
        result[i] = difference[i] - np.mean(near, axis=0)
    return result


def calibrated_weight(discrepancy: Array, mean: float, std: float) -> Array:
    """Twice a logistic curve that falls with AssDis."""
    return np.array([2 / (1 + math.exp(min((d - mean) / std, 700.0))) for d in discrepancy])
