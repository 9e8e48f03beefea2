"""Which features and views make a score of mode `fusion` what it is. Pure numpy."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.models.views import VIEWS, View

Floats = NDArray[np.float32]

ACTIVITIES: tuple[View, ...] = ("activity next", "activity ahead")
OF_ACTIVITY = np.array([[VIEWS.index(name)] for name in ACTIVITIES], np.float32)
"""Numbers of their views (2,1)."""
STUCK = len(VIEWS)
"""Number of a view that activity becomes where it is below normal."""
PATTERN = STUCK + 1
"""Number of the first view of patterns, of which there may be none."""
EPSILON = np.float32(1e-8)


class PatternViews(NamedTuple):
    """The last views of a model: how many are distances to normal patterns, and their weight in the score."""

    views: int
    weight: float


def explain(roots: Floats, logs: Floats, activity: Floats, score: Floats, patterns: PatternViews) -> list[Floats]:
    """What stands behind scores (n,1): the part that each feature has in them, and the view that shows it most, (n,F).

    Of roots (W,n,V,F), weighted logarithms of the parts (WV,n), and mean signed activity (n,2,F). Patterns count as
    much as other views for the name of a cause: a burst or a stuck value is an unknown pattern, too.
    """
    by_view = logs.reshape(len(roots), roots.shape[2], -1)
    share, view = blame(roots, by_view)
    if patterns.views:
        first = by_view.shape[1] - patterns.views
        if patterns.weight != 1:
            alike = np.concatenate([by_view[:, :first], by_view[:, first:] / np.float32(patterns.weight)], axis=1)
            view = blame(roots, alike)[1]
        view[view >= first] += PATTERN - first
    stuck = (view[:, None] == OF_ACTIVITY) & (activity < 0)
    view[stuck.any(axis=1)] = STUCK
    return [share * score, view]


def blame(roots: Floats, parts: Floats) -> tuple[Floats, Floats]:
    """Roots of mean squares (W,n,V,F), weighted logarithms of the parts (W,V,n) -> two (n,F).

    A part counts by how far it is above normal, a feature by its share of the part. Returns for each feature its share
    of the whole, and the number of the view that shows it most.
    """
    shares = np.array(roots, np.float32, order="C")  # so that numpy adds up in one order
    shares /= shares.sum(axis=3, keepdims=True) + EPSILON
    shares *= np.maximum(parts, EPSILON).swapaxes(1, 2)[..., None]
    weighted = shares.sum(axis=0)  # (n,V,F)
    features = weighted.sum(axis=1)
    features /= np.maximum(features.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return features, weighted.argmax(axis=1).astype(np.float32)
