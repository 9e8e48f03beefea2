"""What a stream remembers of every series: its last rows, scores and time, for a bounded number of series."""

from collections.abc import Hashable

import numpy as np

from at_infer.errors import ConfigError
from at_infer.live.rings import Ints, Rings
from at_infer.live.times import Moment, Time

Series = Hashable
"""Name of a series: whatever its column holds."""

FIRST_CAPACITY = 16


class SeriesMemory:
    """A slot per series. When all are taken, a new series gets the slot of the one least recently seen."""

    def __init__(self, max_series: int, *, window: int, features: int, smooth: int, spare: int) -> None:
        if max_series < 1:
            raise ConfigError(f"max series: {max_series} is too small; at least 1")
        self.max_series = max_series
        self.slots: dict[Series, int] = {}
        """Least recently seen first."""
        self.counts: Ints = np.zeros(0, np.int64)
        """Rows seen of the series in each slot."""
        self.times: list[tuple[Moment, Time] | None] = []
        """Of the last row in each slot."""
        self.rows = Rings(window, features, spare)
        self.scores = Rings(smooth, 1, spare)

    def see(self, name: Series) -> tuple[int, Series | None]:
        """The slot of a series, which is now the one most recently seen, and the series dropped for it."""
        slot, dropped = self.slots.pop(name, None), None
        if slot is None:
            slot = len(self.slots)
            if slot == self.max_series:
                dropped = next(iter(self.slots))
                slot = self.slots.pop(dropped)
            elif slot == len(self.counts):
                self.grow(min(self.max_series, max(FIRST_CAPACITY, 2 * slot)))
            self.counts[slot], self.times[slot] = 0, None
            self.rows.clear(slot)
            self.scores.clear(slot)
        self.slots[name] = slot
        return slot, dropped

    def grow(self, capacity: int) -> None:
        """Make room for so many series."""
        more = capacity - len(self.counts)
        self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
        self.times += [None] * more
        self.rows.grow(capacity)
        self.scores.grow(capacity)
