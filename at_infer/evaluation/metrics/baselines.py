"""Baselines that ignore the data, to compare metrics with."""

from typing import NamedTuple

import numpy as np

from at_infer.evaluation.metrics.ranking import Floats


class Baseline(NamedTuple):
    """A score and the threshold above which it alarms."""

    scores: Floats
    threshold: float


NAMES = ("random", "every_nth", "constant")


def baseline(name: str, rows: int, ratio: float, seed: int) -> Baseline:
    """`random`: uniform. `every_nth`: 1 on every Nth row. Both alarm on a share `ratio`. `constant`: on every row."""
    if name == "random":
        return Baseline(np.random.default_rng(seed).random(rows, np.float32), 1 - ratio)
    if name == "every_nth":
        scores = np.zeros(rows, np.float32)
        scores[:: nth(ratio)] = 1
        return Baseline(scores, 0.5)
    return Baseline(np.zeros(rows, np.float32), -1.0)


def nth(ratio: float) -> int:
    """N, so that an alarm on every Nth row is a share `ratio` of them."""
    return max(1, round(1 / ratio)) if ratio > 0 else 1 << 62
