"""Output of scoring: finished parts in a hidden folder, put together at the end; a killed run continues from them."""

import io
import json
import os
import re
import stat
import sys
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from at_infer.errors import DataError, OutputError
from at_infer.output import atomic_path
from at_infer.tables.absent import MISSING
from at_infer.tables.columns import Columns
from at_infer.tables.files import reading
from at_infer.untrusted import read_json

ROW_GROUP_ROWS = 1 << 18
LOCK, JOURNAL = "lock", "journal.json"
OURS = re.compile(r"lock|\.?(journal\.json|\d{8}\.([0-9a-f]{8}\.)?parquet)(\.\d+\.tmp)?")
"""Names of all that a run writes into the folder of its parts; nothing else in it is ever removed."""


class Verdicts(NamedTuple):
    """Counts over all rows."""

    rows: int
    anomalies: int
    segments: int
    unscored_rows: int


class CarriedRows:
    """Carried columns wait here until the scores of their rows are final."""

    def __init__(self) -> None:
        self.waiting: deque[pl.DataFrame] = deque()

    def push(self, rows: pl.DataFrame) -> None:
        """Rows whose scores will come later."""
        if rows.height:
            self.waiting.append(rows)

    def take(self, count: int) -> pl.DataFrame:
        """The next `count` rows."""
        taken = []
        while count:
            head = self.waiting.popleft()
            if head.height > count:
                self.waiting.appendleft(head.slice(count))
                head = head.head(count)
            taken.append(head)
            count -= head.height
        return pl.concat(taken) if len(taken) != 1 else taken[0]


class Parts:
    """The unfinished output beside its place: `.scores.parquet.parts/`."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.with_name(f".{output.name}.parts")
        self.files: list[Path] = []
        self.rows = 0
        self._lock: IO[str] | None = None
        self._journal = ""

    def begin(self, journal: Mapping[str, Any]) -> None:
        """Start from the beginning; parts of an earlier run are removed."""
        with self._errors():
            self._claim()
        try:
            with self._errors():
                self._remove(keep=LOCK)
                self._note(journal)
        except OutputError:
            self.discard()
            raise

    def _claim(self) -> None:
        """One run at a time: two would mix their parts. The system ends the claim with the process, however it ends."""
        self.folder.mkdir(exist_ok=True)
        if sys.platform == "win32":
            return
        import fcntl

        found = self.folder.lstat()  # whoever planted a link here would have our files, or lose theirs
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise OutputError(
                f"{self.folder}: is a link or belongs to someone else; remove it, or choose another output"
            )
        self._lock = os.fdopen(os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise OutputError(f"{self.output}: another run is writing it; wait, or choose another output") from None
        except OSError:  # a file system without locks
            pass

    def release(self) -> None:
        """Allow another run to continue from here."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"{self.output}: could not be written ({error.strerror or error})") from None

    def _note(self, journal: Mapping[str, Any]) -> None:
        self._journal = json.dumps(journal)
        with atomic_path(self.folder / JOURNAL) as temporary:
            temporary.write_text(self._journal, encoding="utf-8")

    def journal(self) -> dict[str, Any] | None:
        """What an unfinished run left, or None: `identity` and `batch_size`."""
        try:
            found = read_json(self.folder / JOURNAL, DataError)
        except (FileNotFoundError, DataError):
            return None
        is_whole = isinstance(found, dict) and isinstance(found.get("identity"), dict)
        return found if is_whole and type(found.get("batch_size")) is int and found["batch_size"] > 0 else None

    def resume(self, journal: Mapping[str, Any]) -> None:
        """Count the existing parts."""
        with self._errors():
            self._claim()
        self._note(journal)
        while found := sorted(self.folder.glob(f"{len(self.files):08}.*.parquet")):
            for path in found:
                with self._errors():
                    is_whole = path == self._part(len(self.files), path.read_bytes())
                if not is_whole:
                    self.release()
                    raise OutputError(f"{path}: is damaged; start again without `resume`")
            self.files.append(found[0])
        if self.files:
            with reading(self.folder):
                self.rows = _scan_parts(self.files).select(pl.len()).collect().item()

    def _part(self, number: int, content: bytes | memoryview) -> Path:
        """Its name holds a checksum: a run that goes on would publish a damaged part as its own."""
        return self.folder / f"{number:08}.{zlib.crc32(content):08x}.parquet"

    def write(self, carried: pl.DataFrame, columns: Mapping[str, NDArray[Any]]) -> None:
        """Add rows; NaN becomes null. A part is complete or absent."""
        frame = scored_frame(carried, columns)
        whole = io.BytesIO()
        frame.write_parquet(whole, compression="uncompressed", statistics=False)
        path = self._part(len(self.files), whole.getbuffer())
        try:
            with atomic_path(path) as temporary:
                temporary.write_bytes(whole.getbuffer())
        except OutputError as error:
            raise OutputError(f"rows {self.rows} to {self.rows + frame.height - 1}: {error}") from None
        self.files.append(path)
        self.rows += frame.height

    def count(self, series_keys: list[str]) -> "Verdicts":
        """Count over all parts, one by one: together they may not fit into memory.

        A segment ends where one of `series_keys` changes.
        """
        anomalous = pl.col("is_anomaly").fill_null(value=False)
        goes_on = anomalous.shift(1, fill_value=False)
        for name in series_keys:
            key = cs.by_name(name).as_expr()  # unlike pl.col it takes '^a.*$' for a name
            goes_on &= (key == key.shift(1)).fill_null(value=False)
        begins = (anomalous & ~goes_on).alias("begins")
        counts = pl.len(), pl.col("is_anomaly").sum(), pl.col("begins").sum(), pl.col("score").null_count()
        wanted = cs.by_name("score", "is_anomaly", *series_keys)
        found, last = Verdicts(0, 0, 0, 0), None
        with reading(self.folder):
            for path in self.files:
                rows = _scan_parts([path]).select(wanted).collect()
                known = rows if last is None else pl.concat([last, rows])
                of_part = known.with_columns(begins).tail(rows.height).select(*counts).row(0)
                found, last = Verdicts(*map(sum, zip(found, of_part, strict=True))), rows.tail(1)
        return found

    def publish(self, properties: Mapping[str, str]) -> None:
        """Put the parts together as one file with key-value metadata, and remove them."""
        with self._errors():
            noted = (self.folder / JOURNAL).read_text(encoding="utf-8")
        if noted != self._journal:
            raise OutputError(f"{self.folder}: was changed by someone else while this run wrote to it; start it again")
        with atomic_path(self.output) as temporary, polars_errors_as_os_errors():
            _scan_parts(self.files).sink_parquet(
                temporary, compression="zstd", row_group_size=ROW_GROUP_ROWS, metadata=dict(properties)
            )
        self.discard()

    def discard(self) -> None:
        """Remove the unfinished output."""
        with suppress(OSError):
            self._remove()
            self.folder.rmdir()
        self.release()

    def _remove(self, *, keep: str | None = None) -> None:
        for left in self.folder.iterdir():
            if left.name != keep and OURS.fullmatch(left.name):
                left.unlink()


