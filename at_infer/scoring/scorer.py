"""Scorer: an opened engine with all settings that turn rows into scores and verdicts."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from at_infer.config import Align, Config, ScoreConfig, ScoreMode, head_rule
from at_infer.engines import Engine, Provider, open_engine
from at_infer.errors import ConfigError, DataError, EngineError
from at_infer.models.criterion import NOTHING_USUAL, feature_errors, score_windows
from at_infer.models.metadata import Metadata
from at_infer.scoring.missing import Filler
from at_infer.scoring.rows import BadRows, RowScorer, ShortSeries
from at_infer.scoring.windows import Floats, Layout
from at_infer.thresholds.ratio import gap_threshold, quantile_threshold, threshold_from_quantiles

Explain = Literal["none", "top", "all"]
Bools = NDArray[np.bool_]

LARGEST = float(np.finfo(np.float32).max)
BATCH_SIZES = (4, 8, 16, 32)  # more was never faster on a CPU, and takes memory
USUAL_BATCH = 8
PROBE_WINDOWS = 2_000  # with fewer windows than this to score, looking for the best batch costs more than it brings


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions(Config):
    """How to score; None stands for what the model has recorded."""

    mode: ScoreMode | None = None
    temperature: float | None = None
    smooth: int | None = None
    normalise_errors: bool | None = None
    threshold: float | Literal["auto"] | None = None
    """A value, or `auto`: the gap statistic of the paper's appendix."""
    ratio: float | None = None
    """Threshold that this share of the validation scores exceeds."""
    stride: int | None = None
    """Rows from one window to the next; None: windows do not overlap."""
    align: Align = "window"
    """`last`: every row is scored as the last of its window."""
    short_series: ShortSeries = "error"
    on_bad_rows: BadRows = "error"
    explain: Explain = "none"

    def __post_init__(self) -> None:
        self._choice("align", Align)
        self._choice("short_series", ShortSeries)
        self._choice("on_bad_rows", BadRows)
        self._choice("explain", Explain)
        number = isinstance(self.threshold, float | int) and abs(self.threshold) <= LARGEST
        if not (number or self.threshold in (None, "auto")):
            raise ConfigError(f"threshold: {self.threshold!r} is neither a finite number nor auto")
        if self.threshold is not None and self.ratio is not None:
            raise ConfigError("threshold: --threshold and --ratio exclude each other; give one")
        if self.align == "last" and self.short_series == "pad":
            raise ConfigError("short series: --align last has no score before a full window; use skip instead of pad")


class Scores(NamedTuple):
    """One entry per row; a row without a score is NaN and no anomaly."""

    score: Floats
    is_anomaly: Bools


