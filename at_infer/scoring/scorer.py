"""Scorer: an opened engine with all settings that turn rows into scores and verdicts."""

import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from at_infer.choices import Explain
from at_infer.config import split_delay
from at_infer.engines import Engine, open_engine
from at_infer.errors import ConfigError, DataError, EngineError
from at_infer.models.criterion import (
    feature_errors,
    fusion_rows,
    live_rows,
    masked_scores,
    score_windows,
)
from at_infer.models.metadata import Metadata
from at_infer.models.spacing import MAX_GAP, Clock, Spacing, Times, choose_grid, grid_max_gap
from at_infer.scoring.asked_score import asked_score, check_outputs
from at_infer.scoring.batch_size import SMALL_BATCH, choose_batch_size, windows_per_s
from at_infer.scoring.last_step import LAST_ROWS_BATCH, has_onset, last_step, look_ahead, needs_live_rows, runs_last
from at_infer.scoring.options import EngineOptions, ScoreOptions
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.series import Bools
from at_infer.scoring.settings import RowSettings
from at_infer.scoring.windows import Floats, WindowLayout
from at_infer.tables.clock import FOR_GAPS, NEEDED, times_to_numbers
from at_infer.tables.frames import array_values
from at_infer.tables.resample import OnGrid
from at_infer.thresholds.choose import ScoringWay, ThresholdWish, choose_for_scoring
from at_infer.thresholds.verdict import exceeds


class Scores(NamedTuple):
    """One entry per row; a row without a score is NaN and no anomaly."""

    score: Floats
    is_anomaly: Bools


