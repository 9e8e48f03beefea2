"""Sums over consecutive rows: in which order rows are added up, in files and live alike.

A sum is made of two shorter ones that lie side by side, which others are made of too: of 5, 10, 25 and 50 rows the
longest takes one addition. Nothing is ever subtracted, so a huge value leaves no trace behind it.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

PIECE = 1 << 15
"""Sums that are formed at once: a few arrays of this length fit into the cache of a core."""


def halves(width: int) -> tuple[int, int]:
    """The older and the newer rows of a sum of at least two: it depends on nothing else, so sums never do either."""
    if width % 2 == 0:
        return width // 2, width // 2
    for factor in (3, 5):  # what is left is made by doubling
        if width % factor == 0:
            return width - width // factor, width // factor
    return width - 1, 1


class Addition(NamedTuple):
    """A sum of `width` rows is made of those of the older and of the newer ones."""

    width: int
    older: int
    newer: int


@cache
def additions(widths: frozenset[int]) -> tuple[Addition, ...]:
    """What has to be formed for some widths, each behind what it is made of."""
    wanted, found = {*widths}, {*widths}
    while wanted:
        wanted = {half for width in wanted if width > 1 for half in halves(width)} - found
        found |= wanted
    return tuple(Addition(width, *halves(width)) for width in sorted(found - {1}))


def row_sums(rows: Floats, widths: frozenset[int]) -> dict[int, Floats]:
    """Rows (k,...) -> for each width that is asked for or on the way to one: its sums (k+1-width,...), in order."""
    sums = {1: rows}
    for width, older, newer in additions(widths):
        sums[width] = sums[older][: len(sums[newer]) - older] + sums[newer][older:]
    return sums


def window_sums(rows: Floats, spans: Sequence[tuple[int, int]], count: int) -> list[Floats]:
    """For each (begin, width) sums of `width` consecutive rows: contiguous (...,k) -> (...,count), from `begin` on.

    All features are one long row here, which numpy walks through at once; what is added up across their borders is left
    out of the result.
    """
    flat, widths = rows.reshape(-1), frozenset([width for _, width in spans])
    sums = row_sums(flat, widths) if len(flat) <= PIECE else _sums_in_pieces(flat, widths)
    shape = (*rows.shape[:-1], count)
    return [np.ndarray(shape, np.float32, sums[width][begin:], strides=rows.strides) for begin, width in spans]


def _sums_in_pieces(rows: Floats, widths: frozenset[int]) -> dict[int, Floats]:
    """The widths of `row_sums` (k,) that are asked for; what they are made of stays in the cache of the core."""
    widest = max(widths)
    found = {width: np.empty(len(rows) + 1 - width, np.float32) for width in widths}
    others = {one.width: np.empty(PIECE + widest, np.float32) for one in additions(widths) if one.width not in widths}
    for first in range(0, len(rows) + 1 - widest, PIECE):
        sums = {1: rows[first : first + PIECE + widest - 1]}
        for width, older, newer in additions(widths):
            size = len(sums[1]) + 1 - width
            room = found[width][first : first + size] if width in found else others[width][:size]
            sums[width] = np.add(sums[older][:size], sums[newer][older : older + size], out=room)
    return found | {1: rows}
