"""StreamScorer: rows of many series as they come, each scored as the last of its window."""

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from at_infer.engines import Engine
from at_infer.errors import ConfigError, DataError
from at_infer.live.state import load_state, save_state
from at_infer.live.times import Moment, Time, TimeOrderError, check_order, moment, seconds
from at_infer.models.spacing import Times, find_gaps
from at_infer.scoring.missing import TOLD_AFTER
from at_infer.scoring.options import EngineOptions, ScoreOptions
from at_infer.scoring.scorer import Scorer
from at_infer.scoring.series import Bools, SeriesState, Stretch
from at_infer.scoring.windows import Floats
from at_infer.tables.clock import seconds_of
from at_infer.tables.columns import BadTime

SeriesName = Hashable
"""Whatever the series column holds."""

MAX_SERIES = 10_000
SMALL_BATCH = 32  # windows of a small network, whose series are then worked on together
OUTAGE_S = 600.0
"""Without a value of a feature, worth an incident, but at least as many rows as a message."""
OUTAGE_ROWS = 60
"""The same for a model that does not know how long a row takes."""


class StreamScore(NamedTuple):
    """Of one row; no score before a series has a full window, nor between the rows that `every` asks for.

    With a delay it is the score of the row so many rows earlier in the series.
    """

    score: float | None
    is_anomaly: bool


class FeatureChange(NamedTuple):
    """A feature of a series has had no value for a while, or has one again."""

    row: int
    """Of those pushed: the one that shows it."""
    feature: str
    is_back: bool
    rows: int
    """How many it has been without a value."""
    series_row: int
    """The row that shows it, counted within the series."""


@dataclass(slots=True)
class Pushed:
    """What became of some rows."""

    score: Floats
    """One entry per row; NaN: no score. With a delay, of the row so many rows earlier in the series."""
    is_anomaly: Bools
    tags: list[Any]
    """Of the rows that the scores belong to; None: no row is final yet."""
    channels: Floats
    """(n,C) of the scoring core: the score, and with `explain` what `reasons` makes of the others."""
    ended: dict[int, range] = field(default_factory=dict)
    """Rows that found a gap in time before them: entries beyond those of the rows themselves, final because of it."""
    dropped_rows: int = 0
    """Rows that were left out without a word, because their times do not rise."""
    notes: list[str] = field(default_factory=list)
    """What should be told once."""
    features: list[FeatureChange] = field(default_factory=list)
    """Features that have gone missing, or are back."""
    outages: list[FeatureChange] = field(default_factory=list)
    """The same for incidents: from the first row without a value, and each time as many more as are worth one."""
    refused: dict[int, str] = field(default_factory=dict)
    """Rows that were not taken, and why. The series goes on as if they had not come."""
    dropped: list[SeriesName] = field(default_factory=list)
    """Series that had to make room for others."""

    def in_order(self) -> Iterator[int]:
        """Numbers of the entries, those of each series in the order of its rows."""
        for i in range(len(self.tags) - sum(map(len, self.ended.values()))):
            yield from self.ended.get(i, ())
            yield i


@dataclass(slots=True)
class LiveSeries:
    """What a stream remembers of a series."""

    state: SeriesState
    time: tuple[Moment, Time] | None = None
    """Of its last row."""
    waiting: deque[Any] = field(default_factory=deque)
    """Tags of rows that are not final."""
    rows: int = 0
    """That have come."""


@dataclass(slots=True)
class _Taken:
    """Rows of one stretch of a series, among those that were pushed together."""

    series: LiveSeries
    rows: list[int] = field(default_factory=list)
    gap: int | None = None
    """Row that the stretch ends before."""


