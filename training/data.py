"""From a Parquet file to scaled rows in memory and the places where training and validation windows start."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Fill, Scaler
from at_infer.errors import ConfigError, DataError
from at_infer.parquet import Table, read_table, rising_columns
from at_infer.windows import Starts, window_starts

Rows = NDArray[np.float32]
Span = tuple[int, int]  # first row and one past the last

BLOCK_ROWS = 1 << 16  # rows looked at together, so that float64 copies and masks stay small


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """What to read and how to split it."""

    source: str
    """File, folder or glob."""
    columns: list[str] | None = None
    """Features, in order; None: every numeric column."""
    exclude: tuple[str, ...] = ()
    """Columns that are not features."""
    time_column: str | None = None
    """Checked to rise within each series."""
    series_column: str | None = None
    """Windows never cross a change of its value."""
    validation: float | str = 0.2
    """Share at the end of each series, or another file."""
    fill: Fill = "error"
    """Missing values: refuse, repeat the last known value, or the column's mean."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Overlapping or not, windows are places in rows that are kept once."""

    values: Rows
    """(rows, F), scaled."""
    starts: Starts
    """First row of each window."""
    rows: int
    """Rows of the part, used or not."""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """All that training needs of its input."""

    columns: list[str]
    scaler: Scaler
    train: Windows
    validation: Windows
    """Its last window of a series overlaps its predecessor, so that every row is covered."""
    notes: list[str]
    """What a user should know about how the data were read."""

    def fingerprint(self) -> str:
        """Tells whether a resumed run sees the same data."""
        digest = hashlib.sha256(repr((self.columns, self.scaler)).encode())
        for part in (self.train, self.validation):
            digest.update(part.starts.tobytes())
            for block in _blocks(part.values, [(0, len(part.values))]):
                digest.update(block.tobytes())
        return digest.hexdigest()


def load(config: DataConfig, *, window: int, stride: int | None = None) -> TrainingData:
    """Read, check, split, fill, scale. The rows are held once, as float32."""
    table = _read(config, config.source, config.columns)
    if isinstance(config.validation, str):
        other = _read(config, config.validation, table.columns)
        train_spans, validation_spans = _series_spans(table), _series_spans(other)
    else:
        other = table
        train_spans, validation_spans = _split(_series_spans(table), config.validation)

    train_starts = _starts(train_spans, window, stride or window, cover_tail=False)
    validation_starts = _starts(validation_spans, window, window, cover_tail=True)
    if not len(train_starts):
        longest = max(end - first for first, end in train_spans)
        raise DataError(
            f"{table.source}: the longest training part has {longest} rows, fewer than a window of {window}; "
            f"give more rows or a smaller --window"
        )
    if not len(validation_starts):
        longest = max(end - first for first, end in validation_spans)
        raise DataError(
            f"{other.source}: the longest validation part has {longest} rows, fewer than a window of {window}; "
            f"give a larger --validation, another file for it, or a smaller --window"
        )

    mean = _train_mean(table, train_spans)
    for part in _distinct(table, other):
        _fill_missing(part, mean, config.fill)
    scaler = _fit_scaler(table, train_spans)
    for part in _distinct(table, other):
        _scale(part, scaler)
    return TrainingData(
        columns=table.columns,
        scaler=scaler,
        train=Windows(table.values, train_starts, _rows(train_spans)),
        validation=Windows(other.values, validation_starts, _rows(validation_spans)),
        notes=_notes(table, train_spans, validation_spans, window),
    )


def _read(config: DataConfig, source: str, columns: list[str] | None) -> Table:
    table = read_table(
        source,
        columns=columns,
        exclude=config.exclude if columns is config.columns else (),
        time_column=config.time_column,
        series_column=config.series_column,
    )
    first = 0
    for block in _blocks(table.values, [(0, len(table.values))]):
        if np.isinf(block).any():
            row, column = np.argwhere(np.isinf(block))[0]
            raise DataError(
                f"{source}: column {table.columns[column]!r} is infinite, or too large for float32, "
                f"in row {first + row}; drop or mend that row"
            )
        first += len(block)
    missing = _count_missing(table.values)
    for name, count in zip(table.columns, missing, strict=True):
        if count == len(table.values):
            raise DataError(f"{source}: column {name!r} has no value at all; leave it out with --exclude {name}")
    if config.fill == "error" and missing.any():
        gaps = [f"{name} ({count})" for name, count in zip(table.columns, missing, strict=True) if count]
        shown = ", ".join(gaps[:8]) + (f" and {len(gaps) - 8} more columns" if len(gaps) > 8 else "")
        raise DataError(f"{source}: missing values in {shown}; pass --fill forward or --fill mean, or drop them")
    return table


