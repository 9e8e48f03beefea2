"""Views of the features of a series: squared, in units of validation statistics, and summed up over rows."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from at_infer.models.blame import ACTIVITIES
from at_infer.models.pattern_distances import PatternDistances
from at_infer.models.view_units import Normalised
from at_infer.models.views import ACTIVITY, VIEWS, MovingMeans, SeriesViews, Sums

Floats = NDArray[np.float32]

ACTIVITY_VIEWS = slice(VIEWS.index(ACTIVITIES[0]), VIEWS.index(ACTIVITIES[-1]) + 1)
ACTIVITY_AHEAD = ACTIVITY - 1 - ACTIVITY // 2
"""Rows behind a row that its activity depends on, in whole windows."""
LARGEST = np.float32(1e30)


class ViewSums:
    """Sums of squared deviations, row by row."""

    def __init__(
        self,
        views: SeriesViews,
        normalised: Normalised,
        means: MovingMeans,
        *,
        patterns: PatternDistances | None,
        signed: bool,
        late: bool,
    ) -> None:
        """`signed`: of signed activity too; `late`: and of what activity and patterns were, without later rows."""
        self.views, self.normalised, self.means, self.signed, self.late = views, normalised, means, signed, late
        self.patterns = patterns
        """None: the model has none."""
        self.past: Floats | None = None
        """Squared activity of the last rows, and patterns; None before the first."""

    def add(
        self,
        x: Floats,
        residual: Floats,
        shape: Floats | None,
        *,
        end: bool,
        change: Callable[[Floats], Floats] | None = None,
    ) -> list[Sums]:
        """Scaled rows, residuals and shapes, each (F,n) -> for each span (F,V+,m) of rows that are known now.

        Behind the views stand patterns, signed activity, late activity and patterns. `change` is given the deviations
        before they are squared, and the distances to patterns.
        """
        squares = self.normalised(self.views.add(x, residual, shape, end=end))
        views = squares.shape[1]
        if self.patterns is not None:
            squares = np.concatenate([squares, self.patterns.add(x, end=end)], axis=1)
        if change is not None:
            squares = change(squares)
        more = [squares[:, ACTIVITY_VIEWS].copy()] if self.signed else []
        np.square(squares[:, :views], out=squares[:, :views])
        if not squares.max(initial=0) <= LARGEST:
            np.minimum(squares, LARGEST, out=squares)
        if self.late:
            more.append(self._delayed(np.concatenate([squares[:, ACTIVITY_VIEWS], squares[:, views:]], axis=1)))
        return self.means.add_up(np.concatenate([squares, *more], axis=1) if more else squares, end=end)

    def _delayed(self, activity: Floats) -> Floats:
        """That of the row so much earlier that it depends on no later one; the first row stands for those before it."""
        count = activity.shape[-1]
        if not count:
            return activity
        past = np.repeat(activity[..., :1], ACTIVITY_AHEAD, axis=-1) if self.past is None else self.past
        known = np.concatenate([past, activity], axis=-1)
        self.past = known[..., count:].copy()
        return known[..., :count]
