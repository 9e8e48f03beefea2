"""Options of scoring: score, input and engine."""

from dataclasses import dataclass
from typing import Literal

from at_infer.choices import BadRows, BadTime, Explain, MissingFeature, ShortSeries
from at_infer.config import Align, Config, Level, Resample, ScoreMode
from at_infer.engines import Provider
from at_infer.errors import ConfigError
from at_infer.models.metadata import Metadata
from at_infer.models.spacing import check_max_gap, choose_grid
from at_infer.models.statistics import IncidentOptions
from at_infer.tables.columns import Columns
from at_infer.tables.resample import OnGrid
from at_infer.threads import check_threads
from at_infer.thresholds.chosen import check_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions(Config):
    """How to score; None uses the value recorded in the model.

    >>> from at_infer import Scorer, ScoreOptions
    >>> with Scorer("model.onnx", ScoreOptions(ratio=0.001, explain="top")) as scorer:
    ...     causes = scorer.score(frame).columns["top_feature"]
    """

    mode: ScoreMode | None = None
    temperature: float | None = None
    smooth: int | None = None
    normalise_errors: bool | None = None
    level: Level | None = None
    """Level view of mode `fusion`: relative to recent rows, relative to the training data, or off."""
    threshold: float | Literal["auto"] | None = None
    """A value, or `auto`: the gap statistic of the paper's appendix."""
    ratio: float | None = None
    """Threshold that this fraction of the validation scores exceeds."""
    false_alarms: str | None = None
    """Threshold that yields about this rate of false incidents: `1/day`, `2/week`, `1/10000 rows`."""
    stride: int | None = None
    """Rows from one window to the next; None: windows do not overlap."""
    align: Align = "window"
    """`last`: every row is scored as the last of its window."""
    delay: int | None = None
    """With align `last`: rows that must follow before a row is scored; None: 0, or 1 for a circular model."""
    short_series: ShortSeries = "error"
    """A series shorter than a window is an error, gets no score, or is padded."""
    on_bad_rows: BadRows = "error"
    """A row with a value that is not finite is an error, or its windows get no score."""
    on_missing_feature: MissingFeature = "error"
    """`mask`: a column that is absent, or has no values for a while, is masked in the score."""
    max_gap: int | None = None
    """Maximum gap in median time steps; after a longer one the series restarts. 0: gaps are ignored."""
    interval: str | None = None
    """Resample first to one row per interval, `30s`, `5m` or `1h`; `none`: no resampling."""
    resample: Resample | None = None
    """With `interval`: the mean of the values in an interval, or the last; None: the model's, or the mean."""
    explain: Explain | None = None
    """`top`: the feature with the largest error; `all`: the error of every feature; None: `top` where incidents are
    made of the scores, otherwise `none`."""
    incidents: IncidentOptions | None = None
    """Incidents are made of the scores, by these rules; the threshold is then one for 1 false incident a day, unless
    another is asked for, or was chosen for the model."""

    def __post_init__(self) -> None:
        self._choice("align", Align)
        self._choice("short_series", ShortSeries)
        self._choice("on_bad_rows", BadRows)
        if self.explain is not None:
            self._choice("explain", Explain)
        self._choice("on_missing_feature", MissingFeature)
        check_threshold(self.threshold, self.ratio, self.false_alarms)
        check_max_gap(self.max_gap)
        if self.interval is not None:
            choose_grid(self.interval, self.resample, None)
        if self.align == "last" and self.short_series == "pad":
            raise ConfigError("short_series: align='last' has no score before a full window; use skip instead of pad")
        if self.delay is not None and self.align != "last":
            raise ConfigError("delay: a delay needs rows that are scored one by one; use align='last'")
        if self.delay is not None and self.delay < 0:
            raise ConfigError(f"delay: {self.delay} is too small; at least 0")
        if self.align == "last" and self.stride not in (None, 1):
            raise ConfigError("stride: align='last' scores every row with its own window; leave `stride` out")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions(Config):
    """Time and series columns; None uses those of the training data.

    >>> from at_infer import InputOptions, score_file
    >>> of_input = InputOptions(no_time=True, one_series=True)
    >>> summary = score_file("data.parquet", "model.onnx", "scores.parquet", input_options=of_input)
    """

    time_column: str | None = None
    series_column: str | None = None
    no_time: bool = False
    """The input has no time, although the training data had one."""
    one_series: bool = False
    """The input is a single series, although the training data had several."""
    series_per_file: bool = False
    """Each file is one series."""
    on_bad_time: BadTime = "error"
    """A time that does not increase within its series: an error, drop the row, or ignore it."""

    def __post_init__(self) -> None:
        self._choice("on_bad_time", BadTime)
        if self.one_series and (self.series_column is not None or self.series_per_file):
            other = "series_column" if self.series_column is not None else "series_per_file"
            raise ConfigError(f"one_series: excludes `{other}`; give one of them")
        if self.no_time and self.time_column is not None:
            raise ConfigError("no_time: excludes `time_column`; give one of them")

    def columns(
        self, known: Metadata, max_gap: int | None = None, *, mask: bool = False, on_grid: OnGrid | None = None
    ) -> Columns:
        """Columns to read from each file, for a model; `max_gap` is that of the scores, for which times are read.

        With `mask`, a feature may be absent; with `on_grid`, rows are resampled.
        """
        time = None if self.no_time else known.time_column if self.time_column is None else self.time_column
        if known.season is not None and time is None:
            raise ConfigError(
                "time_column: the model subtracts a season and needs the time of every row; name it and leave "
                "`no_time` out, or train with season='none'"
            )
        if on_grid is not None and time is None:
            raise ConfigError(
                f"interval: rows without a time cannot be resampled to a grid of {on_grid.grid}; name `time_column`, "
                f"or pass interval='none'"
            )
        gaps = known.spacing is not None and known.spacing.longest_step(max_gap) is not None
        clock = "date" if known.season is not None else known.spacing.clock if known.spacing and gaps else None
        clock = clock if on_grid is None else "date"
        return Columns(
            tuple(known.columns),
            time,
            None if self.one_series else known.series_column if self.series_column is None else self.series_column,
            self.series_per_file,
            clock=clock if time is not None else None,
            needs_clock=known.season is not None,
            on_bad_time=self.on_bad_time,
            may_be_absent=mask,
            on_grid=on_grid,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions(Config):
    """Where an engine runs.

    >>> from at_infer import EngineOptions, Scorer
    >>> with Scorer("model.onnx", engine_options=EngineOptions(threads=1, batch_size=16)) as scorer:
    ...     result = scorer.score(frame)
    """

    provider: Provider = "cpu"
    threads: int | None = None
    """CPU threads of the engine; None: all. Of several, mode `fusion` uses one for its last step if the network is
    small."""
    batch_size: int | None = None
    """Windows per batch; None: chosen by a short measurement."""

    def __post_init__(self) -> None:
        self._choice("provider", Provider)
        check_threads(self.threads)
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"batch_size: {self.batch_size} is too small; at least 1")
