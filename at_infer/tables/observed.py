"""Observation time of rows, for all rates per day."""

import numpy as np
from numpy.typing import NDArray

DAY_MS = 86_400_000.0
STEPS = 10_000
"""Of which the median is the usual step of a series."""
GAP = 3
"""A gap of more median steps than this counts as one step, as does a clock that is set back."""


class ObservedTime:
    """Days of observation, summed over the series: ten machines over one day are ten days.

    Chunks may be cut anywhere. Times are milliseconds since 1970.
    """

    def __init__(self) -> None:
        self._total_ms = 0.0
        self._waiting: NDArray[np.float64] = np.empty(0)
        """Times of a series until its usual step is known; then only the last one."""
        self._step_ms: float | None = None

    @property
    def days(self) -> float | None:
        """So far, with every row counted for a step; None if time stands still."""
        total, step = self._total_ms, self._step_ms
        if step is None and len(self._waiting) > 1:
            step = float(np.median(np.diff(self._waiting)))
            total += self._sum(self._waiting, step)
        total += step or 0.0
        return total / DAY_MS if total > 0 else None

    def start_series(self) -> None:
        """The rows that come next belong to another series."""
        self._total_ms = (self.days or 0.0) * DAY_MS
        self._waiting, self._step_ms = np.empty(0), None

    def add(self, times_ms: NDArray[np.float64]) -> None:
        """The next rows."""
        known = np.concatenate([self._waiting, times_ms])
        if self._step_ms is None and len(known) > STEPS:
            self._step_ms = float(np.median(np.diff(known[: STEPS + 1])))
        if self._step_ms is not None:
            self._total_ms += self._sum(known, self._step_ms)
            known = known[-1:]
        self._waiting = known

    @staticmethod
    def _sum(times_ms: NDArray[np.float64], step_ms: float) -> float:
        steps = np.diff(times_ms)
        return float(np.where((steps > GAP * step_ms) | (steps < 0), step_ms, steps).sum())
