"""The order of rows: series stay together and time rises within them."""

import polars as pl

from at_infer.errors import DataError


class SeriesAndTime:
    """Walks over chunks of rows, notes where a series ends and checks that time rises within it."""

    def __init__(self, time_column: str | None, series_column: str | None) -> None:
        self.time_column, self.series_column = time_column, series_column
        named = {"time": time_column, "series": series_column}
        self.keys = {role: column for role, column in named.items() if column is not None}
        self.starts: dict[str, int] = {}
        self.last: pl.DataFrame | None = None

    def enter(self, file: str, first_row: int) -> None:
        """The next chunks come from `file`, whose first row is row `first_row` of the table."""
        self.file, self.file_start = file, first_row

    def take(self, chunk: pl.DataFrame, first_row: int) -> None:
        """Look at time and series of the next rows, the first of which is row `first_row` of the table."""
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
        if self.time_column is not None:
            self._check_time(joined["time"], new_series, offset)
        self.last = keys.tail(1)

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

    def _check_time(self, time: pl.Series, new_series: pl.Series, offset: int) -> None:
        stalls = ((time <= time.shift(1)) & ~new_series).fill_null(value=False).arg_true()
        if len(stalls):
            i = int(stalls[0])
            what = "is there twice" if time[i] == time[i - 1] else f"comes after {time[i - 1]}"
            as_text = ", compared as text" if time.dtype == pl.String else ""
            raise DataError(
                f"{self._row(offset + i)}: {self.time_column} {time[i]} {what}{as_text}; "
                f"sort the rows by time and drop duplicates"
            )

    def _row(self, row: int) -> str:
        return f"{self.file}: row {row - self.file_start}"
