"""Which row is which: the key columns of a file of scores, compared with those of a file that belongs to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from at_infer.choices import Join
from at_infer.errors import DataError
from at_infer.models.scored_by import ScoredBy
from at_infer.tables.files import InputFile, reading, source_files
from at_infer.tables.order import SeriesAndTime


@dataclass(frozen=True, slots=True)
class Keys:
    """Columns of a file of scores that tell which row is which."""

    time: str | None
    series: list[str]
    """None, the series column, the file column of --series-per-file, or both."""
    row: str | None

    @property
    def columns(self) -> list[str]:
        """All of them."""
        return [*self.series, *(name for name in (self.time, self.row) if name is not None)]


class KeyWalk:
    """Walks over the keys of rows, chunk by chunk: series are found, time must rise, rows be numbered without gaps."""

    def __init__(self, keys: Keys, source: str, properties: Mapping[str, str]) -> None:
        self.keys, self.source = keys, source
        self.name = " and ".join(keys.series) if keys.series else None
        on_bad_time = ScoredBy.of(properties, source).on_bad_time
        # Whoever scored the rows took times as they came.
        self.order = SeriesAndTime(keys.time, self.name, "ignore" if on_bad_time == "ignore" else None)
        self.order.enter(source, 0)

    def take(self, frame: pl.DataFrame, first_row: int) -> list[tuple[int, str]]:
        """Look at the next rows, the first of which is row `first_row`; where in them a series starts, and its name."""
        if self.keys.row is not None:
            self._check_numbers(frame[self.keys.row], first_row)
        checked = {} if self.keys.time is None else {self.keys.time: frame[self.keys.time]}
        if self.name is not None:
            parts = [frame[column].cast(pl.String) for column in self.keys.series]
            checked[self.name] = parts[0] if len(parts) == 1 else parts[0] + ": " + parts[1]
        known = len(self.order.starts)
        if checked:
            self.order.take(pl.DataFrame(checked), first_row)
        if self.name is None:
            return [(0, "")] if first_row == 0 else []
        return [(row - first_row, name) for name, row in list(self.order.starts.items())[known:]]

    def _check_numbers(self, numbers: pl.Series, first_row: int) -> None:
        expected = pl.int_range(first_row, first_row + len(numbers), eager=True)
        odd = (numbers != expected).fill_null(value=True).arg_true()
        if len(odd):
            row = int(odd[0])
            raise DataError(
                f"{self.source}: row {first_row + row} has row number {numbers[row]}; restore the original order"
            )


def find_keys(file: InputFile, time: str | None, series: str | None, taken: set[str]) -> Keys:
    """As named, else as `at-infer score` writes them: file, series, time (or row) in front of the score.

    Which is which is in the metadata; in files of earlier versions, a lonely column of texts is the series.
    """
    file.check_has([name for name in (time, series) if name is not None])
    front: list[str] = []
    for name in file.schema:
        if name in taken or name in ("score", "is_anomaly"):
            break
        front.append(name)
    if time is None and series is None:
        written = ScoredBy.of(file_properties(file), str(file.path))
        time, series = (name if name in front else None for name in (written.time_column, written.series_column))
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
    return Keys(time, [*of_file, *([] if series is None else [series])], "row" if numbered else None)


def compared_keys(keys: Keys, join: Join, own: InputFile, other: InputFile) -> list[str]:
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
            f"{own.path}: no column identifies the {join.replace('+', ' and ')}; name it with time_column=... and "
            f"series_column=..., or use join='row'"
        )
    other.check_has(names)
    return names


def check_equal(own: pl.Series, theirs: pl.Series, source: str, other: str, first_row: int = 0) -> None:
    """Two columns of the same name must hold the same values; rows are counted from `first_row`."""
    name = own.name
    kinds = own.dtype, theirs.dtype
    if own.dtype != theirs.dtype and not all(kind.is_numeric() for kind in kinds):
        if not all(kind.is_temporal() for kind in kinds):
            raise DataError(
                f"{other}: column {name!r} is {kinds[1]} but in {source} it is {kinds[0]}; use the same type"
            )
        theirs = theirs.cast(own.dtype)
    odd = own.ne_missing(theirs).arg_true()
    if len(odd):
        row = int(odd[0])
        raise DataError(
            f"{other}: row {first_row + row} has {name} {theirs[row]}, {source} has {own[row]}; sort both files in the "
            f"same way"
        )


def open_files(source: str) -> list[InputFile]:
    """The files behind a name, folder or glob that have rows."""
    with reading(source):
        paths = source_files(source)
    files = [file for file in map(InputFile.open, paths) if file.rows]
    if not files:
        raise DataError(f"{source}: has no rows")
    return files


def file_properties(file: InputFile) -> dict[str, str]:
    """Key-value metadata of a Parquet file of this machine."""
    if isinstance(file.path, Path) and file.path.suffix.lower() != ".csv":
        with reading(str(file.path)), file.path.open("rb") as opened:
            return pl.read_parquet_metadata(opened)
    return {}
