"""From a Parquet file to scaled rows in memory and the places where training and validation windows start."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from at_infer.config import Fill, SeasonChoice
from at_infer.errors import ConfigError, DataError
from at_infer.models.knowledge import Knowledge
from at_infer.models.season import Season
from at_infer.models.spacing import Grid, Spacing, check_max_gap, grid_max_gap
from at_infer.models.statistics import Scaler
from at_infer.scoring.windows import Starts, window_starts
from at_infer.tables import Table, read_table, rising_columns
from at_infer.tables.files import InputFile
from at_infer.tables.resample import OnGrid
from training.scaling import Rows, Span, blocks, count_missing, fill_forward, fit_scaler, scale_rows
from training.season import choose_season, subtract_season
from training.spacing import cut_at_gaps, describe_step, learn_spacing


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """What to read and how to split it."""

    source: str | InputFile
    """File, folder or glob; or a table in memory."""
    columns: list[str] | None = None
    """Features, in order; None: every numeric column."""
    learn_clocks: bool = False
    """Columns that rise by the same step from row to row, as clocks and row numbers do, need not be named either."""
    exclude: tuple[str, ...] = ()
    """Columns that are not features."""
    time_column: str | None = None
    """Checked to rise within each series."""
    series_column: str | None = None
    """Windows never cross a change of its value."""
    validation: float | str | InputFile = 0.2
    """Share at the end of each series (more, if that is shorter than a window), or another file or table."""
    fill: Fill = "error"
    """Missing values: refuse, repeat the last known value, or the mean of the training part."""
    season: SeasonChoice = "auto"
    """Subtract a daily profile from the columns that show one, from none, or from all."""
    known_season: Season | None = None
    """Of weights to start from: its columns are taken again, with a new profile if the rows suffice."""
    prepared_for: Knowledge | None = None
    """A model whose scaler, season and spacing are taken as they are; None: they are learnt from the rows."""
    max_gap: int | None = None
    """More usual steps than this between two rows are a gap, which windows never cross; None: 3, 0: there are none."""
    grid: Grid | None = None
    """Put rows on these times first; None: they stay as they are."""

    def __post_init__(self) -> None:
        check_max_gap(self.max_gap)
        if self.grid is not None:
            grid_max_gap(self.max_gap)
            if self.time_column is None:
                raise ConfigError("interval: rows without a time cannot be resampled to a grid; name `time_column`")
        if not isinstance(self.validation, str | InputFile) and not 0 < self.validation < 1:
            raise ConfigError(f"validation: {self.validation:g} is not a fraction between 0 and 1")


@dataclass(frozen=True, slots=True)
class PartWindows:
    """Overlapping or not, windows are places in rows that are kept once."""

    values: Rows
    """(rows, F), scaled."""
    starts: Starts
    """First row of each window."""
    rows: int
    """Rows of the part, used or not."""
    series_rows: list[int]
    """Rows of each series that has windows; one with gaps in time counts as several."""
    series_first: list[int]
    """Where each of them begins."""

    def series(self) -> list[Rows]:
        """The rows of each series that has windows."""
        return [
            self.values[first : first + rows] for first, rows in zip(self.series_first, self.series_rows, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class TrainingData:
    """All that training needs of its input."""

    columns: list[str]
    time_column: str | None
    series_column: str | None
    scaler: Scaler
    season: Season | None
    """Subtracted before the rows were scaled."""
    season_found: str
    """One line that says which season, or why there is none."""
    spacing: Spacing | None
    """Usual time from row to row."""
    grid: Grid | None
    """Times that the rows were put on."""
    fill: Fill
    """How missing values were filled."""
    train: PartWindows
    validation: PartWindows
    """Its last window of a series overlaps its predecessor, so that every row is covered."""
    notes: list[str]
    """Notes for the user about reading the data."""

    def fingerprint(self) -> str:
        """Tells whether a resumed run sees the same data."""
        digest = hashlib.sha256(repr((self.columns, self.scaler)).encode())
        for part in (self.train, self.validation):
            digest.update(part.starts.tobytes())
            for block in blocks(part.values, [(0, len(part.values))]):
                digest.update(block.tobytes())
        return digest.hexdigest()


def load(config: DataConfig, *, window: int, stride: int | None = None) -> TrainingData:
    """Read, check, split, fill, scale. The rows are held once, as float32."""
    table = _read(config, config.source, config.columns)
    clocks = rising_columns(table) if config.columns is None and not config.learn_clocks else []
    if 0 < len(clocks) < len(table.columns):
        config = replace(config, exclude=(*config.exclude, *clocks))
        del table  # not twice in memory
        table = _read(config, config.source, None)
    notes: list[str] = []
    if isinstance(config.validation, str | InputFile):
        other = _read(config, config.validation, table.columns)
        train_spans, validation_spans = _series_spans(table), _series_spans(other)
    else:
        other = table
        train_spans, validation_spans, notes = _split(_series_spans(table), config.validation, window)
    series_spans = train_spans
    known = config.prepared_for
    spacing, spacing_notes = (
        learn_spacing(table, series_spans, config.max_gap, config.grid) if known is None else (known.spacing, [])
    )
    train_spans, validation_spans = (
        cut_at_gaps(part, spans, spacing) for part, spans in ((table, train_spans), (other, validation_spans))
    )

    train_starts = _starts(train_spans, window, stride or window, cover_tail=False)
    validation_starts = _starts(validation_spans, window, window, cover_tail=True)
    has_gaps = len(train_spans) > len(series_spans)
    between, allow = (" between gaps in time", ", or a larger `max_gap`") if has_gaps else ("", "")
    if not len(train_starts):
        longest = max(end - first for first, end in train_spans)
        raise DataError(
            f"{table.source}: the longest training part{between} has {longest} rows, fewer than a window of {window}; "
            f"give more rows or a smaller `window`{allow}"
        )
    if not len(validation_starts):
        longest = max(end - first for first, end in validation_spans)
        raise DataError(
            f"{other.source}: the longest validation part{between} has {longest} rows, fewer than a window of "
            f"{window}; give a larger `validation`, another file for it, or a smaller `window`{allow}"
        )

    notes = [*_notes(table, clocks, train_spans, validation_spans, window), *notes, *spacing_notes]
    if config.grid is not None:
        notes.append(f"{table.read_rows} rows are put on a grid of {config.grid}: {len(table.values)} rows")
    if has_gaps and spacing is not None:
        gaps = len(train_spans) - len(series_spans)
        notes.append(
            f"{gaps} gap{'s' * (gaps != 1)} of more than {spacing.max_gap} steps in time (of {describe_step(spacing)}) "
            f"in the training part: no window spans one"
        )
    parts = [table] if other is table else [table, other]
    season, season_found = (
        choose_season(table, series_spans, config.season, config.known_season)
        if known is None
        else (known.season, "none" if known.season is None else "that of the model")
    )
    if season is not None:
        for part in parts:
            subtract_season(part, season)
    if config.fill == "forward":
        for part in parts:
            fill_forward(part, cut_at_gaps(part, _series_spans(part), spacing))
    scaler = fit_scaler(table, train_spans) if known is None else known.scaler
    for part in parts:
        scale_rows(part, scaler)
    return TrainingData(
        columns=table.columns,
        scaler=scaler,
        season=season,
        season_found=season_found,
        spacing=spacing,
        grid=config.grid,
        fill=config.fill,
        time_column=config.time_column,
        series_column=config.series_column,
        train=_windows(table, train_starts, train_spans, window),
        validation=_windows(other, validation_starts, validation_spans, window),
        notes=notes,
    )


def _read(config: DataConfig, source: str | InputFile, columns: list[str] | None) -> Table:
    on_grid = None
    if config.grid is not None:
        on_grid = OnGrid(config.grid, grid_max_gap(config.max_gap), carry=config.fill == "error")
    table = read_table(
        source,
        columns=columns,
        exclude=config.exclude if columns is config.columns else (),
        time_column=config.time_column,
        series_column=config.series_column,
        clock=True,
        on_grid=on_grid,
    )
    source, first = table.source, 0
    for block in blocks(table.values, [(0, len(table.values))]):
        if np.isinf(block).any():
            row, column = np.argwhere(np.isinf(block))[0]
            raise DataError(
                f"{source}: column {table.columns[column]!r} is infinite, or too large for float32, "
                f"in row {first + row}; drop or fix that row"
            )
        first += len(block)
    missing = count_missing(table.values)
    for name, count in zip(table.columns, missing, strict=True):
        if count == len(table.values):
            raise DataError(f"{source}: column {name!r} has no value at all; leave it out with exclude={name!r}")
    if config.fill == "error" and missing.any():
        gaps = [f"{name} ({count})" for name, count in zip(table.columns, missing, strict=True) if count]
        shown = ", ".join(gaps[:8]) + (f" and {len(gaps) - 8} more columns" if len(gaps) > 8 else "")
        raise DataError(f"{source}: missing values in {shown}; pass fill='forward' or fill='mean', or drop them")
    return table


def _windows(table: Table, starts: Starts, spans: list[Span], window: int) -> PartWindows:
    long_enough = [(first, end - first) for first, end in spans if end - first >= window]
    return PartWindows(
        table.values, starts, _rows(spans), [rows for _, rows in long_enough], [first for first, _ in long_enough]
    )


def _series_spans(table: Table) -> list[Span]:
    ends = np.cumsum([rows for _, rows in table.series]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _split(spans: list[Span], validation: float, window: int) -> tuple[list[Span], list[Span], list[str]]:
    """The last share of each series is for validation, a part of a row counts for it, as in the paper.

    Where that is less than a window, two windows are, or half of the series if a window fits into it.
    """
    train, kept, longer = [], [], []
    for first, end in spans:
        cut = first + int(round((end - first) * (1 - validation), 6))  # not 6.99 of 7
        half = (end - first) // 2
        if end - cut < window <= half:
            cut = end - min(2 * window, half)
            longer.append(end - cut)
        train.append((first, cut))
        kept.append((cut, end))
    notes = []
    if longer:
        few = f"{len(longer)} of {len(spans)} series" if len(spans) > 1 else "the rows"
        notes.append(
            f"a share of {validation:g} of {few} is shorter than a window of {window}: the last {min(longer)}"
            f"{f' to {max(longer)}' if max(longer) > min(longer) else ''} rows are used for validation instead"
        )
    return train, kept, notes


def _starts(spans: list[Span], window: int, stride: int, *, cover_tail: bool) -> Starts:
    parts = []
    for first, end in spans:
        starts = window_starts(end - first, window, stride, cover_tail=cover_tail)
        starts += first
        parts.append(starts)
    return np.concatenate(parts)


def _notes(
    table: Table, clocks: list[str], train_spans: list[Span], validation_spans: list[Span], window: int
) -> list[str]:
    notes = []
    if table.ignored:
        notes.append(f"not numeric, ignored: {', '.join(table.ignored)}")
    for name, spans in (("training", train_spans), ("validation", validation_spans)):
        short = sum(end - first < window for first, end in spans)
        if short:
            what = "series have" if len(spans) == len(table.series) else "series, cut at gaps in time, have"
            notes.append(f"{short} of {len(spans)} {what} a {name} part shorter than a window: not used")
    left_out = [name for name in clocks if name not in table.columns]
    if left_out:
        notes.append(
            f"{', '.join(left_out)} rises steadily like a clock or row number and is left out; name it as "
            f"`time_column` to use its times, or among `columns` to learn it as a feature"
        )
    learnt = rising_columns(table)
    if learnt:
        notes.append(
            f"{', '.join(learnt)} rises steadily like a clock or row number and is learnt as a feature; "
            f"if that is not meant, pass `time_column` or `exclude`"
        )
    return notes


def _rows(spans: list[Span]) -> int:
    return sum(end - first for first, end in spans)
