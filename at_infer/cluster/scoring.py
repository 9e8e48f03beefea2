"""A worker's part: read the rows of a split with its halo, score them, write one Parquet file."""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from at_infer.cluster.splits import SeriesPiece, Split
from at_infer.scoring.columns import scored_columns, scored_properties
from at_infer.scoring.overlap import ReadAhead
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.score_file import name_missing
from at_infer.scoring.scorer import Scorer
from at_infer.scoring.series import Bools
from at_infer.scoring.windows import Floats
from at_infer.tables.columns import Columns, FileRows
from at_infer.tables.parts import CarriedRows
from at_infer.tables.ranges import last_values, read_rows, write_split
from at_infer.tables.row_stream import Chunk

PROPERTY = "at_infer.split"


@dataclass(frozen=True, slots=True)
class SplitTask:
    """A split, and where its rows are."""

    name: str
    """Of the file to write."""
    key: str
    """Digest of everything that its scores depend on beside the model and the options."""
    split: Split
    rows: tuple[FileRows, ...]
    """All rows to read."""
    earlier: tuple[FileRows, ...]
    """Rows of the first series before those, where a gap may have to look for its last value."""
    share: int
    """Rows that each worker gets in all, about."""


@dataclass(frozen=True, slots=True)
class SplitResult:
    """Result of a split; stored in the metadata of its file and in the manifest."""

    rows: int
    windows: int
    bad_windows: int
    anomalies: int
    segments: int
    unscored_rows: int
    missing_features: dict[str, int]
    begins_anomalous: bool
    ends_anomalous: bool
    """A segment may continue in the next split."""
    batch_size: int
    read_s: float
    engine_s: float
    write_s: float
    seconds: float
    """From the task's arrival to its file's being there."""


def score_split(task: SplitTask, scorer: Scorer, batch_size: int, columns: Columns, folder: Path) -> SplitResult:
    """Score a split and write it; a file by its name is replaced."""
    begin, engine_before = time.perf_counter(), scorer.engine_s
    split = task.split
    before = split.first - split.pieces[0].read_first
    settings = scorer.row_settings
    if settings.short_series == "error":  # that of a whole series is known before; a stretch between gaps may be short
        settings = replace(settings, short_series="skip")
    core = scorer.rows(batch_size, settings=settings, counted=range(before, before + split.rows))
    carried = CarriedRows()
    reader: ReadAhead[Chunk] = ReadAhead(read_rows(task.rows, columns))
    try:
        scores = _score_pieces(task, core, reader, carried, columns)
    finally:
        reader.close()
    scores = scores[before : before + split.rows]
    keys = carried.take(before + split.rows)[before:]
    verdicts = scorer.verdict(scores[:, 0])
    wrote = time.perf_counter()
    result = SplitResult(
        rows=split.rows,
        windows=core.counts.windows,
        bad_windows=core.counts.bad_windows,
        anomalies=int(verdicts.sum()),
        segments=_segments(split, verdicts),
        unscored_rows=int(np.isnan(scores[:, 0]).sum()),
        missing_features=name_missing(scorer, core.counts.missing),
        begins_anomalous=bool(verdicts[0]),
        ends_anomalous=bool(verdicts[-1]),
        batch_size=batch_size,
        read_s=reader.busy_s,
        engine_s=scorer.engine_s - engine_before,
        write_s=0.0,
        seconds=wrote - begin,
    )
    properties = scored_properties(scorer, columns) | {PROPERTY: json.dumps({"key": task.key, **asdict(result)})}
    write_split(folder / task.name, keys, scored_columns(scorer, scores), properties)
    done = time.perf_counter()
    return replace(result, write_s=done - wrote, seconds=done - begin)


def _score_pieces(
    task: SplitTask, core: RowScorer, reader: Iterable[Chunk], carried: CarriedRows, columns: Columns
) -> Floats:
    """Hand the rows of a split to the core, piece by piece; the channels of all rows read."""
    pieces = iter(task.split.pieces)
    piece, series = None, None
    position = task.split.pieces[0].read_first
    for chunk in reader:
        carried.push(chunk.carried)
        at = 0
        while at < len(chunk.values):
            if piece is None or position == piece.read_end:
                if series is not None:
                    core.end(series)
                piece = next(pieces)
                last = _last_values(task, piece, core, chunk.values[at], columns)
                series = core.start(piece.series.name, last=last)
            assert series is not None
            count = min(len(chunk.values) - at, piece.read_end - position)
            times = None if chunk.times is None else chunk.times[at : at + count]
            core.push(series, chunk.values[at : at + count], chunk.file, chunk.file_row + at, times)
            at += count
            position += count
    if series is not None:
        core.end(series)
    core.flush()
    return np.concatenate([rows.channels for rows in core.take()])


def _last_values(
    task: SplitTask, piece: SeriesPiece, core: RowScorer, first_row: Floats, columns: Columns
) -> Floats | None:
    """What gaps in the first row of a piece repeat: values of the rows before it, however far away, less the season."""
    gaps = np.flatnonzero(np.isnan(first_row)).tolist()
    if piece.read_first == piece.series.first or core.settings.filling != "forward" or not gaps:
        return None
    names, season = core.settings.columns, core.settings.season
    last = np.full(len(names), np.nan, np.float32)
    found = last_values(task.earlier, [names[j] for j in gaps], columns)
    for j in gaps:
        if names[j] in found:
            value, time_s = found[names[j]]
            usual = season.at(np.array([time_s], np.float64))[0, j] if season is not None else np.float32(0)
            last[j] = value - usual
    return last


def _segments(split: Split, verdicts: Bools) -> int:
    """Runs of anomalous rows, in each series of the split; they may cross gaps in time."""
    groups = [list(group) for _, group in groupby(split.pieces, lambda piece: piece.series.name)]
    parts = (verdicts[group[0].first - split.first : group[-1].end - split.first] for group in groups)
    return sum(int(np.count_nonzero(part[1:] & ~part[:-1])) + int(part[0]) for part in parts)
