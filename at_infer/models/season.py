"""The season of a model: a profile of each feature by time of day or week, subtracted before the network."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Config
from at_infer.errors import ConfigError, DataError

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
BLOCK_ROWS = 1 << 14  # so that float64 copies stay small

Seconds = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Season(Config):
    """A profile by time of day, or of the week, in raw units, with mean 0."""

    period_s: float = DAY_S
    """Period in seconds."""
    offset_s: float
    """Time of its first value, in seconds since 1970 modulo the period: UTC, or as a clock without a zone shows it."""
    profile: list[list[float]]
    """Of each feature its values, evenly spaced over the period, or over a part of it that repeats (a day of a week);
    none: the feature has no season."""

    def __post_init__(self) -> None:
        lengths = {len(values) for values in self.profile if values}
        if not self.period_s > 0 or not lengths or any(max(lengths) % length for length in lengths):
            raise ConfigError("season: has no profile, or profiles of lengths that do not fit together")

    @property
    def features(self) -> list[int]:
        """Those that have a season."""
        return [j for j, values in enumerate(self.profile) if values]

    @property
    def weekly(self) -> list[int]:
        """Those whose days of the week differ."""
        return [j for j in self.features if self.period_s > DAY_S and len(self.profile[j]) == self.bins]

    @property
    def bins(self) -> int:
        """Values of the longest profile."""
        return max(map(len, self.profile))

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        """(bins, F)."""
        return np.array([np.resize(values or [0.0], self.bins) for values in self.profile]).T

    def at(self, times: Seconds) -> NDArray[np.float32]:
        """(n,F): the profile at times in seconds since 1970, linear between its values."""
        table = self._table
        place = (times - self.offset_s) % self.period_s * (len(table) / self.period_s)
        below = np.floor(place)
        share = (place - below)[:, None]
        k = below.astype(np.int64) % len(table)  # rounding may reach the end of the period
        return (table[k] * (1 - share) + table[(k + 1) % len(table)] * share).astype(np.float32)

    def subtract(self, rows: NDArray[np.float32], times: Seconds | None) -> None:
        """From raw rows (n,F), in place; gaps stay gaps."""
        if times is None:
            raise DataError("rows: the model subtracts a season; give the time of every row")
        for first in range(0, len(rows), BLOCK_ROWS):
            rows[first : first + BLOCK_ROWS] -= self.at(times[first : first + BLOCK_ROWS])
