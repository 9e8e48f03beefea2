"""The next rows of some series in a few steps: the way of live rows through the scoring core.

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
from at_infer.scoring.settings import Finisher
from at_infer.scoring.windows import Floats, LastOfWindow

if TYPE_CHECKING:
    from at_infer.scoring.rows import RowScorer


class SingleRows:
    """Rows of series that are under way."""

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

    def fits(self, series: SeriesState, times: Sequence[float | None]) -> bool:
        """Do the next rows of a series, which are finite, each end a window, continue it, and make one row final?"""
        stretch, last = series.stretch, series.time
        if stretch.next_start + self.window != stretch.rows + 1 or not stretch.finisher.is_steady:
            return False
        if self.longest_step is not None:
            for time in times:
                if time is not None and last is not None and abs(time - last) > self.longest_step:
                    return False
                last = last if time is None else time
        return True

    def score(
        self, series: Sequence[SeriesState], rows: Floats, times: Sequence[float | None], *, steady: bool
    ) -> Floats | None:
        """Rows (n,F), changed in place, with the series of each, those of one side by side -> what is final (n,C).

        None: `take` of the core has it. `steady`: no series has begun anew since `fits` was asked.
        """
        core, count = self.core, len(series)
        if self.season is not None:
            self.season.subtract(rows, np.array(times, np.float64))
        first = series[0].stretch.first_row + series[0].stretch.next_start
        fusions: list[Finisher] = []
        begin = 0
        for end in range(1, count + 1):
            one = series[begin]
            if end < count and series[end] is one:
                continue
            stretch, more = one.stretch, end - begin
            seen = stretch.slide(rows[begin:end], self.window)
            if more > 1:
                by_row, by_column = seen.strides
                shape, strides = (more, self.window, core.width), (by_row, by_row, by_column)
                seen = np.ndarray(shape, np.float32, seen, strides=strides)
            self.windows[begin:end] = seen
            if self.fills:
                stretch.filler.last = stretch.buffer[-1]
            if self.longest_step is not None:
                one.time = next((time for time in reversed(times[begin:end]) if time is not None), one.time)
            assert isinstance(stretch.merger, LastOfWindow)
            stretch.merger.done += more
            fusions += [stretch.finisher] * more
            begin = end
        core.counts.rows += count
        core.counts.windows += count
        try:
            found: Floats = core.score(self.windows[:count])[:, -1]
        except EngineError as error:
            end = series[-1].stretch.first_row + series[-1].stretch.next_start - 1 + self.window
            raise EngineError(f"rows {first} to {min(end, core.counts.rows) - 1}: {error}") from None
        if not steady or np.isnan(found.min()):  # where the engine overflows, a series begins anew
            core.finish([(one.stretch, found[k : k + 1]) for k, one in enumerate(series)])
            return None
        return self.step(fusions, found)
