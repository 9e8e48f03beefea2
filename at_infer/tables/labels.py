"""Scores and labels, row by row: read, joined, and refused where they do not belong together."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.memory import check_memory
from at_infer.tables.clock import read_times
from at_infer.tables.files import InputFile, reading
from at_infer.tables.keys import KeyWalk, check_equal, file_properties, open_files
from at_infer.tables.observed import ObservedTime

if TYPE_CHECKING:
    from at_infer.tables.scores import ScoredFile


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


def read_scores(source: str) -> FileScores:
    """The scores of a file, folder or glob, in order."""
    files = open_files(source)
    frame = _read(files, ["score"])
    return FileScores(source, score_values(frame, "score", files[0].path), file_properties(files[0]))


def read_labelled(file: "ScoredFile") -> LabelledRows:
    """All scores with their labels; keys (row number, time, series) are compared, not searched."""
    source, labels, keys = file.source, str(file.labels), file.keys
    own = _read(file.files, [file.score_column, *keys.columns])
    theirs = _read(file.label_files, [file.label_column, *file.compared])
    for name in file.compared:
        check_equal(own[name], theirs[name], source, labels)
    scores = score_values(own, file.score_column, file.files[0].path)
    names = _series(own, file)
    known = ~np.isnan(scores)
    ends = np.cumsum([rows for _, rows in names])
    counts = np.diff(np.append(0, np.cumsum(known)[ends - 1]))
    return LabelledRows(
        scores=scores[known],
        labels=label_values(theirs[file.label_column], labels)[known],
        series=[(name, int(rows)) for (name, _), rows in zip(names, counts, strict=True)],
        unscored_rows=int((~known).sum()),
        joined_on="the same file" if labels == source else " and ".join(file.compared) or "row number",
        rows_per_day=_rows_per_day(own, names, file),
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


def _series(frame: pl.DataFrame, file: "ScoredFile") -> list[tuple[str, int]]:
    """Name and rows of each series."""
    walk = KeyWalk(file.keys, file.source, file.properties)
    walk.take(frame, 0)
    return walk.order.finish(frame.height)


def _rows_per_day(frame: pl.DataFrame, series: list[tuple[str, int]], file: "ScoredFile") -> float | None:
    if file.keys.time is None or file.clock != "date":
        return None
    times_ms, observed, end = read_times(frame[file.keys.time], file.clock, file.source), ObservedTime(), 0
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
        file.check_has(names)
        with reading(str(file.path)):
            frames.append(file.scan.select(cs.by_name(*names)).collect())
    with reading(str(files[0].path)):
        return pl.concat(frames, how="vertical_relaxed") if len(frames) > 1 else frames[0]
