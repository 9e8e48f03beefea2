"""find_drift(): compare recent rows and their scores with the training and validation statistics of a model."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from at_infer.config import Config
from at_infer.errors import ConfigError, DataError
from at_infer.measure.drift_blocks import SUSTAINED_BLOCKS, Finding, Reference, SeriesDrift
from at_infer.measure.drift_scores import DriftScorer, OwnScores, ScoreSource, WrittenScores
from at_infer.models.metadata import Metadata
from at_infer.scoring.options import EngineOptions, InputOptions
from at_infer.tables.row_stream import RowStream
from at_infer.thresholds.recorded import read_model_metadata

STEP_ROWS = 1 << 13  # few enough to notice Ctrl-C soon
BLOCKS = 20  # of a series
LEAST_ROWS, MOST_ROWS, MOST_CELLS = 1_000, 100_000, 1 << 22  # of a block

Observer = Callable[[int, int], None]
"""Receives the rows done and the total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftOptions(Config):
    """What counts as drift."""

    limit: float = 3.0
    """Training standard deviations of a level, factor of everything else."""
    block_rows: int | None = None
    """Rows that are summarised together; None: a twentieth of a series, 1000 to 100 000, less for a short one."""

    def __post_init__(self) -> None:
        if not 1 < self.limit < float("inf"):
            raise ConfigError(f"limit: {self.limit:g} is not a number above 1; 3 is the default")
        if self.block_rows is not None and self.block_rows < 10:
            raise ConfigError(f"block_rows: {self.block_rows} is too small; at least 10")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Result of a drift comparison."""

    data: str
    model: str
    rows: int
    series: int
    short_series: int
    """Too short to tell: fewer than two blocks."""
    block_rows: int
    limit: float
    findings: list[Finding]
    notes: list[str]

    @property
    def found(self) -> bool:
        """Is there any?"""
        return bool(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        return {"drift": self.found, **asdict(self)}


def find_drift(
    model: str | Path,
    data: str | Path,
    options: DriftOptions | None = None,
    input_options: InputOptions | None = None,
    engine_options: EngineOptions | None = None,
    *,
    scores: str | None = None,
    observe: Observer = lambda _done, _all: None,
) -> Drift:
    """Compare the rows of a Parquet file, and their scores, with the statistics that a model keeps; no labels.

    >>> from at_infer.measure.drift import find_drift
    >>> find_drift("model.onnx", "recent.parquet").findings      # doctest: +SKIP

    `scores` is what `at-infer score` wrote for the same rows; without it they are scored here.
    """
    options, read = options or DriftOptions(), input_options or InputOptions()
    if scores is not None:
        metadata = read_model_metadata(Path(model))
        if metadata.grid is not None:
            raise ConfigError(f"scores: {model} puts rows on a grid of {metadata.grid}; leave `scores` out")
        stream = RowStream(str(data), read.columns(metadata, max_gap=0))
        written = WrittenScores(scores, metadata, Path(model), stream)
        return _compare(stream, written.known, written, metadata, options, str(model), observe)
    with DriftScorer(model, engine_options) as scorer:
        stream = RowStream(str(data), read.columns(scorer.metadata, on_grid=scorer.on_grid))
        own = OwnScores(scorer, stream.rows)
        return _compare(stream, own.known, own, scorer.metadata, options, str(model), observe)


def _compare(
    stream: RowStream,
    known: Reference,
    scores: ScoreSource,
    metadata: Metadata,
    options: DriftOptions,
    model: str,
    observe: Observer,
) -> Drift:
    count = stream.count_series()
    block_rows = options.block_rows or _block_rows(stream.rows // max(count, 1), metadata)
    findings: list[Finding] = []
    done, total, short = 0, 0, 0
    longest = 0
    series: SeriesDrift | None = None

    def judge(*, end: bool = False) -> None:
        nonlocal short, longest
        for one in scores.finished(end=end):
            short += one.end() < SUSTAINED_BLOCKS
            longest = max(longest, one.rows)
            found = one.findings(options.limit)
            findings.extend(sorted(found, key=lambda f: (f.feature is None, f.feature or "", f.since_row)))

    for chunk in stream.chunks():
        times = stream.times(chunk)
        for first, end, name in chunk.runs():
            if name is not None:
                if series is not None:
                    scores.end()
                series, total = SeriesDrift(known, block_rows, name, done), total + 1
                scores.start(series)
            assert series is not None
            for at in range(first, end, STEP_ROWS):
                rows = slice(at, min(at + STEP_ROWS, end))
                values, seconds = chunk.values[rows], None if chunk.times is None else chunk.times[rows]
                seen = values
                if metadata.season is not None:  # the model knows its data without it
                    seen = values.copy()
                    metadata.season.subtract(seen, seconds)
                series.push(seen, None if times is None else times[rows])
                scores.push(values, chunk.file, chunk.file_row + at, seconds)
                done += rows.stop - at
                judge()
                observe(done, stream.rows)
    scores.end()
    judge(end=True)
    if short == total:
        raise DataError(
            f"{stream.source}: has at most {longest} rows in a series, too few for {SUSTAINED_BLOCKS} blocks of "
            f"{block_rows}; give more rows" + (", or a smaller block_rows=..." if options.block_rows else "")
        )
    notes = [*scores.notes, *stream.notes]
    if known.next is None:
        notes.append(f"{model}: keeps no statistics of activity, so stuck sensors are not found; train again for them")
    if short:
        notes.append(f"{short} of {total} series have fewer than {SUSTAINED_BLOCKS} blocks and were not compared")
    return Drift(
        data=stream.source,
        model=model,
        rows=done,
        series=total,
        short_series=short,
        block_rows=block_rows,
        limit=options.limit,
        findings=[_readable(finding, stream) for finding in findings],
        notes=notes,
    )


def _block_rows(series_rows: int, metadata: Metadata) -> int:
    """A twentieth of a series; few enough to be held in memory, and at least four blocks of a short one."""
    usual = max(series_rows // BLOCKS, LEAST_ROWS)
    held = max(MOST_CELLS // len(metadata.columns), LEAST_ROWS)
    return min(usual, MOST_ROWS, held, max(series_rows // 4, metadata.model.window))


def _readable(finding: Finding, stream: RowStream) -> Finding:
    time = finding.since_time
    if not isinstance(time, float):
        return finding
    if stream.clock == "date":
        return replace(finding, since_time=str(np.datetime64(round(time), "ms")).removesuffix(".000"))
    return replace(finding, since_time=int(time) if time.is_integer() else time)
