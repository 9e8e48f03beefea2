"""Input files: found by name, folder, glob or URL, opened, and read chunk by chunk."""

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import polars.selectors as cs

from at_infer.errors import DataError

CHUNK_CELLS = 1 << 20  # cells decoded at a time: 8 MB as float64, whatever the number of rows and columns


def source_files(source: str) -> list[Path]:
    """The Parquet files behind a file name, a folder or a glob, in name order."""
    path = Path(source)
    if path.is_dir() and source:
        files = sorted(file for file in path.rglob("*.parquet") if file.is_file())
        if not files:
            raise DataError(f"{source}: no *.parquet file in this folder")
    elif path.is_file():
        files = [path]
    elif glob.has_magic(source):
        files = [Path(name) for name in sorted(glob.glob(source, recursive=True)) if Path(name).is_file()]
        if not files:
            raise DataError(f"{source}: no file matches this pattern")
    else:
        raise DataError(f"{source or repr(source)}: no such file")
    return files


@dataclass(frozen=True, slots=True)
class InputFile:
    """One Parquet file, opened but not read."""

    path: Path
    scan: pl.LazyFrame
    schema: pl.Schema
    rows: int

    @classmethod
    def open(cls, path: Path) -> "InputFile":
        with reading(path):
            scan = pl.scan_parquet(path, glob=False, hive_partitioning=False)
            return cls(path, scan, scan.collect_schema(), scan.select(pl.len()).collect().item())

    def chunks(
        self, names: Sequence[str], dtype: type[pl.DataType] | None = None
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        """The rows of some columns in order, each chunk with the number of its first row."""
        if not names:
            return
        chosen: pl.Expr = cs.by_name(*names)  # unlike pl.col it takes '^a.*$' for a name
        query = self.scan.select(chosen if dtype is None else chosen.cast(dtype))
        done = 0
        with reading(self.path):
            for chunk in query.collect_batches(chunk_size=max(1, CHUNK_CELLS // len(names)), lazy=True):
                done += chunk.height
                if done > self.rows:
                    break
                if chunk.height:
                    yield done - chunk.height, chunk
        if done != self.rows:
            raise DataError(f"{self.path}: is damaged, its footer promises {self.rows} rows but it has {done}")


@contextmanager
def reading(source: str | Path) -> Iterator[None]:
    """Turn what polars says of a file it cannot read into one line."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{source}: cannot be read as Parquet, it is damaged or something else ({reason})") from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error.strerror or error})") from None


def listed(names: Sequence[str], most: int = 6) -> str:
    """The first few names, and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
