"""Windows of a data file as a model would score them, to check or calibrate engines on."""

import numpy as np

from at_infer.errors import DataError
from at_infer.models.knowledge import Knowledge
from at_infer.models.spacing import MAX_GAP
from at_infer.scoring.missing import Filler
from at_infer.scoring.windows import Floats, window_starts
from at_infer.tables import read_table
from at_infer.tables.clock import NEEDED
from at_infer.tables.keys import open_files
from at_infer.tables.resample import OnGrid


def real_windows(source: str, model: Knowledge, *, most: int | None = None) -> Floats:
    """Windows (B,N,F) side by side as the graph takes them: without season, gaps filled; at most `most`, spread out.

    The series column of the model counts if the file has it; rows that fill no window are left out.
    """
    series = model.series_column if model.series_column in open_files(source)[0].schema else None
    season, on_grid = model.season, None
    if model.grid is not None:
        steps = MAX_GAP if model.spacing is None else model.spacing.max_gap
        on_grid = OnGrid(model.grid, steps, carry=model.fill == "error")
    table = read_table(
        source,
        columns=model.columns,
        series_column=series,
        time_column=None if season is None and on_grid is None else model.time_column,
        clock=season is not None,
        on_grid=on_grid,
    )
    if season is not None:
        if table.seconds is None:
            raise DataError(f"{source}: column {model.time_column!r} holds no dates and times; {NEEDED}")
        season.subtract(table.values, table.seconds)
    window, first = model.model.window, 0
    starts = []
    for _, rows in table.series:
        Filler(model.fill, model.scaler.mean).apply(table.values[first : first + rows])
        starts += (first + window_starts(rows, window, window, cover_tail=False)).tolist()
        first += rows
    if not starts:
        longest = max(rows for _, rows in table.series)
        raise DataError(f"{source}: has {longest} rows in a series, fewer than the model's window of {window}")
    bad = ~np.isfinite(table.values)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"{source}: column {model.columns[column]!r} has no finite value in row {row}; fix or drop that row"
        )
    chosen = np.linspace(0, len(starts) - 1, len(starts) if most is None else min(most, len(starts))).astype(int)
    return np.stack([table.values[starts[k] : starts[k] + window] for k in chosen])
