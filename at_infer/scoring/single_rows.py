"""The next single row of each of some series in a few steps: the way of live rows through the scoring core.

`RowScorer.push` and its merge serve any number of rows of any series. Of a series that is under way without a gap, one
more row makes one more window and one final row, so most of their work is known in advance. The numbers are the same:
the same windows, the same engine, the same last step.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from at_infer.errors import EngineError
from at_infer.models.season import Season
from at_infer.scoring.series import SeriesState
from at_infer.scoring.windows import Floats, LastOfWindow

if TYPE_CHECKING:
    from at_infer.scoring.rows import RowScorer


class SingleRows:
    """Rows of different series, one of each."""

    def __init__(self, core: "RowScorer", step: Callable[[Sequence[object], Floats], Floats], most: int) -> None:
        """`step` is the last step of many; the engine gets up to `most` windows at once."""
        self.core, self.step, self.most = core, step, most
        self.window, self.longest_step = core.layout.window, core.settings.longest_step
        self.season: Season | None = core.settings.season
        self.fills = core.settings.fill != "error"
        self.windows = np.empty((most, self.window, core.width), np.float32)

    @classmethod
    def of(cls, core: "RowScorer", most: int) -> "SingleRows | None":
        """None if rows are not scored one by one, or may lack features."""
        settings, layout = core.settings, core.layout
        one_by_one = layout.align == "last" and layout.stride == 1 and layout.delay == 0
        live = settings.on_bad_rows == "keep" and core.counted is None and core.skip_before <= 0
        step = settings.step_together
        return cls(core, step, most) if one_by_one and live and step is not None and not settings.mask else None

    def fits(self, series: SeriesState, time: float | None) -> bool:
        """Does the next row of a series, which is finite, end a window, continue it, and make one row final?"""
        stretch = series.stretch
        if stretch.next_start + self.window != stretch.rows + 1 or not stretch.finisher.is_steady:
            return False
        if self.longest_step is None or time is None or series.time is None:
            return True
        return abs(time - series.time) <= self.longest_step

    def score(self, series: Sequence[SeriesState], rows: Floats, times: Sequence[float | None]) -> Floats | None:
        """One row (S,F) of each series, changed in place -> what is final (S,C); None: `take` of the core has it."""
        core, count = self.core, len(series)
        if self.season is not None:
            self.season.subtract(rows, np.array(times, np.float64))
        for k, (one, time) in enumerate(zip(series, times, strict=True)):
            stretch = one.stretch
            self.windows[k] = stretch.slide(rows[k], self.window)
            if self.fills:
                stretch.filler.last = stretch.buffer[-1]
            if time is not None and self.longest_step is not None:
                one.time = time
        core.counts.rows += count
        core.counts.windows += count
        try:
            found: Floats = core.score(self.windows[:count])[:, -1]
        except EngineError as error:
            first, end = (one.stretch.first_row + one.stretch.next_start - 1 for one in (series[0], series[-1]))
            last = min(end + self.window, core.counts.rows) - 1
            raise EngineError(f"rows {first} to {last}: {error}") from None
        fusions = []
        for one in series:
            stretch = one.stretch
            assert isinstance(stretch.merger, LastOfWindow)
            stretch.merger.done += 1
            fusions.append(stretch.finisher)
        if np.isnan(found.min()):  # the engine overflowed: such a series begins anew
            core.finish([(one.stretch, found[k : k + 1]) for k, one in enumerate(series)])
            return None
        return self.step(fusions, found)
