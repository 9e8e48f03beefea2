"""The last rows of many series in one array, so that the windows of a batch are one gather. Pure numpy."""

import numpy as np
from numpy.typing import NDArray

from at_infer.scoring.windows import Floats

Ints = NDArray[np.int64]


class Rings:
    """One ring of rows per slot. Row number k of a series lies at k modulo the length of the ring.

    A ring is `spare` rows longer than a window: so many more rows of a series may be put before the window that ends
    with the first of them is taken.
    """

    def __init__(self, window: int, features: int, spare: int) -> None:
        self.window, self.spare = window, spare
        self.length = window + spare
        self.rows: Floats = np.empty((0, self.length, features), np.float32)
        self._back = np.arange(1 - window, 1, dtype=np.int64)  # from the first row of a window to its last

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return len(self.rows)

    def grow(self, capacity: int) -> None:
        """Make room for more series; what is there stays."""
        rows = np.empty((capacity, *self.rows.shape[1:]), np.float32)  # not touched, so not in memory before it is used
        rows[: self.capacity] = self.rows
        self.rows = rows

    def clear(self, slot: int) -> None:
        """A series begins in this slot."""
        self.rows[slot] = np.nan

    def put(self, slots: Ints, numbers: Ints, rows: Floats) -> None:
        """Store rows (r,F), each as row number `numbers` of the series in its slot."""
        self._flat[slots * self.length + numbers % self.length] = rows

    def take(self, slots: Ints, numbers: Ints, out: Floats | None = None) -> Floats:
        """The windows (r,N,F) that end with row number `numbers` of each slot; NaN before a series' first row."""
        at = slots[:, None] * self.length + (numbers[:, None] + self._back) % self.length
        return self._flat.take(at, axis=0, out=out, mode="clip")  # all are in range: clip only saves a buffer

    @property
    def _flat(self) -> Floats:
        return self.rows.reshape(-1, self.rows.shape[2])
