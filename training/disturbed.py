"""Rows with made-up faults: a student must agree with its teacher on rows that are not normal, too."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]

EVERY = 100  # rows to a fault, on average
LONGEST = 60
SIZES = (0.5, 10.0)  # of a fault, in standard deviations of the training data
FEW = 0.3  # share of the features that a fault of several has, on average


def disturb(rows: Rows, rng: np.random.Generator) -> Rows:
    """A copy of scaled rows (n,F) with spikes, shifted levels, noise, and values that are stuck."""
    found = rows.copy()
    count, features = rows.shape
    for first in rng.integers(0, count, max(1, count // EVERY)).tolist():
        length = int(rng.integers(1, 4) if rng.random() < 0.4 else rng.integers(4, LONGEST + 1))
        chosen: NDArray[np.bool_] = np.asarray(rng.random(features) < FEW)
        if rng.random() < 0.5 or not chosen.any():
            chosen = np.arange(features) == rng.integers(features)
        part = found[first : first + length, chosen]
        size = np.exp(rng.uniform(*np.log(SIZES))) * rng.choice([-1.0, 1.0], part.shape[1])
        kind = rng.integers(4)
        if kind <= 1:
            part = part + size  # a spike if it is short, else a level
        elif kind == 2:
            part = part + size * rng.normal(size=part.shape)
        else:
            part = np.broadcast_to(part[:1], part.shape)
        found[first : first + length, chosen] = part
    return found
