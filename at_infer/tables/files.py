"""Input files: found by name, folder, glob or URL, opened, and read chunk by chunk."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import polars as pl
import polars.selectors as cs

from at_infer.errors import DataError
from at_infer.native_stderr import without_panics
from at_infer.untrusted import check_name

MOST_LISTED = 6  # names in an error
CHUNK_CELLS = 1 << 20  # cells decoded at a time: 8 MB as float64, whatever the number of rows and columns
AHEAD_CELLS = 1 << 22  # cells polars may decode before we take them: it reads ahead of a slow reader without end

MOST_COLUMNS, MOST_HEADER_BYTES = 1 << 16, 1 << 24
FOOTER_END = 8
"""Bytes behind the footer of a Parquet file: its length, and PAR1."""
FOOTER_GUESS = 1 << 16
"""What polars reads of the end of a file before it knows the length of the footer."""


def source_files(source: str) -> list[Path | str]:
    """The files behind a file name, a folder or a glob, in name order; a URL is left to polars."""
    if "://" in source:
        return [source]
    path = Path(source)
    if path.is_dir() and source:
        found = (file for file in path.rglob("*.parquet") if file.is_file())
        files = sorted(file for file in found if not _hidden(file.relative_to(path)))
        if not files:
            raise DataError(f"{source}: no *.parquet file in this folder")
    elif path.is_file():
        files = [path]
    elif source and path.exists():
        raise DataError(f"{source}: is not a regular file; copy its content into one")
    elif glob.has_magic(source):
        files = _matching(path)
        if not files:
            raise DataError(f"{source}: no file matches this pattern")
    else:
        raise DataError(f"{source or repr(source)}: no such file")
    for file in files:
        check_name(file, DataError)
    return list(files)


def _matching(pattern: Path) -> list[Path]:
    """Files of a pattern; `**` does not follow links to folders, which may lead in circles."""
    wanted = [part for part in pattern.parts if part.startswith(".") and part != ".."]
    root = Path(pattern.anchor)
    try:
        found = sorted(file for file in root.glob(str(pattern.relative_to(root))) if file.is_file())
    except (ValueError, NotImplementedError, re.error) as error:
        raise DataError(f"{pattern}: is not a pattern that can be searched ({error})") from None
    return [file for file in found if wanted or not _hidden(file.relative_to(root))]


def _hidden(path: Path) -> bool:
    """Parts of an unfinished run, and what systems keep beside files, are no data."""
    return any(part.startswith(".") for part in path.parts)


@dataclass(frozen=True, slots=True)
class InputFile:
    """One Parquet or CSV file, opened but not read."""

    path: Path | str
    scan: pl.LazyFrame
    schema: pl.Schema
    rows: int
    first_row: int = 0
    """Of these rows, counted in the file."""

    @classmethod
    def open(cls, path: Path | str, *, hive: bool | None = False) -> "InputFile":
        """Look at schema and length; with `hive`, folders named key=value become columns (None: of a folder only)."""
        with reading(path):
            if str(path).lower().endswith(".csv"):
                _check_header(path)
                _read_through(path)
                scan = pl.scan_csv(path, glob=False, infer_schema_length=10_000, try_parse_dates=True)
                _refuse_duplicates(path, scan.collect_schema())
            else:
                read_footer(path)
                scan = pl.scan_parquet(path, glob=isinstance(path, str), hive_partitioning=hive)
            return cls(path, scan, scan.collect_schema(), scan.select(pl.len()).collect().item())

    def check_has(self, names: Sequence[str], hint: str = "") -> None:
        """Raise if a column is missing."""
        for name in names:
            if name not in self.schema:
                there = f"the file has {listed(list(self.schema))}"
                raise DataError(f"{self.path}: column {name!r} is missing; {there}{hint and '; ' + hint}")

    def check_numbers(self, names: Sequence[str], hint: str = "the model needs numbers") -> None:
        """Raise if a column cannot be a feature."""
        for name in names:
            dtype = self.schema[name]
            if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
                raise DataError(f"{self.path}: column {name!r} is {dtype}, not numeric; {hint}")

    def check_keys(self, keys: Sequence[str], head: "InputFile") -> None:
        """Raise if columns cannot be time and series, or are others than in the first file."""
        if len(set(keys)) < len(keys):
            raise DataError(f"{self.path}: column {keys[0]!r} cannot be the time and the series column at once")
        for name in keys:
            dtype, first = self.schema[name], head.schema[name]
            if dtype.is_nested():
                raise DataError(f"{self.path}: column {name!r} is {dtype}; a time or series column holds plain values")
            if dtype != first:
                raise DataError(
                    f"{self.path}: column {name!r} is {dtype} but in {head.path} it is {first}; use the same type"
                )

    def between(self, first: int, end: int) -> "InputFile":
        """Some of its rows, as a file of their own."""
        rows = self.scan.slice(first, end - first)
        return replace(self, scan=rows, rows=end - first, first_row=self.first_row + first)

    def chunks(
        self, names: Sequence[str], dtype: type[pl.DataType] | None = None
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        """The rows of some columns in order, each chunk with the number of its first row."""
        if not names:
            return
        chosen: pl.Expr = cs.by_name(*names)  # unlike pl.col it takes '^a.*$' for a name
        query = self.scan.select(chosen if dtype is None else chosen.cast(dtype))
        yield from self.collect(query, max(1, CHUNK_CELLS // len(names)))

    def collect(self, query: pl.LazyFrame, chunk_rows: int) -> Iterator[tuple[int, pl.DataFrame]]:
        """Chunks of a query over this file that keeps all its rows."""
        done = 0
        with reading(_Position(self)) as position:
            for piece in self._pieces(query):
                for chunk in piece.collect_batches(chunk_size=chunk_rows, lazy=True):
                    done += chunk.height
                    position.row = self.first_row + done
                    if done > self.rows:
                        break
                    if chunk.height:
                        yield done - chunk.height, chunk
        if done != self.rows:
            promised, found = self.first_row + self.rows, self.first_row + done
            raise DataError(f"{self.path}: is damaged: its footer says {promised} rows, but it has {found}")

    def _pieces(self, query: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
        """The query over one part of the rows after the other, which bounds what is read ahead."""
        if str(self.path).lower().endswith(".csv"):
            yield query  # a CSV file can only be read from its beginning
            return
        # A power of two, as row groups mostly are: one that lies in two pieces is decompressed twice.
        rows = 1 << max(0, (AHEAD_CELLS // len(query.collect_schema())).bit_length() - 1)
        for first in range(0, self.rows, rows):
            yield query.slice(first, rows)


class _Position:
    """Where reading is, for the message if it fails."""

    def __init__(self, file: InputFile) -> None:
        self.path, self.row = file.path, file.first_row

    def __str__(self) -> str:
        return f"{self.path}: from row {self.row} on"


S = TypeVar("S", str, Path, "str | Path", _Position)


@contextmanager
def reading(source: S) -> Iterator[S]:
    """Turn polars errors about an unreadable file into one line."""
    try:
        with without_panics():
            yield source
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        kind = "CSV" if ".csv" in str(source).lower() else "Parquet"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{source}: cannot be read as {kind}; it is damaged or has another format ({reason})") from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error.strerror or error})") from None


def _check_header(path: Path | str) -> None:
    """A header of millions of columns takes polars minutes."""
    if not isinstance(path, Path):
        return
    with path.open("rb") as file:
        header = file.readline(MOST_HEADER_BYTES)
    if len(header) == MOST_HEADER_BYTES or header.count(b",") >= MOST_COLUMNS:
        raise DataError(f"{path}: its first line is not a header: it has more than {MOST_COLUMNS} columns, or 16 MB")


def read_footer(path: Path | str) -> None:
    """polars maps the file to read its footer, and where a disk or mount then fails, the process is killed (SIGBUS).

    Read in the usual way before, a failure is an error, and the mapped pages are in memory.
    """
    if not isinstance(path, Path):
        return
    with path.open("rb") as file:
        file.read(FOOTER_END)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - FOOTER_END))
        length = int.from_bytes(file.read(FOOTER_END)[:4], "little")
        file.seek(max(0, size - max(FOOTER_END + length, FOOTER_GUESS)))
        while file.read(1 << 20):
            pass


def _read_through(path: Path | str) -> None:
    """The same for CSV: polars maps all of it to count its rows."""
    if isinstance(path, Path):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def _refuse_duplicates(path: Path | str, schema: pl.Schema) -> None:
    """polars renames the second of two CSV columns with one name; that column would be lost silently."""
    for name in schema:
        if "_duplicated_" in name:
            raise DataError(f"{path}: column {name.rsplit('_duplicated_', 1)[0]!r} occurs twice; rename one of them")


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more."""
    shown = ", ".join(names[:MOST_LISTED])
    return shown if len(names) <= MOST_LISTED else f"{shown} and {len(names) - MOST_LISTED} more"
