"""Learns the median time step, and cuts series at gaps."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from at_infer.errors import DataError
from at_infer.models.spacing import MAX_GAP, Grid, Spacing, find_gaps, grid_max_gap
from at_infer.tables import Table
from training.scaling import Span

MOST_GAPS = 0.03  # share of the steps; rows that pause more often come irregularly by nature
MOST_GAPS_ON_GRID = 0.5


def learn_spacing(
    table: Table, spans: Sequence[Span], max_gap: int | None, grid: Grid | None = None
) -> tuple[Spacing | None, list[str]]:
    """Of the training part, and what a user should know of it.

    None if there are no times that can be subtracted. Where steps vary so much that gaps are usual, none are looked
    for, unless `max_gap` asks for it. A grid has the step that it has.
    """
    if table.times is None or table.clock is None:
        return None, []
    steps = np.concatenate([np.empty(0), *(np.diff(table.times[first:end]) for first, end in spans)])
    if grid is not None:
        spacing = Spacing(step=grid.interval_s, clock="date", max_gap=grid_max_gap(max_gap))
        if len(steps) and (steps > (spacing.longest_step() or 0.0)).mean() > MOST_GAPS_ON_GRID:
            raise DataError(
                f"{table.source}: most rows are more than {spacing.max_gap} intervals of {grid} apart; give a longer "
                f"`interval`, or a larger `max_gap`"
            )
        return spacing, []
    if not len(steps) or not np.median(steps) > 0:  # differences below the precision of a float
        return None, []
    spacing = Spacing(step=float(np.median(steps)), clock=table.clock, max_gap=MAX_GAP if max_gap is None else max_gap)
    longest = spacing.longest_step()
    share = 0.0 if longest is None else float((steps > longest).mean())
    if max_gap is None and share > MOST_GAPS:
        spacing = Spacing(step=spacing.step, clock=table.clock, max_gap=0)
        return spacing, [
            f"{share:.0%} of the time steps exceed {MAX_GAP} median steps ({describe_step(spacing)}), so the rows are "
            f"irregular: gaps in time are ignored; give `max_gap` to detect them"
        ]
    return spacing, []


def cut_at_gaps(table: Table, spans: Sequence[Span], spacing: Spacing | None) -> list[Span]:
    """Stretches of the series without a gap, in order."""
    longest = None if spacing is None else spacing.longest_step()
    if longest is None or table.times is None or spacing is None or spacing.clock != table.clock:
        return list(spans)
    found: list[Span] = []
    for first, end in spans:
        cuts = [first, *(first + find_gaps(table.times[first:end], longest)).tolist(), end]
        found += list(pairwise(cuts))
    return found


def describe_step(spacing: Spacing) -> str:
    """For people."""
    return f"{spacing.step:g} s" if spacing.clock == "date" else f"{spacing.step:g}"
