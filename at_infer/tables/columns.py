"""Columns and files of an input, for a reader here or on another machine."""

from dataclasses import dataclass

from at_infer.choices import BadTime
from at_infer.models.spacing import Clock
from at_infer.tables.resample import OnGrid


@dataclass(frozen=True, slots=True)
class Place:
    """One input file."""

    name: str
    """As the user wrote it: in messages and in the output."""
    path: str
    """As any worker finds it."""
    hive: bool | None
    """Do folders named key=value become columns? None: of a folder only."""
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns to read from each file."""

    features: tuple[str, ...]
    time_column: str | None
    series_column: str | None
    series_per_file: bool
    clock: Clock | None = None
    """Required kind of times; None: times are not needed."""
    needs_clock: bool = False
    """Is it an error if they do not count like that? Otherwise gaps in time stay unknown, which is said."""
    on_bad_time: BadTime | None = "error"
    """None: an error without a way on."""
    may_be_absent: bool = False
    """Is a feature without a column read as if all its values were missing?"""
    on_grid: OnGrid | None = None
    """Rows are put on a grid of times before anybody sees them; None: they stay as they are."""

    @property
    def keys(self) -> list[str]:
        """The time and the series column, as far as there are any."""
        return [key for key in (self.time_column, self.series_column) if key is not None]

    @property
    def series_keys(self) -> list[str]:
        """Columns of the output that tell series apart."""
        own = [] if self.series_column is None else [self.series_column]
        return [*own, *(["file"] if self.series_per_file else [])]

    @property
    def is_one_series(self) -> bool:
        """Do all files together hold one series?"""
        return self.series_column is None and not self.series_per_file


@dataclass(frozen=True, slots=True)
class FileRows:
    """Some rows of one file."""

    place: Place
    file_first: int
    """Row of the whole input that the file starts with."""
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Survey:
    """Survey of the key columns of a file."""

    rows: int
    runs: tuple[tuple[str, int], ...] = ()
    """Series of the series column, and the row that each starts with."""
    dtypes: tuple[tuple[str, str], ...] = ()
    """Types of the key columns."""
    gaps: tuple[int, ...] = ()
    """Rows that a gap in time lies before, within a series."""
    span: tuple[float, float] | None = None
    """Times of the first and the last row; None if gaps are ignored."""
