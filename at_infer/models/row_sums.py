"""Sums over consecutive rows: in which order rows are added up, in files and live alike.

A sum is made of two shorter ones that lie side by side, which others are made of too: of 5, 10, 25 and 50 rows the
longest takes one addition. Nothing is ever subtracted, so a huge value leaves no trace behind it.
"""

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

PIECE = 1 << 15
"""Sums that are formed at once."""


def halves(width: int) -> tuple[int, int]:
    """The older and the newer rows of a sum of at least two: it depends on nothing else, so sums never do either."""
    if width % 2 == 0:
        return width // 2, width // 2
    for factor in (3, 5):  # what is left is made by doubling
        if width % factor == 0:
            return width - width // factor, width // factor
    return width - 1, 1


@cache
def steps(widths: frozenset[int]) -> list[int]:
    """The sums, of two rows or more, that have to be formed for some widths, each behind those it is made of."""
    wanted, found = {*widths}, {*widths}
    while wanted:
        wanted = {half for width in wanted if width > 1 for half in halves(width)} - found
        found |= wanted
    return sorted(found - {1})


def row_sums(rows: Floats, widths: Iterable[int]) -> dict[int, Floats]:
    """Rows (k,...) -> for each width that is asked for or on the way to one: its sums (k+1-width,...), in order."""
    sums = {1: rows}
    for width in steps(frozenset(widths)):
        older, newer = halves(width)
        sums[width] = sums[older][: len(sums[newer]) - older] + sums[newer][older:]
    return sums


def window_sums(rows: Floats, spans: Sequence[tuple[int, int]], count: int) -> list[Floats]:
    """For each (begin, width) sums of `width` consecutive rows: contiguous (...,k) -> (...,count), from `begin` on.

    All features are one long row here, which numpy walks through piece by piece, so that what is added up stays in the
    cache; what is added up across borders of features is left out of the result.
    """
    flat, wanted = rows.reshape(-1), {width for _, width in spans}
    widest, additions = max(wanted), [(width, *halves(width)) for width in steps(frozenset(wanted))]
    totals = {width: np.empty(len(flat) + 1 - width, np.float32) for width in wanted - {1}}
    piece = min(PIECE, len(flat) + 1 - widest)
    scratch = {width: np.empty(piece + widest - width, np.float32) for width, _, _ in additions if width not in totals}
    for first in range(0, len(flat) + 1 - widest, PIECE):
        sums = {1: flat[first : first + PIECE + widest - 1]}
        for width, older, newer in additions:
            size = len(sums[1]) + 1 - width
            total = totals[width][first : first + size] if width in totals else scratch[width][:size]
            sums[width] = np.add(sums[older][:size], sums[newer][older : older + size], out=total)
    totals[1] = flat
    shape = (*rows.shape[:-1], count)
    return [np.ndarray(shape, np.float32, totals[width][begin:], strides=rows.strides) for begin, width in spans]
