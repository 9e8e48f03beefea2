"""Parts of a score of mode `fusion`: one for each view and width, with weights, and their geometric mean."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.models.patterns import PATTERN_VIEWS, PatternView
from at_infer.models.statistics import ViewStatistics
from at_infer.models.views import VIEWS, View

Floats = NDArray[np.float32]

NETWORK_VIEWS: tuple[View, ...] = ("shape", "level")
LINEAR_VIEWS = [view for view in VIEWS if view not in NETWORK_VIEWS]


class PartWeights(NamedTuple):
    """Of the parts in their geometric mean."""

    of_parts: Floats
    """(WV,1)"""
    total: np.float32
    floor: np.float32
    """Below it, how far a part is from normal hardly matters."""


def part_divisor(rows: Any, features: int) -> Any:
    """What makes a sum over the features, of roots of sums over so many rows, their mean root mean square."""
    return np.sqrt(rows) * np.float32(features)


def part_weights(known: ViewStatistics, views: Sequence[View | PatternView]) -> PartWeights:
    """Those of views that need the network, of patterns, and 1 of the others."""
    own = dict.fromkeys(NETWORK_VIEWS, known.network_weight) | dict.fromkeys(PATTERN_VIEWS, known.pattern_weight)
    of_parts = np.array([own.get(view, 1.0) for view in views] * len(known.widths), np.float32)[:, None]
    return PartWeights(of_parts, of_parts.sum(), np.float32(known.part_floor))


def fuse_parts(parts: Floats, weights: PartWeights, unit: np.float32) -> tuple[Floats, Floats]:
    """Parts (WV,n) -> scores (n,1), weighted logarithms of the parts (WV,n)."""
    logs = parts + weights.floor
    logs /= 1 + weights.floor  # normal parts stay 1
    np.log(logs, out=logs)
    logs *= weights.of_parts
    total = np.add.accumulate(logs, axis=-2)[..., -1, :]  # one by one, as the features
    return np.asarray(np.exp(total / weights.total) / unit, np.float32)[..., None], logs
