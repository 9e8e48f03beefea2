"""The order of rows: series stay together and time rises within them."""

import polars as pl

from at_infer.choices import BadTime
from at_infer.errors import DataError


class SeriesAndTime:
    """Walks over chunks of rows, notes where a series ends and checks that time rises within it.

    `on_bad_time` says what is done about a time that does not rise; None: it is an error, and there is no way on.
    """

    def __init__(self, time_column: str | None, series_column: str | None, on_bad_time: BadTime | None = None) -> None:
        self.time_column, self.series_column, self.on_bad_time = time_column, series_column, on_bad_time
        named = {"time": time_column, "series": series_column}
        self.keys = {role: column for role, column in named.items() if column is not None}
        self.starts: dict[str, int] = {}
        self.last: pl.DataFrame | None = None

    def enter(self, file: str, first_row: int) -> None:
        """The next chunks come from `file`, whose first row is row `first_row` of the table."""
        self.file, self.file_start = file, first_row

    def take(self, chunk: pl.DataFrame, first_row: int) -> list[int]:
        """Look at time and series of the next rows, the first of which is row `first_row` of the table.

        Rows of the chunk to leave out are returned.
        """
        # Names of our own: methods of a polars Series take a name like '^a.*$' for a pattern.
        keys = pl.DataFrame({role: chunk[column] for role, column in self.keys.items()})
        for key in keys:
            missing = key.is_null() | key.is_nan() if key.dtype.is_float() else key.is_null()
            if missing.any():
                where = self._row(first_row + int(missing.arg_max() or 0))
                raise DataError(f"{where}: column {self.keys[key.name]!r} has no value; fill or drop that row")
        joined = keys if self.last is None else pl.concat([self.last, keys])
        offset = first_row - (joined.height - keys.height)  # table row of joined row 0
        new_series = pl.repeat(False, joined.height, eager=True)
        if self.series_column is not None:
            series = joined["series"]
            new_series = (series != series.shift(1)).fill_null(value=False)
            if self.last is None:
                self._start(str(series[0]), 0)
            for i in new_series.arg_true():
                self._start(str(series[int(i)]), offset + int(i))
        bad = [] if self.time_column is None else self._bad_times(joined["time"], new_series, offset)
        left_out = [offset + i - first_row for i in bad]
        kept = keys.height
        for row in reversed(left_out):
            kept -= row == kept - 1
        if kept:
            self.last = keys[kept - 1 : kept]
        return left_out

    def finish(self, rows: int) -> list[tuple[str, int]]:
        """Name and length of each series."""
        if self.series_column is None:
            return [("", rows)]
        firsts = list(self.starts.values())
        ends = [*firsts[1:], rows]
        return [(name, end - first) for name, first, end in zip(self.starts, firsts, ends, strict=True)]

    def _start(self, name: str, row: int) -> None:
        if name in self.starts:
            raise DataError(
                f"{self._row(row)}: series {name!r} starts again; sort the rows by {self.series_column} and time"
            )
        self.starts[name] = row

    def _bad_times(self, time: pl.Series, new_series: pl.Series, offset: int) -> list[int]:
        """Rows whose time does not rise, if they are to be left out."""
        if self.on_bad_time == "ignore":
            return []
        time, as_text = _instants(time)
        stalls = ((time <= time.shift(1)) & ~new_series).fill_null(value=False).arg_true()
        if len(stalls) and self.on_bad_time == "drop":
            found, last = [], time[0]
            for i, (value, is_new) in enumerate(zip(time, new_series, strict=True)):
                if i and not is_new and value <= last:
                    found.append(i)
                else:
                    last = value
            return found
        if len(stalls):
            i = int(stalls[0])
            what = "is there twice" if time[i] == time[i - 1] else f"comes after {time[i - 1]}"
            what += ", compared as text" if as_text else ""
            raise DataError(
                f"{self._row(offset + i)}: {self.time_column} {time[i]} {what}; "
                f"sort the rows by time and drop duplicates"
                + ("" if self.on_bad_time is None else ", or pass on_bad_time='drop' or on_bad_time='ignore'")
            )
        return []

    def _row(self, row: int) -> str:
        return f"{self.file}: row {row - self.file_start}"


def _instants(time: pl.Series) -> tuple[pl.Series, bool]:
    """Texts of ISO 8601 as the instants they name, as an hour may come twice; other texts, which is told, and times."""
    if time.dtype != pl.String:
        return time, False
    try:
        found = time.str.to_datetime(time_unit="ns", strict=False)
    except pl.exceptions.ComputeError:
        return time, True
    return (time, True) if found.null_count() else (found, False)
