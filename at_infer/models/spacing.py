"""The usual time from row to row, learnt in training, and the gaps that it tells: where a series begins anew."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Config
from at_infer.errors import ConfigError

Clock = Literal["date", "number"]
"""How a time column counts: dates and times, or numbers of a unit that only its owner knows."""
MAX_GAP = 3
"""Steps that a series may pause without beginning anew, unless someone says otherwise."""

Times = NDArray[np.float64]


def check_max_gap(max_gap: int | None) -> None:
    """Of an option; None: as usual, 0: gaps are not looked for."""
    if max_gap is not None and max_gap < 0:
        raise ConfigError(f"max gap: {max_gap} is too small; give 1 or more, or 0 for none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spacing(Config):
    """How rows lie in time."""

    step: float
    """Median time from row to row: seconds, or whatever a time column of numbers counts."""
    clock: Clock
    max_gap: int = MAX_GAP
    """More steps than this between two rows, rounded, are a gap; 0: there are none."""

    def __post_init__(self) -> None:
        self._choice("clock", Clock)
        check_max_gap(self.max_gap)
        if not 0 < self.step < float("inf"):
            raise ConfigError(f"spacing: a step of {self.step} is not positive")

    def longest_step(self, max_gap: int | None = None) -> float | None:
        """Time between two rows that is not yet a gap, rounded to whole steps; None: nothing is a gap."""
        steps = self.max_gap if max_gap is None else max_gap
        return (steps + 0.5) * self.step if steps else None


def find_gaps(times: Times, longest_step: float, last: float | None = None) -> NDArray[np.int64]:
    """Rows that a gap lies before; `last` is the time of the row before them. A clock may also jump back."""
    steps = np.diff(times, prepend=times[:1] if last is None else last)
    return np.flatnonzero(np.abs(steps) > longest_step)
