"""StreamScorer: rows of many series as they arrive, each scored as the last of its window."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from at_infer.choices import BadTime
from at_infer.engines import Engine
from at_infer.errors import ConfigError, DataError
from at_infer.live.batch import StreamBatch
from at_infer.live.clock import StreamClock
from at_infer.live.pushed import LiveSeries, Pushed, SeriesName, StreamScore
from at_infer.live.state import load_state, save_state
from at_infer.live.times import Time, TimeOrderError
from at_infer.scoring.options import EngineOptions, ScoreOptions
from at_infer.scoring.scorer import Scorer
from at_infer.scoring.windows import Floats

MAX_SERIES = 10_000


class StreamScorer:
    """Scores rows as they arrive, exactly as `at-infer score --align last` scores them in a file.

    >>> from at_infer import StreamScorer
    >>> with StreamScorer("model.onnx") as stream:
    ...     for row in frame.iter_rows(named=True):  # F numbers, or a mapping by column name
    ...         score, is_anomaly = stream.push(row, series="pump 7")

    `push_many` takes rows of any series together and gives their windows to the engine in batches. With `every` K,
    every K-th row of a series is scored. `max_series` bounds the memory: the least recently seen series is dropped.
    With `delay` K a row is scored when K more have come, which finds more. A gap in time begins a series anew; rows
    that waited for more are then final, and in `Pushed.ended`. With `on_grid` the caller puts rows on the grid of a
    model that was trained on one.
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
        on_grid: bool = False,
    ) -> None:
        options = options or ScoreOptions()
        for name, value in (("every", every), ("max_series", max_series)):
            if value < 1:
                raise ConfigError(f"{name}: {value} is too small; at least 1")
        late = options.delay if delay is None else delay
        self.scorer = Scorer(engine, replace(options, align="last", delay=late), engine_options)
        try:
            self.batch_size = self.scorer.batch_size_for(None)
            self.metadata, self.threshold = self.scorer.metadata, self.scorer.threshold
            if self.scorer.grid is not None and not on_grid:
                raise ConfigError(
                    f"interval: rows of a stream are not resampled ({self.scorer.grid}); send one row per "
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
        self.every, self.max_series = every, max_series
        self.clock = StreamClock(self.scorer, on_bad_time)
        self.series: dict[SeriesName, LiveSeries] = {}
        """Least recently seen first."""

    def push(
        self, row: ArrayLike | Mapping[str, Any], *, series: SeriesName = "", time: Time | None = None
    ) -> StreamScore:
        """Take one row of a series: values in the order of the model's columns, or by name; None is missing.

        Raises `DataError` for a row that cannot be used; the stream continues without it.
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
        channels = np.empty((count, self.core.settings.channels), np.float32)
        channels.fill(np.nan)
        pushed = Pushed(channels[:, 0], np.zeros(count, np.bool_), [None] * count, channels)
        pushed.given_tags = range(count) if tags is None else tags
        pushed.missing = np.isnan(values) if self.scorer.masks else None
        complete = self._refuse_values(values, pushed.refused)
        batch = StreamBatch(self.core, values, pushed, self.scorer.delay, complete=complete)
        refused, given = pushed.refused, pushed.given_tags
        for i, name in enumerate(names):
            if i in refused:
                continue
            known = self._enter(i, name, None if times is None else times[i], pushed)
            if known is not None:
                known.waiting.append(given[i])
                batch.add(i, name, known, self.clock.number(known.time, pushed.notes))
        batch.score()
        pushed.is_anomaly = self.scorer.verdict(pushed.score)
        return pushed

    def drain(self) -> Pushed:
        """No more rows: returns the scores of pending rows; every series starts again."""
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
        """Write the state of all series, and `extra` as JSON, atomically to a file."""
        save_state(Path(path), self, dict(extra or {}))

    def load(self, path: str | Path) -> dict[str, Any]:
        """Continue from a saved state, and return its `extra`; refuses the state of another model or score."""
        return load_state(Path(path), self)

    def close(self) -> None:
        """Close the engine, unless it was passed in open."""
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

    def _refuse_values(self, values: Floats, refused: dict[int, str]) -> bool:
        """Infinities never fit, gaps only if the model has a way to fill them; are there none of both?"""
        if np.isfinite(values).all():
            return True
        if self.scorer.masks:
            unusable = np.isinf(values) | np.isnan(values).all(axis=1, keepdims=True)
        else:
            unusable = ~np.isfinite(values) if self.metadata.fill == "error" else np.isinf(values)
        for i in np.flatnonzero(unusable.any(axis=1)).tolist():
            j = int(np.flatnonzero(unusable[i])[0])
            what = "has no value" if np.isnan(values[i, j]) else "is infinite, or too large for float32"
            refused[i] = f"column {self.metadata.columns[j]!r} {what}"
        return False

    def _enter(self, i: int, name: SeriesName, time: Time | None, pushed: Pushed) -> LiveSeries | None:
        """The series of row `i`, now the one most recently seen; None if its time does not fit."""
        known = self.series.get(name)
        try:
            now = self.clock.read(time, None if known is None else known.time)
        except TimeOrderError as error:
            if self.clock.on_bad_time == "drop":
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
