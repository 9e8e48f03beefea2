"""Scorer: an engine that scores tables in memory by column name, and arrays."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from at_infer.api.picture import SeriesRows
from at_infer.api.progress import Bar
from at_infer.api.result import Result
from at_infer.api.table_run import FinalRows, TableRun, closed, track, tracker_of
from at_infer.engines import Engine
from at_infer.errors import ConfigError
from at_infer.incidents.defaults import rules_of_scorer
from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.tracker import Event
from at_infer.models.spacing import find_gaps
from at_infer.scoring import scorer as scoring
from at_infer.scoring.options import EngineOptions, InputOptions, ScoreOptions
from at_infer.tables.columns import Columns
from at_infer.tables.files import InputFile
from at_infer.tables.frames import ArrowTable, Frame, as_file, is_table, no_rows, read_frame
from at_infer.tables.row_stream import RowStream, check_columns


class Scorer(scoring.Scorer):
    """Scores tables and arrays in memory, with the scores that `score_file` writes for the same rows. No torch.

    >>> import polars as pl
    >>> from at_infer import Scorer
    >>> frame = pl.read_parquet("data.parquet")
    >>> with Scorer("model.onnx") as scorer:
    ...     result = scorer.score(frame)
    >>> [name for name in result.table.columns if name not in frame.columns][:3]
    ['score', 'is_anomaly', 'top_feature']

    Threads may share it: they take turns (a TensorRT plan stays with the thread that opened it). A call that is
    interrupted leaves it as it was.
    """

    makes_incidents = True

    def __init__(
        self,
        engine: str | Path | Engine,
        options: ScoreOptions | None = None,
        engine_options: EngineOptions | None = None,
        *,
        verbose: bool = False,
    ) -> None:
        """`verbose`: show progress, on a terminal or in a notebook."""
        super().__init__(engine, options, engine_options)
        self.verbose = verbose
        self._turn = Lock()

    def score(
        self,
        rows: ArrowTable | ArrayLike,
        times: Sequence[Any] | NDArray[Any] | None = None,
        *,
        time: str | None = None,
        series: str | None = None,
        no_time: bool = False,
        one_series: bool = False,
    ) -> Result:
        """Scores, verdicts and incidents of a table, or of one series of rows (n,F) as an array.

        A table is anything with an Arrow C stream: polars, pandas, pyarrow, DuckDB. Its columns are found by name, in
        any order, and others are left alone. `time` and `series` name columns if they are called otherwise than in the
        training data; `no_time` and `one_series` say that there are none. The index of a pandas frame counts as a
        column of its name.

        A model that puts rows on a grid of times gives back the rows of the grid: time, series and scores.

        An array has the columns of the model in their order; a model with a season needs `times` of its rows:
        datetime, numpy.datetime64 or ISO 8601 texts.

        >>> with Scorer("model.onnx") as scorer:
        ...     same = scorer.score(frame).score == scorer.score(frame.to_numpy()).score
        >>> bool(same.all())
        True
        """
        if not is_table(rows):
            if time is not None or series is not None:
                name = "series" if time is None else "time"
                raise ConfigError(f"{name}: an array has no names of columns; give a table, or `times`")
            return self._score_array(rows, times)  # type: ignore[arg-type]
        if times is not None:
            raise ConfigError("times: are for arrays; name the column of a table with time=...")
        chosen = InputOptions(time_column=time, series_column=series, no_time=no_time, one_series=one_series)
        columns = chosen.columns(self.metadata, self.options.max_gap, mask=self.masks, on_grid=self.on_grid)
        frame = read_frame(rows, _names(columns))
        stream = RowStream(as_file(frame), columns)
        with self._turn, Bar("score", "rows", shown=self.verbose) as bar:
            run = TableRun(self, self._rules, columns, self.batch_size_for(stream.rows))
            for chunk in stream.chunks():
                run.add(chunk)
                bar.show(stream.read_rows, stream.rows)
            run.end()
            taken = run.take(run.ready)
        if self.on_grid is not None:  # the rows of the grid are others than those of the table
            return taken.result(self, None, taken.keys)
        return taken.result(self, rows, frame)

    def stream(
        self,
        batches: Iterable[ArrowTable],
        *,
        time: str | None = None,
        series: str | None = None,
        no_time: bool = False,
        one_series: bool = False,
    ) -> Iterator[Result]:
        """Scores of tables that follow each other, such as record batches: one result per table that has rows.

        The rows get the scores they would have in one table, so a result comes when the rows that its last scores
        depend on have come. Its incidents are those that end in it; if some are open when all rows have a result, one
        more without rows has them. Of a model that puts rows on a grid of times there is a result whenever rows of the
        grid are final. Memory does not grow with the tables.

        >>> with Scorer("model.onnx") as scorer:
        ...     results = list(scorer.stream(frame.iter_slices(1000)))
        """
        chosen = InputOptions(time_column=time, series_column=series, no_time=no_time, one_series=one_series)
        columns = chosen.columns(self.metadata, self.options.max_gap, mask=self.masks, on_grid=self.on_grid)
        small = self.batch_size_for(0)  # a result waits for a full batch
        run = TableRun(self, self._rules, columns, small)
        waiting: deque[_Batch] = deque()
        done: deque[_Batch] = deque(maxlen=1)

        def files() -> Iterator[InputFile]:
            for number, given in enumerate(batches):
                frame = read_frame(given, _names(columns))
                if not frame.height:
                    continue
                waiting.append(_Batch(given, frame))
                yield as_file(frame, f"table {number}")

        def finished() -> Iterator[Result]:
            if self.on_grid is not None and run.ready:  # the rows of the grid are others than those of the tables
                taken = run.take(run.ready)
                yield taken.result(self, None, taken.keys)
            while self.on_grid is None and waiting and run.ready >= waiting[0].frame.height:
                last = waiting.popleft()
                done.append(last)
                yield run.take(last.frame.height).result(self, *last)

        rest = files()
        for head in rest:
            for chunk in RowStream(head, columns).chunks(_checked(head, rest, columns)):
                with self._turn:
                    run.add(chunk)
                yield from finished()
        with self._turn:
            run.end()
        yield from finished()
        left = run.take(0)
        if left.incidents:
            given, frame = done.pop() if done else (None, run.keys)
            yield left.result(self, no_rows(given), frame.head(0))

    @cached_property
    def _rules(self) -> IncidentRules:
        """Of incidents; found once, because all metadata are read again for it."""
        return rules_of_scorer(self)

    def _score_array(self, rows: ArrayLike, times: Sequence[Any] | NDArray[Any] | None) -> Result:
        with self._turn:
            channels = self.score_channels(rows, times)
        missing = np.isnan(np.asarray(rows, np.float64)) if self.masks else None
        tracker, known = tracker_of(self, self._rules, ""), None if times is None else self.known_times(times)
        gaps = [] if known is None or self.longest_step is None else find_gaps(known, self.longest_step).tolist()
        events: list[Event] = []
        for first, end in pairwise(sorted({0, *gaps, len(channels)})):
            events += tracker.cross_gap()
            events += track(self, tracker, slice(first, end), channels, times, missing)
        spans = [SeriesRows("", 0, len(channels), 0)] if len(channels) else []
        found = closed(events + tracker.end())
        return FinalRows(channels, found, times, spans, Frame()).result(self, None, Frame())


class _Batch(NamedTuple):
    given: object
    frame: Frame


def _checked(head: InputFile, rest: Iterable[InputFile], columns: Columns) -> Iterator[InputFile]:
    yield head
    for file in rest:
        check_columns(file, head, columns)
        yield file


def _names(columns: Columns) -> list[str]:
    return [*columns.features, *columns.keys]
