"""Rows onto a grid of times: one row per interval of a series, whatever chunks the rows come in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.models.spacing import Grid, Times
from at_infer.untrusted import typed

Rows = NDArray[np.float32]
Ints = NDArray[np.int64]
Sums = NDArray[np.float64]

MOST_ROWS = 1 << 18  # given out at once, so that empty steps do not multiply a chunk
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class OnGrid:
    """How rows are put on a grid."""

    grid: Grid
    max_gap: int
    """Steps from one that has rows to the next, within which those between become rows too; beyond, there are none."""
    carry: bool
    """An empty step repeats the one before it; otherwise its values are missing, and the model's policy fills them."""


class Steps(NamedTuple):
    """Rows of the grid."""

    microseconds: Ints
    """Since 1970: where each step begins. It holds the rows from there to the next, exclusive."""
    values: Rows

    @property
    def seconds(self) -> Times:
        """The same as other times of rows."""
        return np.asarray(self.microseconds / 1e6)


class Resampler:
    """Puts the rows of one series on a grid; remembers the step that is open, and the last one that was given out.

    A missing value does not count: the mean is that of the values there are. A time that goes back, if someone lets
    it through, counts for the step that is open. Sums run in the order of the rows, so that chunks do not matter.
    """

    def __init__(self, how: OnGrid, features: int) -> None:
        self.how, self.step_us = how, round(how.grid.interval_s * 1e6)
        self.open: int | None = None
        """Number of the step that rows fall into now."""
        self.sums, self.counts = np.zeros(features), np.zeros(features)
        self.before: tuple[int, Rows] | None = None
        """The step given out last."""

    def add(self, seconds: Times, rows: Rows) -> Iterator[Steps]:
        """The next rows (n,F); steps that are complete come out."""
        if not len(rows):
            return
        steps = np.rint(seconds * 1e6).astype(np.int64) // self.step_us
        first = steps[0] if self.open is None else self.open
        steps = np.maximum.accumulate(np.concatenate([[first], steps]))  # what the open step holds comes in front
        known = ~np.isnan(rows)
        values: Sums = np.concatenate([self.sums[None], np.where(known, rows, 0.0)])
        counts: Sums = np.concatenate([self.counts[None], known])
        begins = np.flatnonzero(np.diff(steps, prepend=first - 1))
        if self.how.grid.resample == "mean":
            number = np.cumsum(np.diff(steps, prepend=first) > 0, dtype=np.int64)
            sums, counts = _totals(number, values), _totals(number, counts)
        else:
            at = np.where(counts > 0, np.arange(len(values))[:, None], -1)
            last = np.maximum.reduceat(at, begins, axis=0)
            sums, counts = np.take_along_axis(values, np.maximum(last, 0), axis=0), np.where(last >= 0, 1.0, 0.0)
        self.open, self.sums, self.counts = int(steps[-1]), sums[-1], counts[-1]
        yield from self._give_out(steps[begins[:-1]], _averages(sums[:-1], counts[:-1]))

    def end(self) -> Iterator[Steps]:
        """No more rows: the open step is complete."""
        if self.open is not None:
            last = np.array([self.open])
            self.open = None
            yield from self._give_out(last, _averages(self.sums[None], self.counts[None]))

    def remember(self) -> dict[str, Any]:
        """JSON values from which `recall` goes on; numbers as texts, which keep every bit."""
        before = None if self.before is None else [self.before[0], _hex(self.before[1])]
        return {"open": self.open, "sums": _hex(self.sums), "counts": _hex(self.counts), "before": before}

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""
        width = len(self.sums)
        step, before = kept["open"], kept["before"]
        self.open = None if step is None else typed(int, int(step), "open")
        self.sums, self.counts = (_floats(kept[name], width) for name in ("sums", "counts"))
        self.before = None
        if before is not None:
            self.before = typed(int, int(before[0]), "before"), _floats(before[1], width).astype(np.float32)

    def _give_out(self, steps: Ints, values: Rows) -> Iterator[Steps]:
        """With the empty steps before each, unless they are too many."""
        together = max(1, MOST_ROWS // self.how.max_gap)
        for first in range(0, len(steps), together):
            yield self._with_empty(steps[first : first + together], values[first : first + together])

    def _with_empty(self, steps: Ints, values: Rows) -> Steps:
        number, last = (int(steps[0]) - 1, values[0]) if self.before is None else self.before
        self.before = int(steps[-1]), values[-1].copy()
        ahead = np.diff(steps, prepend=number)
        rows = np.where(ahead <= self.how.max_gap, ahead, 1)
        owner = np.repeat(np.arange(len(steps)), rows)
        behind = np.cumsum(rows)[owner] - 1 - np.arange(len(owner))  # steps until the one that has rows
        found = np.concatenate([last[None], values])[owner + (behind == 0)]
        if not self.how.carry:
            found[behind > 0] = np.nan
        return Steps((steps[owner] - behind) * self.step_us, found)


def _floats(texts: list[str], width: int) -> Sums:
    """The reverse of `_hex`; a state may hold anything."""
    if len(texts) != width:
        raise ValueError(f"{len(texts)} numbers, not {width}")
    return np.array([float.fromhex(text) for text in texts])


def _hex(values: NDArray[Any]) -> list[str]:
    return [float(value).hex() for value in values]


def _totals(number: Ints, values: Sums) -> Sums:
    """Of the rows of each number, added one after the other."""
    return np.stack([np.bincount(number, column) for column in values.T], axis=1).astype(np.float64)


def _averages(sums: Sums, counts: Sums) -> Rows:
    with np.errstate(invalid="ignore", over="ignore"):
        found = (sums / np.maximum(counts, 1.0)).astype(np.float32)
    found[np.isnan(found)] = np.inf  # plus and minus infinity in one step are not a missing value
    found[counts == 0] = np.nan
    return found


def check_grid(dtype: pl.DataType, grid: Grid, where: str) -> None:
    """Can times of this type lie on the grid?"""
    if dtype == pl.Datetime or (dtype == pl.Date and grid.interval_s % DAY_S == 0):
        return
    if dtype == pl.Date:
        raise DataError(
            f"{where}: is Date, an interval of {grid} is not a whole number of days; give another `interval`"
        )
    raise DataError(f"{where}: is {dtype}, an interval needs dates and times; convert it, or pass interval='none'")


def time_column(name: str, steps: Steps, dtype: pl.DataType) -> pl.Series:
    """Of the rows of a grid, in the type and under the name that the input has."""
    zone = getattr(dtype, "time_zone", None)
    return pl.Series(name, steps.microseconds).cast(pl.Datetime("us", zone)).cast(dtype)