def _series_spans(table: Table) -> list[Span]:
    ends = np.cumsum([rows for _, rows in table.series]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _split(spans: list[Span], validation: float) -> tuple[list[Span], list[Span]]:
    """The last share of each series is for validation."""
    if not 0 < validation < 1:
        raise ConfigError(f"validation: {validation:g} is not a share between 0 and 1")
    cuts = [end - int((end - first) * validation) for first, end in spans]
    train = [(first, cut) for (first, _), cut in zip(spans, cuts, strict=True)]
    return train, [(cut, end) for (_, end), cut in zip(spans, cuts, strict=True)]


def _starts(spans: list[Span], window: int, stride: int, *, cover_tail: bool) -> Starts:
    parts = [first + window_starts(end - first, window, stride, cover_tail=cover_tail) for first, end in spans]
    return np.concatenate(parts)


def _train_mean(table: Table, spans: list[Span]) -> NDArray[np.float64]:
    """Mean of the values that are there."""
    total = np.zeros(len(table.columns))
    count = np.zeros(len(table.columns), np.int64)
    for block in _blocks(table.values, spans):
        total += np.nansum(block, axis=0, dtype=np.float64)
        count += np.isfinite(block).sum(axis=0)
    for name, n in zip(table.columns, count, strict=True):
        if n == 0:
            raise DataError(
                f"{table.source}: column {name!r} has no value in the training part; leave it out with --exclude {name}"
            )
    return total / count


def _fill_missing(table: Table, mean: NDArray[np.float64], fill: Fill) -> None:
    """Fill in place; a gap at the start of a series has nothing to repeat and gets the mean."""
    for j in np.flatnonzero(_count_missing(table.values)):
        column = table.values[:, j]
        if fill == "forward":
            for first, end in _series_spans(table):
                part = column[first:end]
                known = np.where(np.isnan(part), -1, np.arange(len(part)))
                last_known = np.maximum.accumulate(known)
                part[:] = np.where(last_known < 0, np.nan, part[last_known])
        column[np.isnan(column)] = mean[j]


def _fit_scaler(table: Table, spans: list[Span]) -> Scaler:
    """Mean and standard deviation of the training part; a column that is constant there keeps its unit."""
    rows = _rows(spans)
    mean = np.zeros(len(table.columns))
    low, high = np.full(len(mean), np.inf), np.full(len(mean), -np.inf)
    for block in _blocks(table.values, spans):
        mean += block.sum(axis=0, dtype=np.float64) / rows
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
    variance = np.zeros(len(mean))
    for block in _blocks(table.values, spans):
        variance += np.square(block - mean).sum(axis=0) / rows
    constant = low == high
    mean = np.where(constant, low, mean)
    scale = np.where(constant, 1.0, np.sqrt(variance))
    return Scaler(mean=mean.tolist(), scale=scale.tolist())


def _scale(table: Table, scaler: Scaler) -> None:
    """Scale in place, in float32 as the exported graph does it."""
    mean, scale = np.asarray(scaler.mean, np.float32), np.asarray(scaler.scale, np.float32)
    for block in _blocks(table.values, [(0, len(table.values))]):
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            block -= mean
            block /= scale
        if not np.isfinite(block).all():
            name = table.columns[int(np.argmin(np.isfinite(block).all(axis=0)))]
            raise DataError(f"{table.source}: column {name!r} overflows float32 when scaled; divide it by a constant")


def _notes(table: Table, train_spans: list[Span], validation_spans: list[Span], window: int) -> list[str]:
    notes = []
    if table.ignored:
        notes.append(f"not numeric, left out: {', '.join(table.ignored)}")
    for name, spans in (("training", train_spans), ("validation", validation_spans)):
        short = sum(end - first < window for first, end in spans)
        if short:
            notes.append(f"{short} of {len(spans)} series have a {name} part shorter than a window: not used")
    clocks = rising_columns(table)
    if clocks:
        notes.append(
            f"{', '.join(clocks)} rises steadily like a clock or row number and is learnt as a feature; "
            f"if that is not meant, pass --time-column or --exclude"
        )
    return notes


def _count_missing(values: Rows) -> NDArray[np.int64]:
    count = np.zeros(values.shape[1], np.int64)
    for block in _blocks(values, [(0, len(values))]):
        count += np.isnan(block).sum(axis=0)
    return count


def _blocks(values: Rows, spans: list[Span]) -> Iterator[Rows]:
    """Views of a limited number of rows, in order, over the given spans."""
    for first, end in spans:
        for start in range(first, end, BLOCK_ROWS):
            yield values[start : min(start + BLOCK_ROWS, end)]


def _rows(spans: list[Span]) -> int:
    return sum(end - first for first, end in spans)


def _distinct(table: Table, other: Table) -> list[Table]:
    """Both tables, or the one if validation is a part of it."""
    return [table] if other is table else [table, other]
