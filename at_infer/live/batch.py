"""Rows that were pushed into a stream together, on their way through the scoring core and back to their places."""

from dataclasses import dataclass, field
from itertools import pairwise

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


@dataclass(slots=True)
class _OfSeries:
    """Rows of one series, until all have come."""

    series: LiveSeries
    name: SeriesName
    rows: list[int]
    times: list[float | None]


class StreamBatch:
    """Collects rows, gives those of each series to the core together, and puts what comes out into `pushed`."""

    def __init__(self, core: RowScorer, values: Floats, pushed: Pushed, delay: int, *, complete: bool) -> None:
        """`complete`: no value is missing or infinite."""
        self.core, self.values, self.pushed, self.delay, self.complete = core, values, pushed, delay, complete
        self.series: dict[int, _OfSeries] = {}
        """By identity: a name may stand for two of them, if the first was dropped."""
        self.stretches: dict[Stretch, _Rows] = {}

    def add(self, row: int, name: SeriesName, known: LiveSeries, time: float | None) -> None:
        """A row that is fit to be scored."""
        of = self.series.get(id(known))
        if of is None:
            self.series[id(known)] = _OfSeries(known, name, [row], [time])
        else:
            of.rows.append(row)
            of.times.append(time)

    def score(self) -> None:
        """All of them; scores that are final come out."""
        single, all_of = self.core.single, list(self.series.values())
        if single is not None:
            short = [of for of in all_of if self._is_short(single, of)]
            if short:
                self._score_single(single, short)
            if len(short) == len(all_of):
                return
            taken = set(map(id, short))
            all_of = [of for of in all_of if id(of) not in taken]
        for of in all_of:
            self._push(of)
        self.core.flush()
        self._take()

    def _is_short(self, single: SingleRows, of: _OfSeries) -> bool:
        """May all rows of the series take the short way?"""
        return single.fits(of.series.state, of.times) and bool(self.complete or np.isfinite(self.values[of.rows]).all())

    def _take(self) -> None:
        """What the core has made final, to its places."""
        final: dict[Stretch, list[Floats]] = {}
        for scored in self.core.take():
            final.setdefault(scored.stretch, []).extend(scored.channels)
        late: list[Floats] = []
        for stretch, rows in final.items():
            late += self._place(self.stretches[stretch], rows)
        self.stretches.clear()
        if late:
            self.pushed.channels = np.concatenate([self.pushed.channels, np.stack(late)])
            self.pushed.score = self.pushed.channels[:, 0]

    def _score_single(self, single: SingleRows, short: list[_OfSeries]) -> None:
        """Rows each of which makes one final."""
        all_known = [of.series for of in short for _ in of.rows]
        all_rows, all_times = [row for of in short for row in of.rows], [time for of in short for time in of.times]
        tags, steady = self.pushed.tags, True
        for first in range(0, len(all_rows), single.most):
            part = slice(first, first + single.most)
            rows, known = all_rows[part], all_known[part]
            together = range(rows[0], rows[0] + len(rows))
            values = self.values[together.start : together.stop] if rows == list(together) else self.values[rows]
            found = single.score([one.state for one in known], values, all_times[part], steady=steady)
            if found is None:
                steady = False
                for row, one in zip(rows, known, strict=True):
                    self.stretches.setdefault(one.state.stretch, _Rows(one)).rows.append(row)
                self._take()
                continue
            self.pushed.channels[rows] = found
            for row, one in zip(rows, known, strict=True):
                tags[row] = one.waiting.popleft()

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
        known, rows, taken = of.series, of.rows, self.pushed.taken.setdefault(of.name, Taken())
        taken.rows += rows
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
                taken.gaps.add(rows[begin])
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
