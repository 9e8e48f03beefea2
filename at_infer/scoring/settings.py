"""Settings of the scoring core, from model and options. Pure numpy."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

from at_infer.choices import BadRows, ShortSeries
from at_infer.config import Fill
from at_infer.models.season import Season
from at_infer.scoring.windows import Floats, WindowLayout


class Finisher(Protocol):
    """Turns the merged rows of one series into scores, in order."""

    def add(self, rows: Floats) -> Floats:
        """Rows (n,C), NaN without a score -> rows that are final."""

    def end(self) -> Floats:
        """The rows that are left."""

    @property
    def is_steady(self) -> bool:
        """May its next row go through `RowSettings.step_together`?"""

    def remember(self) -> dict[str, Any]:
        """State that the scores of later rows depend on: numbers and arrays by name."""

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""


def add_one_by_one(steps: Sequence[Finisher], parts: Sequence[Floats]) -> list[Floats]:
    """For last steps that have no faster way."""
    return [step.add(part) for step, part in zip(steps, parts, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings:
    """How rows become scores."""

    layout: WindowLayout
    columns: Sequence[str]
    """Names of the features, in order."""
    mean: Sequence[float]
    """Of the features in the training data."""
    fill: Fill = "error"
    season: Season | None = None
    """Subtracted from the rows before anything else, gaps included: a gap repeats a deviation from the season."""
    longest_step: float | None = None
    """A longer time between two rows is a gap: no window spans it, and all state restarts."""
    mask: bool = False
    """Leave missing features out of the score; windows then have F more channels, 1 where a feature is missing."""
    window_channels: int = 1
    """Output of the engine for each row of a window."""
    channels: int = 1
    """What comes out: the score, and whatever is wanted beside it."""
    finish: Callable[[], Finisher]
    """The last step, afresh for each series: from merged rows to scores."""
    add_together: Callable[[Sequence[Any], Sequence[Floats]], list[Floats]] = add_one_by_one
    """The next rows of several series through their last steps at once."""
    step_together: Callable[[Sequence[Any], Floats], Floats] | None = None
    """One row (S,C) of each of some series that are steady, none of them NaN -> one final row of each (S,C)."""
    reach: tuple[int, int] = (0, 0)
    """Rows before and behind a row that the last step looks at."""
    grid: int = 1
    """A series may be read from every row of it that this divides, with the same scores further down."""
    short_series: ShortSeries = "error"
    on_bad_rows: BadRows | Literal["keep"] = "error"
    """`keep`: an infinite score stays, as a stream must not stop; the caller lets no row pass that is not finite."""

    def finished_by(self, finish: Callable[[], Finisher], *, channels: int, window_channels: int | None = None) -> Self:
        """The same with another last step, which has no faster way for several series."""
        given = self.window_channels if window_channels is None else window_channels
        ways: dict[str, Any] = {"finish": finish, "add_together": add_one_by_one, "step_together": None}
        return replace(self, **ways, channels=channels, window_channels=given)

    @property
    def filling(self) -> Fill:
        """Input of the network in place of a missing value: a masked feature must not disturb the others."""
        return "forward" if self.mask and self.fill == "error" else self.fill

    @property
    def lookback(self) -> int:
        """How many rows before a row its score may depend on."""
        return self.layout.reach + self.reach[0]

    @property
    def lookahead(self) -> int:
        """How many rows behind a row its score may depend on."""
        return (self.layout.delay if self.layout.align == "last" else self.layout.reach) + self.reach[1]

    def read(self, first: int, end: int, series_rows: int) -> tuple[int, int]:
        """Rows of a series to read so that rows `first` to `end` get the scores they have in the whole series."""
        stride, grid = self.layout.stride, math.lcm(self.layout.stride, self.grid)
        begin = max(0, first - self.lookback) // grid * grid
        # A window ends there, so that the rule for the end of a series finds no tail to cover.
        windows = -(-max(0, end + self.lookahead - begin - self.layout.window) // stride)
        return begin, min(series_rows, begin + self.layout.window + windows * stride)
