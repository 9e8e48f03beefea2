"""Files of scores, chunk by chunk beside their labels, and chosen rows of the data that were scored."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from at_infer.choices import Join
from at_infer.errors import DataError
from at_infer.models.fusion import LABELS
from at_infer.models.spacing import Clock, Times
from at_infer.tables.absent import MISSING
from at_infer.tables.clock import NEEDED, Seconds, column_seconds, find_clock, read_times, shown_zone
from at_infer.tables.files import InputFile
from at_infer.tables.keys import KeyWalk, check_equal, compared_keys, file_properties, find_keys, open_files
from at_infer.tables.labels import label_values, score_values

CHUNK_ROWS = 1 << 18
ERROR = "error_"
TOP = ["top_feature", "top_feature_share", "error"]
SAME = "all files need the same columns"
VIEW, ONSET = "top_view", "onset"

Floats = NDArray[np.float32]
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """Some rows, in order."""

    first_row: int
    scores: Floats
    """NaN where a row has none."""
    times: Times | None
    """Milliseconds since 1970, or the number itself."""
    labels: NDArray[np.bool_] | None
    evidence: Floats | None
    """(rows, features): the error of each, 0 where unknown; after `--explain top` one more column, the error of all
    features but the top one together."""
    starts: list[tuple[int, str]]
    """Rows of this chunk that begin a series, and its name."""
    keys: pl.Series = field(default_factory=pl.Series)
    """Times as they stand in the file, or numbers of the rows."""
    onset: Floats | None = None
    """Score from the row and those before it; None if the file has none."""
    views: Floats | None = None
    """Number of the view that shows the top feature; None if the file has none."""
    missing: pl.Series | None = None
    """Names of the features that each row has no value of; None if the file does not say."""

    def parts(self) -> "Iterator[tuple[str | None, ScoredChunk]]":
        """Rows of one series each, with its name where it begins."""
        begins = dict(self.starts)
        for first, end in pairwise(sorted({0, *begins, len(self.scores)})):
            yield begins.get(first), self.between(first, end)

    def between(self, first: int, end: int) -> Self:
        """Some of the rows."""
        part: dict[str, Any] = {"first_row": self.first_row + first, "starts": []}
        for name in (entry.name for entry in fields(self) if entry.name not in part):
            value = getattr(self, name)
            part[name] = None if value is None else value[first:end]
        return type(self)(**part)


class ScoredFile:
    """The rows behind a file, folder or glob of scores, and behind one of labels with the same rows."""

    def __init__(
        self,
        source: str,
        labels: str | None = None,
        *,
        label_column: str = "label",
        score_column: str = "score",
        time_column: str | None = None,
        series_column: str | None = None,
        join: Join = "auto",
    ) -> None:
        self.source, self.labels = source, labels
        self.label_column, self.score_column = label_column, score_column
        self.files = open_files(source)
        head = self.files[0]
        for file in self.files:
            file.check_has([score_column], "is it a file of at-infer score?")
        self.keys = find_keys(head, time_column, series_column, {score_column, label_column})
        for file in self.files:
            file.check_has(self.keys.columns, SAME)
        self.rows = sum(file.rows for file in self.files)
        self.properties = file_properties(head)
        self.clock: Clock | None = find_clock(head, self.keys.time)
        self.zone = shown_zone(head, self.keys.time) if self.clock == "date" else ""
        errors = [name for name, kind in head.schema.items() if name.startswith(ERROR) and kind.is_float()]
        errors = [name for name in errors if name not in self.keys.columns]
        self.explained: Literal["all", "top"] | None = (
            "all" if errors else "top" if head.schema.keys() >= set(TOP) else None
        )
        self.explanation = errors or (TOP if self.explained == "top" else [])
        self.has_onset = head.schema.get(ONSET) == pl.Float32
        self.has_views = self.explained is not None and head.schema.get(VIEW) == pl.String
        self.has_missing = head.schema.get(MISSING) == pl.List(pl.String)
        there = ((ONSET, self.has_onset), (VIEW, self.has_views), (MISSING, self.has_missing))
        self.beside = [name for name, is_there in there if is_there]
        """Columns that tell more of a row: where a cause begins, what shows it, and which features have no value."""
        self.features = [name.removeprefix(ERROR) for name in errors] or self._top_features()
        self.label_files: list[InputFile] = []
        self.compared: list[str] = []
        if labels is not None:
            self.label_files = open_files(labels)
            self.compared = compared_keys(self.keys, join, head, self.label_files[0])
            for file in self.label_files:
                file.check_has([label_column], "name it with label_column=...")
                file.check_has(self.compared, SAME)
            found = sum(file.rows for file in self.label_files)
            if found != self.rows:
                raise DataError(
                    f"{labels}: has {found} rows, {source} has {self.rows}; labels need one row per scored row"
                )

    @property
    def time_type(self) -> pl.DataType:
        """Of what tells the rows apart: times, or row numbers."""
        return pl.Int64() if self.keys.time is None else self.files[0].schema[self.keys.time]

    @property
    def evidence_columns(self) -> int:
        """How many columns the evidence of every chunk has."""
        return len(self.features) + (self.explained == "top")

    def chunks(self) -> Iterator[ScoredChunk]:
        """All rows, in order."""
        walk = KeyWalk(self.keys, self.source, self.properties)
        theirs = _even(self.label_files, [self.label_column, *self.compared])
        for first, own in _even(self.files, [self.score_column, *self.keys.columns, *self.explanation, *self.beside]):
            labels = None
            if self.labels is not None:
                _, other = next(theirs)
                for name in self.compared:
                    check_equal(own[name], other[name], self.source, self.labels, first)
                labels = label_values(other[self.label_column], self.labels, first)
            yield ScoredChunk(
                first_row=first,
                scores=score_values(own, self.score_column, self.source, first),
                times=self._times(own),
                keys=self._keys(own, first),
                onset=own[ONSET].cast(pl.Float32).to_numpy() if self.has_onset else None,
                views=self._views(own) if self.has_views else None,
                missing=own[MISSING] if self.has_missing else None,
                labels=labels,
                evidence=self._evidence(own),
                starts=walk.take(own, first),
            )

    def pick(self, ranges: Sequence[Range]) -> list[tuple[Floats, Times | None]]:
        """Scores and times of some ranges of rows, given in order of their starts."""
        names = [self.score_column, *([] if self.keys.time is None else [self.keys.time])]
        return [
            (score_values(f, self.score_column, self.source), self._times(f)) for f in _pick(self.files, names, ranges)
        ]

    def pick_data(
        self, source: str, columns: Sequence[str] | None, ranges: Sequence[Range], *, clock: bool = False
    ) -> "PickedData":
        """The features of the same ranges in the data that were scored, whose keys must be those of the scores.

        With `clock` also their times, which the scores carry.
        """
        files = open_files(source)
        found = sum(file.rows for file in files)
        if found != self.rows:
            raise DataError(
                f"{source}: has {found} rows, {self.source} has {self.rows}; give the data that were scored"
            )
        keys = compared_keys(self.keys, "auto", self.files[0], files[0])
        features = list(columns) if columns is not None else self._numbers(files[0])
        for file in files:
            file.check_has([*features, *keys], "give the data that were scored")
            file.check_numbers(features)
        if clock and self.keys.time is None:
            raise DataError(f"{self.source}: has no time column; {NEEDED}")
        timed = [str(self.keys.time)] if clock and self.keys.time not in keys else []
        needed = [*keys, *timed]
        own = _pick(self.files, needed, ranges) if needed else [pl.DataFrame()] * len(ranges)
        picked, times = [], []
        for (first, _), frame, scored in zip(ranges, _pick(files, [*features, *keys], ranges), own, strict=True):
            for name in keys:
                check_equal(scored[name], frame[name], self.source, source, first)
            picked.append(frame.select(cs.by_name(*features).cast(pl.Float32)).to_numpy(order="c"))
            where = f"{self.source}: column {self.keys.time!r}"
            times.append(column_seconds(scored[str(self.keys.time)], where) if clock else None)
        return PickedData(features, picked, times)

    def _numbers(self, file: InputFile) -> list[str]:
        """What at-infer train would have learnt from, if the file of scores does not say."""
        left_out = {*self.keys.columns, self.label_column}
        return [name for name, kind in file.schema.items() if kind.is_numeric() and name not in left_out]

    def _times(self, frame: pl.DataFrame) -> Times | None:
        if self.clock is None or self.keys.time is None:
            return None
        return read_times(frame[self.keys.time], self.clock, self.source)

    def _keys(self, frame: pl.DataFrame, first: int) -> pl.Series:
        if self.keys.time is not None:
            return frame[self.keys.time]
        return pl.int_range(first, first + frame.height, eager=True)

    def _views(self, frame: pl.DataFrame) -> Floats:
        codes = {name: float(LABELS.index(name)) for name in LABELS}
        known = frame[VIEW].replace_strict(codes, default=None, return_dtype=pl.Float32)
        return known.to_numpy().astype(np.float32)

    def _top_features(self) -> list[str]:
        if self.explained != "top":
            return []
        found: set[str] = set()
        for _, frame in _even(self.files, ["top_feature"]):
            found |= {str(name) for name in frame["top_feature"].drop_nulls().unique()}
        return sorted(found)

    def _evidence(self, frame: pl.DataFrame) -> Floats | None:
        if self.explained is None:
            return None
        if self.explained == "all":
            errors = frame.select(cs.by_name(*self.explanation).cast(pl.Float32))
            found: Floats = errors.to_numpy(order="c", writable=True)
        else:
            codes = list(range(len(self.features)))
            names = frame["top_feature"].cast(pl.String)
            top = names.replace_strict(self.features, codes, default=None, return_dtype=pl.Int32)
            known = top.is_not_null().to_numpy()
            error = frame["error"].cast(pl.Float32).to_numpy()
            of_top = frame["top_feature_share"].cast(pl.Float32).to_numpy() * error
            found = np.zeros((frame.height, len(self.features) + 1), np.float32)
            found[known, top.drop_nulls().to_numpy()] = of_top[known]
            found[:, -1] = np.where(known, error - of_top, 0)
        found[~np.isfinite(found)] = 0.0
        return found


@dataclass(frozen=True, slots=True)
class PickedData:
    """Rows of the data, raw; a missing value is NaN."""

    features: list[str]
    values: list[Floats]
    """One (rows, features) per range."""
    times: list[Seconds | None]
    """Of the rows of each range since 1970, if asked for."""


def _chunks(files: Sequence[InputFile], names: Sequence[str]) -> Iterator[pl.DataFrame]:
    for file in files:
        query = file.scan.select(cs.by_name(*names))
        yield from (frame for _, frame in file.collect(query, CHUNK_ROWS))


def _even(files: Sequence[InputFile], names: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Chunks of one size whatever the files, so that two inputs can be walked side by side."""
    first, held = 0, pl.DataFrame()
    for frame in _chunks(files, names):
        held = frame if held.is_empty() else pl.concat([held, frame], how="vertical_relaxed")
        while held.height >= CHUNK_ROWS:
            yield first, held[:CHUNK_ROWS]
            first, held = first + CHUNK_ROWS, held[CHUNK_ROWS:]
    if held.height:
        yield first, held


def _pick(files: Sequence[InputFile], names: Sequence[str], ranges: Sequence[Range]) -> list[pl.DataFrame]:
    """Frames of some ranges of rows; read in one go, since a range may lie in a row group of millions."""
    parts: list[list[pl.DataFrame]] = [[] for _ in ranges]
    last = max((end for _, end in ranges), default=0)
    row = 0
    for frame in _chunks(files, names) if ranges else ():
        for part, (first, end) in zip(parts, ranges, strict=True):
            if first < row + frame.height and end > row:
                wanted = np.arange(max(first - row, 0), min(end - row, frame.height))
                part.append(frame[wanted])  # a slice would keep the whole chunk
        row += frame.height
        if row >= last:
            break
    return [pl.concat(part, how="vertical_relaxed") for part in parts]