class Scorer:
    """Scores rows in memory; `score_file` builds on it.

    `at_infer.Scorer` adds tables to it.
    """

    makes_incidents = False
    """Whatever the options say."""

    def __init__(
        self,
        engine: str | Path | Engine,
        options: ScoreOptions | None = None,
        engine_options: EngineOptions | None = None,
    ) -> None:
        self.options, self.engine_options = options or ScoreOptions(), engine_options or EngineOptions()
        self._workers: Executor | None = None
        self._owned = isinstance(engine, str | Path)
        on = self.engine_options
        self.engine = (
            open_engine(engine, provider=on.provider, threads=on.threads) if isinstance(engine, str | Path) else engine
        )
        try:
            if self.engine.metadata is None:
                lacks = "; ".join(self.engine.missing)
                raise EngineError(f"{self.engine.path}: cannot score, it lacks {lacks}; use at-infer export")
            self.metadata: Metadata = self.engine.metadata
            self.config = asked_score(self.metadata, self.options)
            if self.options.explain is None:
                self.options = replace(self.options, explain=self.default_explain())
            self.chosen = choose_for_scoring(
                self.metadata,
                self.config,
                source=str(self.engine.path),
                wish=ThresholdWish(self.options.threshold, self.options.ratio, self.options.false_alarms),
                way=ScoringWay(self.options.align, self.delay, self.options.stride),
                incidents=self.options.incidents,
            )
            self.threshold = self.chosen.value
            window = self.metadata.model.window
            stride = 1 if self.options.align == "last" else window
            self.layout = WindowLayout(
                window=window,
                stride=stride if self.options.stride is None else self.options.stride,
                align=self.options.align,
                delay=split_delay(self.metadata.model, self.config.mode, self.delay)[0],
            )
            check_outputs(self.engine, self.metadata, self.config, self.options)
            self._needs_live_rows = needs_live_rows(self.metadata, self.config, self.options)
            self._runs_last = runs_last(self.engine, self.layout, self.metadata, self.config, self.options)
            self.grid = choose_grid(self.options.interval, self.options.resample, self.metadata.grid)
            if self.spacing is None and self.options.max_gap:
                raise ConfigError(
                    f"max_gap: {self.engine.path} has no median time step; leave it out, or train with a time column"
                )
        except BaseException:
            self.close()
            raise
        as_recorded = replace(self.config, smooth=self.metadata.score.smooth) == self.metadata.score
        self._score_is_ready = as_recorded and "score" in self.engine.outputs
        scaler = self.metadata.scaler
        self._scaler = np.asarray(scaler.mean, np.float32), np.asarray(scaler.scale, np.float32)
        self.engine_s = 0.0
        """Seconds spent inside the engine, by all threads together."""

    def score(self, rows: ArrayLike, times: Sequence[Any] | NDArray[Any] | None = None) -> Scores:
        """Scores and verdicts of one series of rows (n,F), raw values in the order of the model's columns.

        A model with a season needs their times: datetime, numpy.datetime64 or ISO 8601 texts; so do gaps in time,
        which begin the series anew, and which numbers tell as well if the training data had them. They are scored as
        they are: rows of a model with a grid must lie on it.
        """
        found = self.score_channels(rows, times)[:, 0]
        return Scores(found, self.verdict(found))

    def score_channels(self, rows: ArrayLike, times: Sequence[Any] | NDArray[Any] | None = None) -> Floats:
        """The same as the scoring core gives it (n,C): the score, and what explains it if that was asked for."""
        values = np.atleast_2d(array_values(rows))
        features = self.metadata.model.features
        if values.ndim != 2 or values.shape[1] != features:
            raise DataError(f"rows: have shape {list(values.shape)}, the model takes (n, {features})")
        if times is not None and len(times) != len(values):
            raise DataError(f"times: there are {len(times)} of {len(values)} rows")
        core = self.rows(self.batch_size_for(len(values)))
        series = core.start()
        core.push(series, values, times=None if times is None else self.known_times(times))
        core.end(series)
        core.flush()
        nothing = np.empty((0, core.settings.channels), np.float32)
        return np.concatenate([nothing, *(part.channels for part in core.take())])

    def known_times(self, times: Sequence[Any] | NDArray[Any]) -> Times | None:
        """As the season and gaps need them."""
        clock = self.clock
        if clock is None:
            return None
        return times_to_numbers(times, clock, FOR_GAPS if self.metadata.season is None else NEEDED)

    @property
    def clock(self) -> Clock | None:
        """How times must count to be of use; None: they are not."""
        known = self.metadata
        if known.season is not None:
            return "date"
        return None if self.spacing is None or self.longest_step is None else self.spacing.clock

    @property
    def spacing(self) -> Spacing | None:
        """The usual step of the rows that are scored: of their grid, or what was learnt in training."""
        known, asked = self.metadata.spacing, self.options.max_gap
        if self.grid is None:
            return known
        steps = grid_max_gap(asked, MAX_GAP if known is None else known.max_gap)
        return Spacing(step=self.grid.interval_s, clock="date", max_gap=steps)

    @property
    def on_grid(self) -> OnGrid | None:
        """How rows of files are put on a grid; None: they stay as they are."""
        if self.grid is None or self.spacing is None:
            return None
        return OnGrid(self.grid, self.spacing.max_gap, carry=self.metadata.fill == "error" or self.masks)

    @property
    def longest_step(self) -> float | None:
        """A longer time from row to row is a gap; None: gaps are ignored."""
        return None if self.spacing is None else self.spacing.longest_step(self.options.max_gap)

    @property
    def masks(self) -> bool:
        """Are missing features left out of the score?"""
        return self.options.on_missing_feature == "mask"

    def verdict(self, scores: Floats) -> Bools:
        """Which rows are anomalous."""
        return exceeds(scores, self.threshold)

    @property
    def row_settings(self) -> RowSettings:
        """How rows become scores here."""
        known, options = self.metadata, self.options
        return RowSettings(
            layout=self.layout,
            columns=known.columns,
            mean=known.scaler.mean,
            fill=known.fill,
            season=known.season,
            longest_step=self.longest_step,
            mask=self.masks,
            short_series=options.short_series,
            on_bad_rows=options.on_bad_rows,
            **last_step(self.metadata, self.config, options, self.delay),
        )

    def rows(
        self,
        batch_size: int,
        *,
        settings: RowSettings | None = None,
        skip_rows: int = 0,
        counted: range | None = None,
    ) -> RowScorer:
        """The scoring core on this engine."""
        used = settings or self.row_settings
        lanes = self.engine.lanes
        if lanes > 1 and self.config.mode == "fusion":  # the last step keeps the calling thread busy
            lanes -= 1
        if lanes and self._workers is None:
            self._workers = ThreadPoolExecutor(lanes, thread_name_prefix="engine")
        return RowScorer(
            self.score_windows,
            used,
            batch_size=batch_size,
            skip_rows=skip_rows,
            counted=counted,
            workers=self._workers,
            lanes=lanes,
        )

    def batch_size_for(self, rows: int | None) -> int:
        """The size that was asked for, or what suits so many rows; None: they come live, of any series."""
        asked = self.engine_options.batch_size
        if asked is not None:
            return asked
        if self._runs_last:
            return LAST_ROWS_BATCH
        size = choose_batch_size(self.engine, self.metadata, (rows or 0) // self.layout.stride)
        return max(size, SMALL_BATCH) if rows is None and self.engine.lanes > 1 else size

    def engine_rows_per_s(self, batch_size: int) -> float:
        """Speed of the engine alone."""
        return windows_per_s(self.engine, self.metadata, batch_size) * self.layout.stride

    def close(self) -> None:
        """Close the engine, unless it was passed in open."""
        if self._workers is not None:
            self._workers.shutdown(cancel_futures=True)
        if self._owned:
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def score_windows(self, windows: Floats) -> Floats:
        """(B,N,F), or (B,N,2F) with which features are missing -> what the last step needs of each row (B,N,C)."""
        features = self.metadata.model.features
        missing = windows[..., features:] if self.masks else None
        if missing is not None:
            windows = np.ascontiguousarray(windows[..., :features])
        begin = time.perf_counter()
        outputs: dict[str, Floats] = {}
        last: Floats | None
        if self._runs_last:
            last = self.engine.run_last(windows)[:, None]
        else:
            outputs = self.engine.run(windows)
            last = outputs.get("reconstruction")
        self.engine_s += time.perf_counter() - begin
        with np.errstate(over="ignore", invalid="ignore"):  # a score that is not finite is looked for later
            if self.config.mode == "fusion":
                if self._needs_live_rows and last is not None:
                    count = self.layout.delay + 1
                    rows = live_rows(windows, last, *self._scaler, count)
                    missing = None if missing is None else missing[:, -count:]
                else:
                    rows = fusion_rows(windows, outputs, self.metadata.scaler)
                return rows if missing is None else np.concatenate([rows, missing], axis=-1)
            if self._score_is_ready:
                score = outputs["score"]
            else:
                score = score_windows(windows, outputs, self.metadata, self.config)
            if missing is not None and missing.any():
                score = masked_scores(score, missing, windows, outputs, self.metadata, self.config)
            if self.options.explain == "none":
                return score[..., None]
            errors = feature_errors(windows, outputs, self.metadata, self.config.error_kind)
            if missing is not None:
                errors = np.where(missing > 0, np.float32(0), errors)
            return np.concatenate([score[..., None], errors], axis=-1)

    def default_explain(self) -> Explain:
        """An incident has causes; asked for in the options, it is an error if the engine cannot name them."""
        named = self.makes_incidents and "reconstruction" in self.engine.outputs
        return "top" if named or self.options.incidents is not None else "none"

    @property
    def delay(self) -> int:
        """Rows that must follow before a row is scored."""
        if self.options.align == "window":
            return 0
        return int(self.metadata.model.padding == "circular") if self.options.delay is None else self.options.delay

    @property
    def look_ahead(self) -> int:
        """Rows behind a row that smoothing makes its score depend on."""
        return look_ahead(self.metadata, self.config, self.options, self.delay)

    @property
    def has_onset(self) -> bool:
        """Is the last channel of a scored row its score from the row and those before it?"""
        return has_onset(self.metadata, self.config, self.options, self.delay)

    @property
    def notes(self) -> list[str]:
        """Notes for the user about the verdicts."""
        found = list(self.chosen.notes)
        if self.options.delay is None and self.delay:
            found.append(
                f"{self.engine.path}: has circular padding, which reconstructs the last row of a window badly; rows "
                f"are scored 1 row late (delay=0 changes that; or train again)"
            )
        if self.grid is not None and self.options.interval is None:
            found.append(f"rows are put on a grid of {self.grid} as in training, the output has one row per step")
        elif self.grid is not None and self.grid != self.metadata.grid:
            known = "as they were" if self.metadata.grid is None else f"on a grid of {self.metadata.grid}"
            found.append(
                f"rows are put on a grid of {self.grid}, the model was trained on rows {known}: its threshold may not "
                f"fit"
            )
        return found