class StreamScorer:
    """Scores rows as they come, exactly as `at-infer score --align last` scores them in a file.

    >>> with StreamScorer("model.onnx") as stream:                         # doctest: +SKIP
    ...     for row in rows:                                               # F numbers, or a mapping by column name
    ...         score, is_anomaly = stream.push(row, series="pump 7")

    `push_many` takes rows of any series together and gives their windows to the engine in batches. With `every` K,
    every K-th row of a series is scored. `max_series` bounds the memory: the least recently seen series is dropped.
    With `delay` K a row is scored when K more have come, which finds more. A gap in time begins a series anew; rows
    that waited for more are then final, and in `Pushed.ended`.
    """

    def __init__(
        self,
        engine: str | Path | Engine,
        options: ScoreOptions | None = None,
        engine_options: EngineOptions | None = None,
        *,
        every: int = 1,
        delay: int | None = None,
        max_series: int = MAX_SERIES,
        on_bad_time: BadTime = "error",
    ) -> None:
        options = options or ScoreOptions()
        for name, value in (("every", every), ("max series", max_series)):
            if value < 1:
                raise ConfigError(f"{name}: {value} is too small; at least 1")
        late = options.delay if delay is None else delay
        self.scorer = Scorer(engine, replace(options, align="last", delay=late), engine_options)
        try:
            few = self.scorer.batch_size_for(0)
            asked = self.scorer.engine_options.batch_size is not None
            self.batch_size = few if asked or self.scorer.engine.lanes < 2 else max(few, SMALL_BATCH)
            self.metadata, self.threshold = self.scorer.metadata, self.scorer.threshold
            if self.scorer.grid is not None:
                raise ConfigError(
                    f"interval: rows of a stream are not put on a grid ({self.scorer.grid}); send one row per "
                    f"interval, and pass interval='none'"
                )
            if every > 1 and self.scorer.config.mode == "fusion":
                raise ConfigError("every: mode fusion needs every row; leave it out, or choose another score mode")
            layout = replace(self.scorer.layout, stride=every)
            settings = replace(self.scorer.row_settings, layout=layout, on_bad_rows="keep", short_series="skip")
            self.core = self.scorer.rows(self.batch_size, settings=settings)
        except BaseException:
            self.close()
            raise
        self.every, self.max_series, self.on_bad_time = every, max_series, on_bad_time
        self.clock, self._clock_is_told = self.scorer.clock, False
        self.series: dict[SeriesName, LiveSeries] = {}
        """Least recently seen first."""

    def push(
        self, row: ArrayLike | Mapping[str, Any], *, series: SeriesName = "", time: Time | None = None
    ) -> StreamScore:
        """Take one row of a series: values in the order of the model's columns, or by name; None is missing.

        Raises `DataError` for a row that cannot be used; the stream goes on without it.
        """
        values: Any = [row]
        if isinstance(row, Mapping):
            absent = [name for name in self.metadata.columns if name not in row]
            if absent and not self.scorer.masks:
                raise DataError(f"row: column {absent[0]!r} is missing")
            values = [[row.get(name) for name in self.metadata.columns]]
        pushed = self.push_many(values, [series], None if time is None else [time])
        if pushed.refused:
            raise DataError(f"row: {pushed.refused[0]}")
        score = float(pushed.score[0])
        return StreamScore(None if np.isnan(score) else score, bool(pushed.is_anomaly[0]))

    def push_many(
        self,
        rows: ArrayLike,
        series: Sequence[SeriesName] | None = None,
        times: Sequence[Time] | None = None,
        tags: Sequence[Any] | None = None,
    ) -> Pushed:
        """Take rows (n,F) of any series in the order they came; without `series` they are all of one.

        With a delay, `tags` come back with the scores of their rows; by default these are the numbers of the rows.
        """
        values = self._numbers(rows)
        names = [""] * len(values) if series is None else series
        if len(names) != len(values) or (times is not None and len(times) != len(values)):
            raise DataError(f"rows: there are {len(values)}, with {len(names)} series and {len(times or names)} times")
        count = len(values)
        channels = np.full((count, self.core.settings.channels), np.nan, np.float32)
        pushed = Pushed(channels[:, 0], np.zeros(count, np.bool_), [None] * count, channels)
        self._refuse_values(values, pushed.refused)
        together: dict[SeriesState, tuple[LiveSeries, list[int], list[Times | None]]] = {}
        for i, name in enumerate(names):
            if i not in pushed.refused and (known := self._enter(i, name, times, pushed)) is not None:
                _, numbers, clock = together.setdefault(known.state, (known, [], []))
                numbers.append(i)
                clock.append(self._times(known, pushed))
                known.waiting.append(i if tags is None else tags[i])
        taken: dict[Stretch, _Taken] = {}
        for known, numbers, clock in together.values():  # all rows of a series together, whatever came between them
            self._push(known, numbers, clock, values, pushed, taken)
        self.core.flush()
        final: dict[Stretch, list[Floats]] = {}
        for scored in self.core.take():
            final.setdefault(scored.stretch, []).extend(scored.channels)
        late: list[Floats] = []
        for stretch, rows_of in final.items():
            known, numbers, gap = taken[stretch].series, taken[stretch].rows, taken[stretch].gap
            at_once = len(rows_of)
            if gap is not None:  # those that have waited for more rows
                at_once -= min(self.scorer.delay, at_once)
                first = len(pushed.tags)
                pushed.ended[gap] = range(first, first + len(rows_of) - at_once)
                late += rows_of[at_once:]
            for i, row in zip(numbers[len(numbers) - at_once :], rows_of[:at_once], strict=True):  # one each
                channels[i], pushed.tags[i] = row, known.waiting.popleft()
            if gap is not None:
                pushed.tags += [known.waiting.popleft() for _ in pushed.ended[gap]]
        if late:
            pushed.channels = np.concatenate([channels, np.stack(late)])
            pushed.score = pushed.channels[:, 0]
        pushed.is_anomaly = self.scorer.verdict(pushed.score)
        return pushed

    def drain(self) -> Pushed:
        """No more rows come: the scores of those that wait for others behind them; every series begins anew."""
        for known in self.series.values():
            self.core.end(known.state)
        self.core.flush()
        waiting = {known.state: known.waiting for known in self.series.values()}
        found = [np.empty((0, self.core.settings.channels), np.float32)]
        tags: list[Any] = []
        for scored in self.core.take():
            found.append(scored.channels)
            tags += [waiting[scored.series].popleft() for _ in scored.channels]
        for known in self.series.values():
            known.state = self.core.start(known.state.name)
        channels = np.concatenate(found)
        return Pushed(channels[:, 0], self.scorer.verdict(channels[:, 0]), tags, channels)

    def save(self, path: str | Path, extra: Mapping[str, Any] | None = None) -> None:
        """Write all that is remembered of the series, and `extra` as JSON, to a file: complete or not at all."""
        save_state(Path(path), self, dict(extra or {}))

    def load(self, path: str | Path) -> dict[str, Any]:
        """Go on where `save` was called, and return its `extra`; refuses the state of another model or score."""
        return load_state(Path(path), self)

    def close(self) -> None:
        """Free what the engine holds; an engine that was given open stays open."""
        self.scorer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _numbers(self, rows: ArrayLike) -> Floats:
        features = self.metadata.model.features
        try:
            with np.errstate(over="ignore"):  # too large for float32: infinite, and refused as such
                values = np.array(rows, np.float32, ndmin=2)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"rows: are not numbers of shape (n, {features}) ({error})") from None
        if values.ndim != 2 or values.shape[1] != features:
            raise DataError(f"rows: have shape {list(values.shape)}, the model takes (n, {features})")
        return values

    def _refuse_values(self, values: Floats, refused: dict[int, str]) -> None:
        """Infinities never fit, gaps only if the model has a way to fill them."""
        if self.scorer.masks:
            unusable = np.isinf(values) | np.isnan(values).all(axis=1, keepdims=True)
        else:
            unusable = ~np.isfinite(values) if self.metadata.fill == "error" else np.isinf(values)
        if not unusable.any():
            return
        for i in np.flatnonzero(unusable.any(axis=1)).tolist():
            j = int(np.flatnonzero(unusable[i])[0])
            what = "has no value" if np.isnan(values[i, j]) else "is infinite, or too large for float32"
            refused[i] = f"column {self.metadata.columns[j]!r} {what}"

    def _enter(self, i: int, name: SeriesName, times: Sequence[Time] | None, pushed: Pushed) -> LiveSeries | None:
        """The series of row `i`, now the one most recently seen; None if its time does not fit."""
        known = self.series.get(name)
        now: tuple[Moment, Time] | None = None
        if times is None and self.metadata.season is not None:
            pushed.refused[i] = "has no time; the model subtracts a season and needs it"
            return None
        if times is not None:
            try:
                now = (moment(times[i]), times[i])
                if self.metadata.season is not None:
                    seconds(*now)
                if known is not None and known.time is not None and self.on_bad_time != "ignore":
                    check_order(known.time[0], now[0], known.time[1], times[i])
            except TimeOrderError as error:
                if self.on_bad_time == "drop":
                    pushed.dropped_rows += 1
                else:
                    pushed.refused[i] = str(error)
                return None
            except DataError as error:
                pushed.refused[i] = str(error)
                return None
        if known is None:
            if len(self.series) == self.max_series:
                oldest = next(iter(self.series))
                del self.series[oldest]
                pushed.dropped.append(oldest)
            known = LiveSeries(self.core.start(str(name)))
        else:
            del self.series[name]
        self.series[name] = known
        known.time = now or known.time
        return known

    def _push(
        self,
        known: LiveSeries,
        numbers: list[int],
        clock: list[Times | None],
        values: Floats,
        pushed: Pushed,
        taken: dict[Stretch, _Taken],
    ) -> None:
        """Rows of one series into the core: up to each gap, or one by one where features may be missing."""
        state, longest = known.state, self.core.settings.longest_step
        told = [time for time in clock if time is not None]
        times = np.concatenate(told) if len(told) == len(clock) else None
        if self.core.settings.mask or (times is None and told):
            begins = list(range(len(numbers)))
        else:
            gaps = [] if times is None or longest is None else find_gaps(times, longest, state.time).tolist()
            begins = sorted({0, *gaps})
        for begin, end in pairwise([*begins, len(numbers)]):
            before = state.stretch
            gone = None if before.missing is None else before.missing.run.copy()
            self.core.push(state, values[numbers[begin:end]], times=None if times is None else times[begin:end])
            if gone is not None:
                self._note_features(numbers[begin], gone, known, pushed)
            known.rows += end - begin
            if state.stretch is not before:
                taken.setdefault(before, _Taken(known)).gap = numbers[begin]
            taken.setdefault(state.stretch, _Taken(known)).rows += numbers[begin:end]

    @property
    def outage_rows(self) -> int:
        """Rows without a value of a feature that are worth an incident."""
        spacing = self.metadata.spacing
        known = spacing is not None and spacing.clock == "date"
        return max(TOLD_AFTER, ceil(OUTAGE_S / spacing.step)) if spacing is not None and known else OUTAGE_ROWS

    def _note_features(self, i: int, before: NDArray[np.int64], known: LiveSeries, pushed: Pushed) -> None:
        """What row `i` shows of features that have no value, or have one again."""
        missing, worth_one = known.state.stretch.missing, self.outage_rows
        assert missing is not None
        for j in np.flatnonzero((before > 0) | (missing.run > 0)).tolist():
            run = int(missing.run[j])
            rows = run or int(before[j])
            change = FeatureChange(i, self.metadata.columns[j], run == 0, rows, known.rows)
            if rows == TOLD_AFTER if run else rows >= TOLD_AFTER:
                pushed.features.append(change)
            if run in (0, 1) or run % worth_one == 0:
                pushed.outages.append(change)

    def _times(self, known: LiveSeries, pushed: Pushed) -> Times | None:
        """Time of the row that came last, for the season and for gaps."""
        if self.clock is None or known.time is None:
            return None
        value = known.time[0].value
        if isinstance(value, datetime) is (self.clock == "date"):
            return np.array([seconds_of(value) if isinstance(value, datetime) else value], np.float64)
        if not self._clock_is_told:
            self._clock_is_told = True
            usual = "dates and times" if self.clock == "date" else "numbers"
            pushed.notes.append(f"times are not {usual} as in the training data; gaps in time are not looked for")
        return None
