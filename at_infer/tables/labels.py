"""Scores and labels, row by row: read, joined, and refused where they do not belong together."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from at_infer.choices import Join
from at_infer.errors import DataError
from at_infer.memory import check_memory
from at_infer.tables.clock import clock_of, read_times
from at_infer.tables.files import InputFile, listed, reading
from at_infer.tables.keys import (
    Keys,
    KeyWalk,
    check_equal,
    compared_keys,
    file_properties,
    find_keys,
    open_files,
)
from at_infer.tables.observed import ObservedTime


@dataclass(frozen=True, slots=True)
class FileScores:
    """A file of scores; a row without a score is NaN."""

    source: str
    scores: NDArray[np.float32]
    properties: dict[str, str]
    """Key-value metadata of the first file."""


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Scores and labels of the rows that have a score."""

    scores: NDArray[np.float32]
    labels: NDArray[np.bool_]
    series: list[tuple[str, int]]
    """Name and number of scored rows of each series, in order."""
    unscored_rows: int
    joined_on: str
    """In words."""
    rows_per_day: float | None
    """While rows come, by `ObservedTime`, if the time column holds dates."""
    properties: dict[str, str]


def read_scores(source: str, *, score_column: str = "score") -> FileScores:
    """The scores of a file, folder or glob, in order."""
    files = open_files(source)
    frame = _read(files, [score_column])
    return FileScores(source, score_values(frame, score_column, files[0].path), file_properties(files[0]))


def read_labelled(
    source: str,
    labels: str | None = None,
    *,
    label_column: str = "label",
    score_column: str = "score",
    time_column: str | None = None,
    series_column: str | None = None,
    join: Join = "auto",
) -> LabelledRows:
    """Scores with the labels of the same file or of another one with the same rows in the same order.

    Keys (row number, time, series) are compared, not searched: what is missing or elsewhere is an error.
    """
    files = open_files(source)
    other = files if labels is None else open_files(labels)
    keys = find_keys(files[0], time_column, series_column, {score_column, label_column})
    compared = [] if labels is None else compared_keys(keys, join, files[0], other[0])
    own = _read(files, [score_column, *keys.columns, *([label_column] if labels is None else [])])
    theirs = own if labels is None else _read(other, [label_column, *compared])
    if theirs.height != own.height:
        raise DataError(
            f"{labels}: has {theirs.height} rows, {source} has {own.height}; labels need one row per scored row"
        )
    for name in compared:
        check_equal(own[name], theirs[name], source, str(labels))
    scores = score_values(own, score_column, files[0].path)
    truth = label_values(theirs[label_column], labels or source)
    names = _series(own, keys, files[0])
    known = ~np.isnan(scores)
    ends = np.cumsum([rows for _, rows in names])
    counts = np.diff(np.append(0, np.cumsum(known)[ends - 1]))
    return LabelledRows(
        scores=scores[known],
        labels=truth[known],
        series=[(name, int(rows)) for (name, _), rows in zip(names, counts, strict=True)],
        unscored_rows=int((~known).sum()),
        joined_on="the same file" if labels is None else " and ".join(compared) or "row number",
        rows_per_day=_rows_per_day(own, keys.time, names, source),
        properties=file_properties(files[0]),
    )


def score_values(frame: pl.DataFrame, column: str, path: object, first_row: int = 0) -> NDArray[np.float32]:
    """Scores as float32, NaN where there is none; never infinite."""
    if not frame[column].dtype.is_numeric():
        raise DataError(f"{path}: column {column!r} is {frame[column].dtype}; a score is a number")
    scores = frame[column].cast(pl.Float32).to_numpy().copy()
    if np.isinf(scores).any():
        row = first_row + int(np.isinf(scores).argmax())
        raise DataError(f"{path}: column {column!r} is infinite in row {row}; score again")
    return scores


def label_values(column: pl.Series, source: str, first_row: int = 0) -> NDArray[np.bool_]:
    """True for an anomaly; every row must say so."""
    where = f"{source}: column {column.name!r}"
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise DataError(f"{where} is {column.dtype}; labels are 1 or true for an anomaly, 0 or false else")
    values = column.cast(pl.Float64)
    odd = (~values.is_in([0.0, 1.0])).fill_null(value=True).arg_true()
    if len(odd):
        row = int(odd[0])
        raise DataError(f"{where} is {column[row]} in row {first_row + row}; labels are 1 for an anomaly, 0 else")
    return values.to_numpy() > 0


def _series(frame: pl.DataFrame, keys: Keys, file: InputFile) -> list[tuple[str, int]]:
    """Name and rows of each series."""
    walk = KeyWalk(keys, str(file.path), file_properties(file))
    walk.take(frame, 0)
    return walk.order.finish(frame.height)


def _rows_per_day(frame: pl.DataFrame, time: str | None, series: list[tuple[str, int]], source: str) -> float | None:
    if time is None or (clock := clock_of(frame[time])) != "date":
        return None
    times_ms, observed, end = read_times(frame[time], clock, source), ObservedTime(), 0
    for _, rows in series:
        first, end = end, end + rows
        observed.start_series()
        observed.add(times_ms[first:end])
    return None if observed.days is None else frame.height / observed.days


def _read(files: list[InputFile], names: list[str]) -> pl.DataFrame:
    rows = sum(file.rows for file in files)
    check_memory(8 * rows * len(names), str(files[0].path), f"{rows} rows of {len(names)} columns")
    frames = []
    for file in files:
        for name in names:
            if name not in file.schema:
                raise DataError(f"{file.path}: column {name!r} is missing; the file has {listed(list(file.schema))}")
        with reading(str(file.path)):
            frames.append(file.scan.select(cs.by_name(*names)).collect())
    with reading(str(files[0].path)):
        return pl.concat(frames, how="vertical_relaxed") if len(frames) > 1 else frames[0]
