"""Input of scoring: rows of any number of files, chunk by chunk, with what is carried through."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.parquet.files import InputFile, listed, reading, source_files
from at_infer.parquet.order import SeriesAndTime

CHUNK_CELLS = 1 << 22  # cells of a chunk: 16 MB as float32

Carried = pl.DataFrame


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows, in order."""

    first_row: int
    """Of the whole input."""
    values: NDArray[np.float32]
    """(rows, features), raw; a missing value is NaN."""
    carried: Carried
    """Time and series of the rows, or their number."""
    starts: list[tuple[int, str]]
    """Rows of this chunk that begin a series, and its name."""


class RowStream:
    """The rows behind a file, folder, Hive tree, glob or URL; features are found by name."""

    def __init__(
        self,
        source: str,
        columns: Sequence[str],
        *,
        time_column: str | None = None,
        series_column: str | None = None,
        series_per_file: bool = False,
    ) -> None:
        self.source, self.columns = source, list(columns)
        self.time_column, self.series_column = time_column, series_column
        self.series_per_file = series_per_file
        with reading(source):
            paths = source_files(source)
        hive = len(paths) > 1 or (isinstance(paths[0], Path) and Path(source).is_dir())
        self.files = [InputFile.open(path, hive=hive) for path in paths]
        self.rows = sum(file.rows for file in self.files)
        if self.rows == 0:
            raise DataError(f"{source}: has no rows")
        for file in self.files:
            self._check(file)

    def _check(self, file: InputFile) -> None:
        keys = [key for key in (self.time_column, self.series_column) if key is not None]
        for name in [*self.columns, *keys]:
            if name not in file.schema:
                raise DataError(
                    f"{file.path}: column {name!r} is missing; the model was trained on {listed(self.columns)}, the "
                    f"file has {listed(list(file.schema))}"
                )
        for name in self.columns:
            dtype = file.schema[name]
            if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
                raise DataError(f"{file.path}: column {name!r} is {dtype}, not numeric; the model needs numbers")
        for name in keys:
            dtype, first = file.schema[name], self.files[0].schema[name]
            if dtype != first:
                raise DataError(f"{file.path}: column {name!r} is {dtype} but in {self.files[0].path} it is {first}")

    def fingerprint(self) -> list[list[str | int]]:
        """Tells whether a resumed run sees the same files."""
        found: list[list[str | int]] = []
        for file in self.files:
            stat = file.path.stat() if isinstance(file.path, Path) else None
            found.append([str(file.path), file.rows, stat.st_size if stat else 0, stat.st_mtime_ns if stat else 0])
        return found

    def chunks(self) -> Iterator[Chunk]:
        """All rows, in order of the files and of the rows in them."""
        done = 0
        order = SeriesAndTime(self.time_column, self.series_column)
        for number, file in enumerate(self.files):
            if self.series_per_file:
                order = SeriesAndTime(self.time_column, self.series_column)
            order.enter(str(file.path), done)
            if self.series_per_file and file.rows == 0:
                yield Chunk(done, np.empty((0, len(self.columns)), np.float32), pl.DataFrame(), [(0, str(file.path))])
            begins = self.series_per_file or number == 0
            for chunk in self._file_chunks(file, done, order, begins=begins):
                yield chunk
                done += len(chunk.values)

    def _file_chunks(self, file: InputFile, done: int, order: SeriesAndTime, *, begins: bool) -> Iterator[Chunk]:
        keys = list(order.keys.values())
        # Features under names of our own: one of them may also be carried.
        features = [f"feature:{j}" for j in range(len(self.columns))]
        query = file.scan.select(
            *(cs.by_name(name).cast(pl.Float32).alias(own) for name, own in zip(self.columns, features, strict=True)),
            *(cs.by_name(key) for key in keys),
        )
        for first, frame in file.collect(query, max(1, CHUNK_CELLS // (len(features) + len(keys)))):
            row = done + first
            known = len(order.starts)
            if keys:
                order.take(frame, row)
            if self.series_column is not None:
                # A file of its own makes its first series a new one, whatever came before it.
                new = list(order.starts.items())[known:]
                prefix = f"{file.path}: " if self.series_per_file else ""
                starts = [(max(at, done) - row, prefix + name) for name, at in new]
            else:
                starts = [(0, str(file.path) if self.series_per_file else "")] if begins and first == 0 else []
            yield Chunk(row, frame.select(features).to_numpy(order="c"), self._carry(frame, file, row), starts)

    def _carry(self, frame: pl.DataFrame, file: InputFile, row: int) -> Carried:
        carried = {key: frame[key] for key in (self.series_column, self.time_column) if key is not None}
        if not carried:
            carried = {"row": pl.int_range(row, row + frame.height, eager=True)}
        if self.series_per_file:
            carried = {"file": pl.repeat(str(file.path), frame.height, eager=True), **carried}
        return pl.DataFrame(carried)
