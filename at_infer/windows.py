"""Rows <-> windows: where windows start in a table of one or many series. Pure numpy."""

import numpy as np
from numpy.typing import NDArray

Starts = NDArray[np.int64]


def window_starts(rows: int, window: int, stride: int, *, cover_tail: bool) -> Starts:
    """First rows of the windows over one series of `rows` rows.

    With `cover_tail`, a last window that overlaps its predecessor covers the rows that the stride leaves
    over, so that every row is in a window. A series shorter than a window has none.
    """
    last = rows - window
    if last < 0:
        return np.empty(0, np.int64)
    starts = np.arange(0, last + 1, stride, dtype=np.int64)
    if cover_tail and starts[-1] != last:
        starts = np.append(starts, last)
    return starts


ALIGNMENT = (
    "windows do not overlap and never cross a change of series; the last window of a series overlaps its "
    "predecessor so that every row is covered; a row is scored by the first window that covers it"
)
