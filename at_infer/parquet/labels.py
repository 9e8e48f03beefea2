"""Scores and labels, row by row: read, joined, and refused where they do not belong together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.parquet.files import InputFile, listed, reading, source_files
from at_infer.parquet.order import SeriesAndTime

Join = Literal["auto", "row", "time", "series+time"]
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class ScoredRows:
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
    """From the time column, if it holds dates."""
    properties: dict[str, str]


def read_scores(source: str, *, score_column: str = "score") -> ScoredRows:
    """The scores of a file, folder or glob, in order."""
    files = _open(source)
    frame = _read(files, [score_column])
    return ScoredRows(source, _scores(frame, score_column, files[0]), _properties(files[0]))


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
    files = _open(source)
    other = files if labels is None else _open(labels)
    keys = _keys(files[0], time_column, series_column, {score_column, label_column})
    compared = [] if labels is None else _compared(keys, join, files[0], other[0])
    own = _read(files, [score_column, *keys.columns, *([label_column] if labels is None else [])])
    theirs = own if labels is None else _read(other, [label_column, *compared])
    if theirs.height != own.height:
        raise DataError(
            f"{labels}: has {theirs.height} rows, {source} has {own.height}; labels need one row per scored row"
        )
    for name in compared:
        _check_equal(own[name], theirs[name], source, str(labels))
    scores = _scores(own, score_column, files[0])
    truth = _labels(theirs[label_column], labels or source)
    names = keys.walk(own, files)
    known = ~np.isnan(scores)
    ends = np.cumsum([rows for _, rows in names])
    counts = np.diff(np.append(0, np.cumsum(known)[ends - 1]))
    return LabelledRows(
        scores=scores[known],
        labels=truth[known],
        series=[(name, int(rows)) for (name, _), rows in zip(names, counts, strict=True)],
        unscored_rows=int((~known).sum()),
        joined_on="the same file" if labels is None else " and ".join(compared) or "row number",
        rows_per_day=_rows_per_day(own, keys.time, names),
        properties=_properties(files[0]),
    )


@dataclass(frozen=True, slots=True)
class _Keys:
    """Columns of a file of scores that tell which row is which."""

    time: str | None
    series: list[str]
    """None, the series column, the file column of --series-per-file, or both."""
    row: str | None

    @property
    def columns(self) -> list[str]:
        return [*self.series, *(name for name in (self.time, self.row) if name is not None)]

    def walk(self, frame: pl.DataFrame, files: list[InputFile]) -> list[tuple[str, int]]:
        """Name and rows of each series; time must rise, rows must be numbered without gaps."""
        if not self.columns:
            return [("", frame.height)]
        if self.row is not None:
            odd = (frame[self.row] != pl.int_range(frame.height, eager=True)).fill_null(value=True).arg_true()
            if len(odd):
                raise DataError(
                    f"{files[0].path}: row {odd[0]} says it is row {frame[self.row][int(odd[0])]}; reordered?"
                )
        name = " and ".join(self.series) if self.series else None
        keys = {} if self.time is None else {self.time: frame[self.time]}
        if name is not None:
            parts = [frame[column].cast(pl.String) for column in self.series]
            keys[name] = parts[0] if len(parts) == 1 else parts[0] + ": " + parts[1]
        if not keys:
            return [("", frame.height)]
        order = SeriesAndTime(self.time, name)
        order.enter(str(files[0].path), 0)
        order.take(pl.DataFrame(keys), 0)
        return order.finish(frame.height)


def _keys(file: InputFile, time: str | None, series: str | None, taken: set[str]) -> _Keys:
    """As named, else as `at-infer score` writes them: file, series, time (or row) in front of the score."""
    for name in (time, series):
        if name is not None and name not in file.schema:
            raise DataError(f"{file.path}: column {name!r} is missing; the file has {listed(list(file.schema))}")
    front: list[str] = []
    for name in file.schema:
        if name in taken or name in ("score", "is_anomaly"):
            break
        front.append(name)
    free = [name for name in front if name not in (time, series, "row", "file")]
    if len(free) == 2 and time is None and series is None:
        series, time = free
    elif len(free) == 1:
        textual = file.schema[free[0]] in (pl.String, pl.Categorical, pl.Enum)
        if textual and series is None:
            series = free[0]
        elif not textual and time is None:
            time = free[0]
    of_file = ["file"] if "file" in front and series != "file" else []
    numbered = "row" in front and "row" not in (time, series)
    return _Keys(time, [*of_file, *([] if series is None else [series])], "row" if numbered else None)


def _compared(keys: _Keys, join: Join, own: InputFile, other: InputFile) -> list[str]:
    """Columns that both files must agree on."""
    series: list[str | None] = [name for name in keys.series if name != "file"]
    choices: dict[Join, list[str | None]] = {
        "auto": [name for name in [*series, keys.time] if name is not None and name in other.schema],
        "row": [],
        "time": [keys.time],
        "series+time": [*(series or [None]), keys.time],
    }
    wanted = choices[join]
    names = [name for name in wanted if name is not None]
    if len(names) < len(wanted):
        raise DataError(
            f"{own.path}: no column tells the {join.replace('+', ' and ')}; name it with --time-column and "
            f"--series-column, or join by row"
        )
    for name in names:
        if name not in other.schema:
            raise DataError(f"{other.path}: column {name!r} is missing; the file has {listed(list(other.schema))}")
    return names


def _check_equal(own: pl.Series, theirs: pl.Series, source: str, labels: str) -> None:
    name = own.name
    kinds = own.dtype, theirs.dtype
    if own.dtype != theirs.dtype and not all(kind.is_numeric() for kind in kinds):
        if not all(kind.is_temporal() for kind in kinds):
            raise DataError(
                f"{labels}: column {name!r} is {kinds[1]} but in {source} it is {kinds[0]}; write both alike"
            )
        theirs = theirs.cast(own.dtype)
    odd = own.ne_missing(theirs).arg_true()
    if len(odd):
        row = int(odd[0])
        raise DataError(f"{labels}: row {row} has {name} {theirs[row]}, {source} has {own[row]} there; sort both alike")


def _scores(frame: pl.DataFrame, column: str, file: InputFile) -> NDArray[np.float32]:
    if not frame[column].dtype.is_numeric():
        raise DataError(f"{file.path}: column {column!r} is {frame[column].dtype}; a score is a number")
    scores = frame[column].cast(pl.Float32).to_numpy().copy()
    if np.isinf(scores).any():
        raise DataError(
            f"{file.path}: column {column!r} is infinite in row {int(np.isinf(scores).argmax())}; score again"
        )
    return scores


def _labels(column: pl.Series, source: str) -> NDArray[np.bool_]:
    where = f"{source}: column {column.name!r}"
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise DataError(f"{where} is {column.dtype}; labels are 1 or true for an anomaly, 0 or false else")
    values = column.cast(pl.Float64)
    odd = (~values.is_in([0.0, 1.0])).fill_null(value=True).arg_true()
    if len(odd):
        row = int(odd[0])
        raise DataError(f"{where} is {column[row]} in row {row}; labels are 1 for an anomaly, 0 else")
    return values.to_numpy() > 0


def _rows_per_day(frame: pl.DataFrame, time: str | None, series: list[tuple[str, int]]) -> float | None:
    if time is None or frame[time].dtype not in (pl.Date, pl.Datetime):
        return None
    seconds = frame[time].cast(pl.Datetime("us")).to_physical().to_numpy() / 1e6
    last = np.cumsum([rows for _, rows in series]) - 1
    first = np.append(0, last[:-1] + 1)
    steps = int((last - first).sum())
    span = float((seconds[last] - seconds[first]).sum())
    return DAY_S * steps / span if span > 0 else None


def _open(source: str) -> list[InputFile]:
    with reading(source):
        paths = source_files(source)
    files = [file for file in map(InputFile.open, paths) if file.rows]
    if not files:
        raise DataError(f"{source}: has no rows")
    return files


def _read(files: list[InputFile], names: list[str]) -> pl.DataFrame:
    frames = []
    for file in files:
        for name in names:
            if name not in file.schema:
                raise DataError(f"{file.path}: column {name!r} is missing; the file has {listed(list(file.schema))}")
        with reading(str(file.path)):
            frames.append(file.scan.select(cs.by_name(*names)).collect())
    with reading(str(files[0].path)):
        return pl.concat(frames, how="vertical_relaxed") if len(frames) > 1 else frames[0]


def _properties(file: InputFile) -> dict[str, str]:
    if isinstance(file.path, Path) and file.path.suffix.lower() != ".csv":
        with reading(str(file.path)), file.path.open("rb") as opened:
            return pl.read_parquet_metadata(opened)
    return {}
