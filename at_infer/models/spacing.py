"""The median time step, learned or requested, and gaps in time, after which a series restarts."""

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Config, Resample
from at_infer.errors import ConfigError

Clock = Literal["date", "number"]
"""How a time column counts: dates and times, or numbers of a unit that only its owner knows."""
MAX_GAP = 3
"""Default maximum gap within a series, in median steps."""

MOST_GAP_ON_GRID = 1000
"""Steps; each empty one becomes a row."""

Times = NDArray[np.float64]
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def check_max_gap(max_gap: int | None) -> None:
    """Check an option; None: the default, 0: gaps are ignored."""
    if max_gap is not None and max_gap < 0:
        raise ConfigError(f"max_gap: {max_gap} is too small; give 1 or more, or 0 for none")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(Config):
    """Times one interval apart, which rows are put on before anything else."""

    interval_s: float
    resample: Resample = "mean"

    def __post_init__(self) -> None:
        self._choice("resample", Resample)
        if not 0.001 <= self.interval_s <= 366 * 86400.0:
            raise ConfigError(f"interval: {self.interval_s:g} s is not between a millisecond and a year")

    def __str__(self) -> str:
        """For people: 5m (mean)."""
        unit = next(unit for unit in ("d", "h", "m", "s") if self.interval_s % _UNITS_S[unit] == 0 or unit == "s")
        return f"{self.interval_s / _UNITS_S[unit]:g}{unit} ({self.resample})"


def choose_grid(interval: str | None, resample: Resample | None, recorded: Grid | None) -> Grid | None:
    """The requested grid, or that of the model; interval `none`: no resampling."""
    if interval is None and recorded is not None:
        return recorded if resample is None else replace(recorded, resample=resample)
    if interval is None or interval == "none":
        if resample is not None:
            raise ConfigError("resample: says how rows are resampled; give `interval` too, or leave it out")
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])", interval)
    if found is None:
        raise ConfigError(f"interval: {interval!r} is not a time like 30s, 5m or 1h")
    usual = "mean" if recorded is None else recorded.resample
    return Grid(interval_s=float(found[1]) * _UNITS_S[found[2]], resample=resample or usual)


def grid_max_gap(asked: int | None, recorded: int = MAX_GAP) -> int:
    """Steps of a grid that a series may pause; it must be able to, or one wrong time would fill the disk."""
    if asked == 0:
        raise ConfigError("max_gap: rows on a grid need a limit, as empty steps become rows; give 1 or more")
    steps = asked or recorded or MAX_GAP
    if steps > MOST_GAP_ON_GRID:
        raise ConfigError(f"max_gap: {steps} is too large for rows on a grid; at most {MOST_GAP_ON_GRID}")
    return steps


def find_gaps(times: Times, longest_step: float, last: float | None = None) -> NDArray[np.int64]:
    """Rows that a gap lies before; `last` is the time of the row before them. A clock may also jump back."""
    steps = np.diff(times, prepend=times[:1] if last is None else last)
    return np.flatnonzero(np.abs(steps) > longest_step)