class Scorer:
    """Scores rows in memory; `score_file` builds on it.

    >>> with Scorer("model.onnx") as scorer:      # doctest: +SKIP
    ...     scores = scorer.score(rows)           # (n, F) in the order of scorer.metadata.columns
    ...     print(scores.is_anomaly.sum(), "anomalies")
    """

    def __init__(
        self,
        engine: str | Path | Engine,
        options: ScoreOptions | None = None,
        *,
        provider: Provider = "cpu",
        threads: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.options = options or ScoreOptions()
        self._owned = isinstance(engine, str | Path)
        self.engine = (
            open_engine(engine, provider=provider, threads=threads) if isinstance(engine, str | Path) else engine
        )
        try:
            if self.engine.metadata is None:
                lacks = "; ".join(self.engine.missing)
                raise EngineError(f"{self.engine.path}: cannot score, it lacks {lacks}; use at-infer export")
            self.metadata: Metadata = self.engine.metadata
            self.config = self._score_config()
            self.calibrated = self.metadata.calibrated(self.options.align)
            self.threshold = self._threshold()
            window = self.metadata.model.window
            stride = 1 if self.options.align == "last" else window
            self.layout = Layout(
                window=window,
                stride=stride if self.options.stride is None else self.options.stride,
                align=self.options.align,
            )
            self._check_outputs()
            if batch_size is not None and batch_size < 1:
                raise ConfigError(f"batch size: {batch_size} is too small; at least 1")
        except BaseException:
            self.close()
            raise
        self.batch_size = batch_size
        as_recorded = replace(self.config, smooth=self.metadata.score.smooth) == self.metadata.score
        self._score_is_ready = as_recorded and "score" in self.engine.outputs
        self.engine_s = 0.0
        """Seconds spent inside the engine."""
        self._mean = np.asarray(self.metadata.scaler.mean, np.float32)

    def score(self, rows: ArrayLike) -> Scores:
        """Scores and verdicts of one series of rows (n,F), raw values in the order of the model's columns."""
        with np.errstate(over="ignore"):  # what is too large is found below
            values = np.array(rows, np.float32, ndmin=2)
        features = self.metadata.model.features
        if values.ndim != 2 or values.shape[1] != features:
            raise DataError(f"rows: have shape {list(values.shape)}, the model takes (n, {features})")
        self.choose_batch_size(len(values))
        scorer = self.row_scorer()
        scorer.start_series("")
        bad = self.prepare(values, self.filler(), "rows", 0)
        scorer.push(values, bad)
        scorer.flush()
        found = np.concatenate([np.empty(0, np.float32), *(part[:, 0] for part in scorer.take())])
        return Scores(found, self.verdict(found))

    def verdict(self, scores: Floats) -> Bools:
        """True where the score exceeds the threshold; never for a row without a score."""
        return np.greater(scores, np.float32(self.threshold))

    def filler(self) -> Filler:
        """Fresh, for one series."""
        return Filler(self.metadata.fill, self.metadata.scaler.mean)

    def prepare(self, values: Floats, filler: Filler, where: str, first_row: int) -> Bools | None:
        """Fill gaps in place by the model's policy; a row that is still not finite is bad, or an error."""
        finite: Bools = np.isfinite(values)
        if finite.all():
            filler.apply(values)  # it remembers the last row
            return None
        filler.apply(values)
        finite = np.isfinite(values)
        if finite.all():
            return None
        if self.options.on_bad_rows == "error":
            row, j = (int(i) for i in np.argwhere(~finite)[0])
            name, value = self.metadata.columns[j], values[row, j]
            what = "has no value" if np.isnan(value) else "is infinite, or too large for float32,"
            raise DataError(
                f"{where}: column {name!r} {what} in row {first_row + row}; mend the row, or pass --on-bad-rows null"
            )
        values[~finite] = 0.0  # never seen: windows with this row get no score
        bad: Bools = np.array(finite.all(axis=1) == np.False_)
        return bad

    def row_scorer(self, *, skip_rows: int = 0) -> RowScorer:
        """A stream of rows through this engine."""
        return RowScorer(
            self._score_windows,
            self.layout,
            features=self.metadata.model.features,
            channels=self.channels,
            batch_size=self.batch_size or USUAL_BATCH,
            smooth=self.config.smooth,
            short_series=self.options.short_series,
            on_bad_rows=self.options.on_bad_rows,
            skip_rows=skip_rows,
        )

    @property
    def channels(self) -> int:
        """The score, and with an explanation the error of every feature."""
        return 1 if self.options.explain == "none" else 1 + self.metadata.model.features

    def choose_batch_size(self, rows: int) -> None:
        """Take the smallest batch about as fast per window as any, unless one was given or there is little to do."""
        if self.batch_size is not None:
            return
        if self.metadata.batch is not None:
            self.batch_size = 2 * self.metadata.batch[2]  # two full batches of the plan's profile in flight
            return
        self.batch_size = USUAL_BATCH
        if rows // self.layout.stride < PROBE_WINDOWS:
            return
        n, f = self.metadata.model.window, self.metadata.model.features
        windows = np.broadcast_to(self._mean, (BATCH_SIZES[-1], n, f)).copy()
        self.engine.run(windows[:1])
        best = float("inf")
        for size in BATCH_SIZES:
            begin = time.perf_counter()
            for _ in range(2):
                self.engine.run(windows[:size])
            per_window = (time.perf_counter() - begin) / (2 * size)
            if per_window > 1.1 * best:
                break
            if per_window < 0.97 * best:
                best, self.batch_size = per_window, size

    def close(self) -> None:
        """Free what the engine holds; an engine that was given open stays open."""
        if self._owned:
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _score_windows(self, windows: Floats) -> Floats:
        """(B,N,F) -> the score, and with an explanation the squared error of every feature (B,N,C)."""
        begin = time.perf_counter()
        outputs = self.engine.run(windows)
        self.engine_s += time.perf_counter() - begin
        with np.errstate(over="ignore", invalid="ignore"):  # a score that is not finite is looked for later
            if self._score_is_ready:
                score = outputs["score"]
            else:
                score = score_windows(windows, outputs, self.metadata, self.config)
            if self.options.explain == "none":
                return score[..., None]
            errors = feature_errors(windows, outputs, self.metadata, self.config.error_kind)
            return np.concatenate([score[..., None], errors], axis=-1)

    def _score_config(self) -> ScoreConfig:
        """The model's, with what the options override."""
        given = {
            name: getattr(self.options, name)
            for name in ("mode", "temperature", "smooth", "normalise_errors")
            if getattr(self.options, name) is not None
        }
        config = replace(self.metadata.score, **given)
        rule = head_rule(config.mode, self.metadata.discrepancy)
        if rule != self.metadata.discrepancy.head_rule:
            raise ConfigError(
                f"score mode: {config.mode} compares associations by the {rule} rule, the engine by the "
                f"{self.metadata.discrepancy.head_rule} one; export with --score-mode {config.mode}"
            )
        if self.metadata.normal is None and (config.mode == "calibrated" or config.error_kind.normalised):
            raise ConfigError(f"score mode: {config.mode} here compares {NOTHING_USUAL}")
        return config

    def _threshold(self) -> float:
        """The one asked for, or the model's own; never one that belongs to another score."""
        recorded, config, options = self.metadata.score, self.config, self.options
        if isinstance(options.threshold, float | int):
            return float(options.threshold)
        changed = {
            "smooth": config.smooth != recorded.smooth,
            "temperature": config.mode == "published" and config.temperature != recorded.temperature,
            "normalise errors": config.error_kind
            != replace(config, normalise_errors=recorded.normalise_errors).error_kind,
        }
        for name in (name for name, is_changed in changed.items() if is_changed):
            was = getattr(recorded, name.replace(" ", "_"))
            shown = was if isinstance(was, bool) else f"{was:g}"
            raise ConfigError(
                f"threshold: the model's belongs to {name} {shown}; with another {name} pass --threshold with a number"
            )
        if options.threshold is None and options.ratio is None and config.mode == recorded.mode:
            return self.calibrated.threshold.value
        levels, values = self.metadata.quantile_levels, self.calibrated.quantiles.get(config.mode)
        if values is None:
            raise ConfigError(
                f"threshold: {self.engine.path} kept no validation scores of mode {config.mode} with --align "
                f"{options.align}; pass --threshold with a number"
            )
        if options.threshold == "auto":
            return gap_threshold(levels, values)
        if options.ratio is not None:
            return quantile_threshold(levels, values, options.ratio)
        return threshold_from_quantiles(levels, values, self.calibrated.threshold).value

    @property
    def notes(self) -> list[str]:
        """What a user should know before trusting the verdicts."""
        if isinstance(self.options.threshold, float | int):
            return []
        found = []
        if self.options.align == "last" and self.metadata.causal is None:
            found.append(
                f"{self.engine.path}: has no threshold for last rows of windows, and that of whole windows flags more "
                f"of them than it should; score normal rows with --align last and let at-infer threshold --scores "
                f"write one, or train anew (docs/live.md, threshold)"
            )
        if self.options.align == "window" and self.layout.stride < self.layout.window:
            found.append(
                f"{self.engine.path}: with --stride a row gets the mean of several windows, which has lower peaks; a "
                f"threshold of single windows, as training makes it, flags fewer rows than it should "
                f"(docs/scoring.md, threshold and verdict)"
            )
        return found

    def validation(self) -> dict[str, Any] | None:
        """Quantiles of the validation scores, formed as the scores are here; None if none were kept."""
        recorded, config = self.metadata.score, self.config
        values = self.calibrated.quantiles.get(config.mode)
        if values is None or replace(config, mode=recorded.mode) != recorded:
            return None
        own = self.options.threshold is None
        ratio = self.options.ratio if self.options.ratio is not None else self.calibrated.threshold.ratio
        return {
            "levels": self.metadata.quantile_levels,
            "quantiles": values,
            "ratio": ratio if own else None,
            "rows": self.calibrated.threshold.validation_rows,
        }

    def _check_outputs(self) -> None:
        """What the options ask for must be among the engine's outputs."""
        has = set(self.engine.outputs)
        if self.options.explain != "none" and "reconstruction" not in has:
            raise ConfigError(f"explain: {self.engine.path} has no output reconstruction; export it without --outputs")
        recorded = self.metadata.score
        same_error = self.config.error_kind == recorded.error_kind
        has_error = "reconstruction" in has or ("error" in has and same_error)
        has_discrepancy = "discrepancy" in has or {"prior_0", "series_0"} <= has
        changed = replace(self.config, smooth=recorded.smooth) != recorded
        if not (has_error and has_discrepancy) and (changed or "score" not in has):
            raise ConfigError(
                f"score mode: {self.engine.path} has only {', '.join(self.engine.outputs)}; export it without "
                f"--outputs to change the mode"
            )
