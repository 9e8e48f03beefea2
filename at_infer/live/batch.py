"""Rows that were pushed into a stream together, on their way through the scoring core and back to their places."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from at_infer.live.pushed import FeatureChange, LiveSeries, Pushed, SeriesName, Taken
from at_infer.models.spacing import Times, find_gaps
from at_infer.scoring.missing import TOLD_AFTER
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.series import Stretch
from at_infer.scoring.windows import Floats


@dataclass(slots=True)
class _Rows:
    """Rows of one stretch of a series."""

    series: LiveSeries
    rows: list[int] = field(default_factory=list)
    gap: int | None = None
    """Row that the stretch ends before."""


@dataclass(slots=True)
class _OfSeries:
    """Rows of one series, until all have come."""

    series: LiveSeries
    taken: Taken
    rows: list[int] = field(default_factory=list)
    times: list[Times | None] = field(default_factory=list)


class StreamBatch:
    """Collects rows, gives those of each series to the core together, and puts what comes out into `pushed`."""

    def __init__(self, core: RowScorer, values: Floats, pushed: Pushed, delay: int) -> None:
        self.core, self.values, self.pushed, self.delay = core, values, pushed, delay
        self.series: dict[int, _OfSeries] = {}
        """By identity: a name may stand for two of them, if the first was dropped."""
        self.stretches: dict[Stretch, _Rows] = {}

    def add(self, row: int, name: SeriesName, known: LiveSeries, time: Times | None) -> None:
        """A row that is fit to be scored."""
        if id(known) not in self.series:
            self.series[id(known)] = _OfSeries(known, self.pushed.taken.setdefault(name, Taken()))
        of_series = self.series[id(known)]
        of_series.taken.rows.append(row)
        of_series.rows.append(row)
        of_series.times.append(time)

    def score(self) -> None:
        """All of them; scores that are final come out."""
        for of_series in self.series.values():
            self._push(of_series)
        self.core.flush()
        final: dict[Stretch, list[Floats]] = {}
        for scored in self.core.take():
            final.setdefault(scored.stretch, []).extend(scored.channels)
        late: list[Floats] = []
        for stretch, rows in final.items():
            late += self._place(self.stretches[stretch], rows)
        if late:
            self.pushed.channels = np.concatenate([self.pushed.channels, np.stack(late)])
            self.pushed.score = self.pushed.channels[:, 0]

    def _place(self, of: _Rows, final: list[Floats]) -> list[Floats]:
        """One final row for each that came; those that a gap made final too, which have no place, are returned."""
        pushed, waiting = self.pushed, of.series.waiting
        at_once = len(final) - (0 if of.gap is None else min(self.delay, len(final)))
        for i, row in zip(of.rows[len(of.rows) - at_once :], final[:at_once], strict=True):
            pushed.channels[i], pushed.tags[i] = row, waiting.popleft()
        if of.gap is not None:
            first = len(pushed.tags)
            pushed.ended[of.gap] = range(first, first + len(final) - at_once)
            pushed.tags += [waiting.popleft() for _ in pushed.ended[of.gap]]
        return final[at_once:]

    def _push(self, of: _OfSeries) -> None:
        """Into the core: up to each gap, or one by one where features may be missing."""
        known, rows = of.series, of.rows
        state, longest = known.state, self.core.settings.longest_step
        if len(rows) == 1:
            times, begins = of.times[0], [0]
        else:
            told = [time for time in of.times if time is not None]
            times = np.concatenate(told) if len(told) == len(of.times) else None
            if self.core.settings.mask or (times is None and told):
                begins = list(range(len(rows)))
            else:
                gaps = [] if times is None or longest is None else find_gaps(times, longest, state.time).tolist()
                begins = sorted({0, *gaps})
        for begin, end in pairwise([*begins, len(rows)]):
            before = state.stretch
            gone = None if before.missing is None else before.missing.run.copy()
            first = rows[begin]
            part = self.values[first : first + 1] if end == begin + 1 else self.values[rows[begin:end]]
            self.core.push(state, part, times=None if times is None else times[begin:end])
            if gone is not None:
                self._note_features(rows[begin], gone, known)
            if state.stretch is not before:
                self.stretches.setdefault(before, _Rows(known)).gap = rows[begin]
                of.taken.gaps.add(rows[begin])
            self.stretches.setdefault(state.stretch, _Rows(known)).rows += rows[begin:end]

    def _note_features(self, i: int, before: NDArray[np.int64], known: LiveSeries) -> None:
        """What row `i` shows of features that have no value, or have one again."""
        missing = known.state.stretch.missing
        assert missing is not None
        for j in np.flatnonzero((before > 0) | (missing.run > 0)).tolist():
            run = int(missing.run[j])
            rows = run or int(before[j])
            if rows == TOLD_AFTER if run else rows >= TOLD_AFTER:
                name = str(self.core.settings.columns[j])
                self.pushed.features.append(FeatureChange(i, name, run == 0, rows))
