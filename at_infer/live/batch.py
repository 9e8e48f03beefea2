"""Rows that were pushed into a stream together, on their way through the scoring core and back to their places."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.live.pushed import FeatureChange, LiveSeries, Pushed, SeriesName, Taken
from at_infer.models.spacing import find_gaps
from at_infer.scoring.missing import TOLD_AFTER
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.series import Stretch
from at_infer.scoring.single_rows import SingleRows
from at_infer.scoring.windows import Floats


@dataclass(slots=True)
class _Rows:
    """Rows of one stretch of a series."""

    series: LiveSeries
    rows: list[int] = field(default_factory=list)
    gap: int | None = None
    """Row that the stretch ends before."""


class _Entry(NamedTuple):
    """A row that is fit to be scored."""

    row: int
    name: SeriesName
    series: LiveSeries
    time: float | None


@dataclass(slots=True)
class _OfSeries:
    """Rows of one series, until all have come."""

    series: LiveSeries
    taken: Taken
    rows: list[int] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)


class StreamBatch:
    """Collects rows, gives those of each series to the core together, and puts what comes out into `pushed`."""

    def __init__(self, core: RowScorer, values: Floats, pushed: Pushed, delay: int, *, complete: bool) -> None:
        """`complete`: no value is missing or infinite."""
        self.core, self.values, self.pushed, self.delay, self.complete = core, values, pushed, delay, complete
        self.entries: list[_Entry] = []
        self.series: dict[int, _OfSeries] = {}
        """By identity: a name may stand for two of them, if the first was dropped."""
        self.stretches: dict[Stretch, _Rows] = {}

    def add(self, row: int, name: SeriesName, known: LiveSeries, time: float | None) -> None:
        """A row that is fit to be scored."""
        self.entries.append(_Entry(row, name, known, time))

    def score(self) -> None:
        """All of them; scores that are final come out."""
        single = self.core.single
        if single is not None and len({id(entry.series) for entry in self.entries}) == len(self.entries):
            chosen = [entry for entry in self.entries if single.fits(entry.series.state, entry.time)]
            if not self.complete:
                chosen = [entry for entry in chosen if np.isfinite(self.values[entry.row]).all()]
            if len(chosen) < len(self.entries):
                taken = {entry.row for entry in chosen}
                self._collect([entry for entry in self.entries if entry.row not in taken])
            for first in range(0, len(chosen), single.most):
                self._score_single(single, chosen[first : first + single.most])
            if not self.series and not self.stretches:
                return
        else:
            self._collect(self.entries)
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

    def _collect(self, entries: list[_Entry]) -> None:
        """Rows by series."""
        for row, name, known, time in entries:
            if id(known) not in self.series:
                self.series[id(known)] = _OfSeries(known, self.pushed.taken.setdefault(name, Taken()))
            of_series = self.series[id(known)]
            of_series.taken.rows.append(row)
            of_series.rows.append(row)
            of_series.times.append(time)

    def _score_single(self, single: SingleRows, entries: list[_Entry]) -> None:
        """Rows of different series, each of which makes one final."""
        rows = [entry.row for entry in entries]
        values = self.values[rows[0] : rows[0] + len(rows)] if rows[-1] - rows[0] < len(rows) else self.values[rows]
        found = single.score([entry.series.state for entry in entries], values, [entry.time for entry in entries])
        if found is None:
            self.stretches |= {entry.series.state.stretch: _Rows(entry.series, [entry.row]) for entry in entries}
            return
        tags = self.pushed.tags
        self.pushed.channels[rows] = found
        for row, _, known, _ in entries:
            tags[row] = known.waiting.popleft()

    def _place(self, of: _Rows, final: list[Floats]) -> list[Floats]:
        """One final row for each that came; those that waited longer, which have no place, are returned.

        A gap makes such rows final, and so does a row whose values overflow in the engine: scores begin anew.
        """
        pushed, waiting = self.pushed, of.series.waiting
        at_once = len(final) - (0 if of.gap is None else min(self.delay, len(final)))
        early = max(0, at_once - len(of.rows))
        if early:
            first = len(pushed.tags)
            pushed.ended[of.rows[0]] = range(first, first + early)
            pushed.tags += [waiting.popleft() for _ in range(early)]
            return [*final[:early], *self._place(of, final[early:])]
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
            times, begins = None if of.times[0] is None else np.array(of.times, np.float64), [0]
        else:
            told = [time for time in of.times if time is not None]
            times = np.array(told, np.float64) if len(told) == len(of.times) else None
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