def _scan_parts(files: list[Path]) -> pl.LazyFrame:
    """By their exact names: brackets in them are no pattern, nor is key=value in a folder a column."""
    return pl.scan_parquet(files, glob=False, hive_partitioning=False)


@contextmanager
def polars_errors_as_os_errors() -> Iterator[None]:
    """While it writes, polars reports a full disk in a way of its own."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        raise OSError(str(error)) from error


def scored_frame(carried: pl.DataFrame, columns: Mapping[str, NDArray[Any]]) -> pl.DataFrame:
    """Carried columns with those that are added; NaN becomes null, and a row without a score has no verdict."""
    added = {name: _with_nulls(values) for name, values in columns.items()}
    judged = pl.when(pl.col("score").is_not_null()).then(pl.col("is_anomaly"))
    if MISSING in carried.columns:  # behind the score: what stands in front of it are keys
        carried, added[MISSING] = carried.drop(MISSING), carried[MISSING]
    return carried.with_columns(**added).with_columns(is_anomaly=judged)


def check_names(columns: Columns, added: list[str]) -> None:
    """A carried column may not have the name of one that is added."""
    for name in columns.keys:
        if name in added or (columns.may_be_absent and name == MISSING) or (columns.series_per_file and name == "file"):
            raise DataError(f"column {name!r}: is the time or series column and a column of the output; rename it")


def _with_nulls(values: NDArray[Any]) -> pl.Series:
    if values.dtype == np.float32:
        return pl.Series(values).fill_nan(None)
    if values.dtype == object:
        return pl.Series(values.tolist(), dtype=pl.String)  # also where all are None
    return pl.Series(values)
