"""Peaks over threshold: extreme value theory finds the score that a target rate of false alarms exceeds.

Beyond a high quantile t the excesses of almost any distribution follow a generalised Pareto distribution (Pickands,
Balkema and de Haan). With shape xi and scale sigma fitted to the N_t excesses among n scores, the score that a share q
exceeds is z_q = t + sigma / xi * ((q n / N_t)^-xi - 1). This is the first step of SPOT (Siffer et al. 2017).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.errors import ConfigError

Reals = NDArray[np.float64]

INITIAL_LEVEL = 0.98
"""Scores above this quantile are peaks, as in SPOT."""
FEWEST_PEAKS = 10
LOWEST_SHAPE = -0.5
"""Below, the likelihood has no regular maximum."""


class Pareto(NamedTuple):
    """A generalised Pareto distribution of excesses."""

    shape: float
    scale: float


def peaks_threshold(excesses: Reals, initial: float, rows: float, rate: float) -> float:
    """The score that a share `rate` of the rows exceeds, from the excesses over `initial` among `rows` scores."""
    if len(excesses) < FEWEST_PEAKS:
        raise ConfigError(
            f"threshold: {len(excesses)} scores above the {INITIAL_LEVEL:.0%} quantile are too few for peaks over "
            f"threshold; at least {FEWEST_PEAKS} are needed, give more validation scores or use method ratio"
        )
    relative = rate * rows / len(excesses)
    if not 0 < relative < 1:
        raise ConfigError(f"threshold: a share of {rate:.3g} of the rows is not in the tail; use method ratio")
    pareto = fit_pareto(excesses)
    if abs(pareto.shape) < 1e-9:
        beyond = -pareto.scale * np.log(relative)
    else:
        beyond = pareto.scale / pareto.shape * (relative**-pareto.shape - 1)
    return float(initial + beyond)


def fit_pareto(excesses: Reals) -> Pareto:
    """Maximum likelihood. Grimshaw's trick: for theta = shape / scale, the best shape is mean(log(1 + theta y)).

    That leaves one parameter, on which the likelihood may have several peaks: a grid finds the highest, golden section
    the top of it.
    """
    mean, largest = float(excesses.mean()), float(excesses.max())
    if not excesses.min() < largest:
        raise ConfigError("threshold: all scores above the initial quantile are equal; use method ratio")
    y = excesses / mean

    def likelihood(theta: float) -> float:
        if theta == 0:
            return -1.0  # the limit: an exponential distribution
        shape = float(np.log1p(theta * y).mean())
        return -np.log(shape / theta) - shape - 1 if shape >= LOWEST_SHAPE else -np.inf

    most = mean / largest
    grid = np.concatenate([-most * (1 - np.geomspace(1e-9, 0.999, 60)), [0.0], np.geomspace(1e-3, 1e4, 60)])
    best = int(np.argmax([likelihood(theta) for theta in grid.tolist()]))
    theta = _highest(likelihood, float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)]))
    if abs(theta) < 1e-9:
        return Pareto(0.0, mean)
    shape = float(np.log1p(theta * y).mean())
    return Pareto(shape, mean * shape / theta)


def _highest(of: Callable[[float], float], low: float, high: float) -> float:
    """Golden section."""
    golden = (np.sqrt(5) - 1) / 2
    inner = [high - golden * (high - low), low + golden * (high - low)]
    values = [of(x) for x in inner]
    for _ in range(60):
        if values[0] >= values[1]:
            high = inner[1]
            inner = [high - golden * (high - low), inner[0]]
            values = [of(inner[0]), values[0]]
        else:
            low = inner[0]
            inner = [inner[1], low + golden * (high - low)]
            values = [values[1], of(inner[1])]
    return float((low + high) / 2)
