"""Results of rows pushed into a stream, and the state of their series."""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from at_infer.live.times import Moment, Time
from at_infer.scoring.series import Bools, SeriesState
from at_infer.scoring.windows import Floats

SeriesName = Hashable
"""Whatever the series column holds."""


class StreamScore(NamedTuple):
    """Of one row; no score before a series has a full window, nor between the rows that `every` asks for.

    With a delay it is the score of the row `delay` rows earlier in the series.
    """

    score: float | None
    is_anomaly: bool


class FeatureChange(NamedTuple):
    """A feature of a series has had no value for a while, or has one again."""

    row: int
    """Of those pushed: the one that shows it."""
    feature: str
    is_back: bool
    rows: int
    """How many it has been without a value."""


@dataclass(slots=True)
class Taken:
    """Rows of one series, among those that were pushed together."""

    rows: list[int] = field(default_factory=list)
    """Numbers of those that were not refused, in order."""
    gaps: set[int] = field(default_factory=set)
    """Those that a gap in time lies before."""


@dataclass(slots=True)
class Pushed:
    """What became of some rows."""

    score: Floats
    """One entry per row; NaN: no score. With a delay, of the row `delay` rows earlier in the series."""
    is_anomaly: Bools
    tags: list[Any]
    """Of the rows that the scores belong to; None: no row is final yet."""
    channels: Floats
    """(n,C) of the scoring core: the score, and with `explain` what `reasons` makes of the others."""
    ended: dict[int, range] = field(default_factory=dict)
    """Rows that found a gap in time before them, or overflowed: entries beyond those of the rows themselves, final
    because of it."""
    taken: dict[SeriesName, Taken] = field(default_factory=dict)
    """By series; without single rows that continue a series, if features may not be missing."""
    given_tags: Sequence[Any] = ()
    """Of the rows themselves."""
    missing: Bools | None = None
    """(n,F): where rows have no value, if missing features are left out of the score."""
    dropped_rows: int = 0
    """Rows that were left out without a word, because their times do not rise."""
    notes: list[str] = field(default_factory=list)
    """Notes to print once."""
    features: list[FeatureChange] = field(default_factory=list)
    """Features that have gone missing, or are back."""
    refused: dict[int, str] = field(default_factory=dict)
    """Rejected rows, and why. The series continues without them."""
    dropped: list[SeriesName] = field(default_factory=list)
    """Series that had to make room for others."""

    def in_order(self) -> Iterator[int]:
        """Numbers of the entries, those of each series in the order of its rows."""
        for i in range(len(self.tags) - sum(map(len, self.ended.values()))):
            yield from self.ended.get(i, ())
            yield i


@dataclass(slots=True)
class LiveSeries:
    """State of a series in a stream."""

    state: SeriesState
    time: tuple[Moment, Time] | None = None
    """Of its last row."""
    waiting: deque[Any] = field(default_factory=deque)
    """Tags of rows that are not final."""
