"""A worker's part: read the rows of a split with what lies around them, score them, write one Parquet."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from at_infer.cluster.splits import Piece, Split, owned_windows
from at_infer.scoring.columns import scored_columns, scored_properties
from at_infer.scoring.overlap import ReadAhead
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.scorer import Bools, Scorer
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
    """What a split came to; kept in the metadata of its file and in the manifest."""

    rows: int
    windows: int
    bad_windows: int
    anomalies: int
    segments: int
    unscored_rows: int
    begins_anomalous: bool
    ends_anomalous: bool
    """A segment may go on in the next split."""
    batch_size: int
    read_s: float
    engine_s: float
    write_s: float
    seconds: float
    """From the task's arrival to its file's being there."""


def score_split(task: SplitTask, scorer: Scorer, columns: Columns, folder: Path) -> SplitResult:
    """Score a split and write it; a file by its name is replaced."""
    begin, engine_before = time.perf_counter(), scorer.engine_s
    run = _SplitRun(task, scorer)
    reader: ReadAhead[Chunk] = ReadAhead(read_rows(task.rows, columns))
    try:
        for chunk in reader:
            run.push(chunk)
    finally:
        reader.close()
    scores, bad = run.finish()
    split = task.split
    before = split.first - split.pieces[0].read_first
    carried = run.carried.take(before + split.rows)[before:]
    verdicts = scorer.verdict(scores[:, 0])
    counts = _count(split, scorer, bad, verdicts)
    wrote = time.perf_counter()
    result = SplitResult(
        rows=split.rows,
        unscored_rows=int(np.isnan(scores[:, 0]).sum()),
        batch_size=scorer.batch_size or 0,
        read_s=reader.busy_s,
        engine_s=scorer.engine_s - engine_before,
        write_s=0.0,
        seconds=wrote - begin,
        **counts,
    )
    properties = scored_properties(scorer) | {PROPERTY: json.dumps({"key": task.key, **asdict(result)})}
    write_split(folder / task.name, carried, scored_columns(scorer, scores), properties)
    done = time.perf_counter()
    return SplitResult(**asdict(result) | {"write_s": done - wrote, "seconds": done - begin})


class _SplitRun:
    """Hands the rows of a split to the scorer, piece by piece."""

    def __init__(self, task: SplitTask, scorer: Scorer) -> None:
        self.task, self.scorer = task, scorer
        self.rows: RowScorer = scorer.row_scorer()
        self.carried = CarriedRows()
        self.ready: list[Floats] = []
        self.bad: list[Bools] = []
        self.waiting = list(reversed(task.split.pieces))
        self.piece: Piece | None = None
        self.position = task.split.pieces[0].read_first

    def push(self, chunk: Chunk) -> None:
        """The next rows."""
        self.carried.push(chunk.carried)
        at = 0
        while at < len(chunk.values):
            if self.piece is None or self.position == self.piece.read_end:
                self.piece = self._start(chunk.values[at])
            count = min(len(chunk.values) - at, self.piece.read_end - self.position)
            values = chunk.values[at : at + count]
            bad = self.scorer.prepare(values, self.filler, chunk.file, chunk.file_row + at)
            self.rows.push(values, bad)
            self.ready += self.rows.take()
            self.bad.append(np.zeros(count, np.bool_) if bad is None else bad)
            at += count
            self.position += count

    def _start(self, first_row: Floats) -> Piece:
        piece = self.waiting.pop()
        self.rows.start_series(piece.series.name)
        self.filler = self.scorer.filler()
        gaps = np.flatnonzero(np.isnan(first_row))
        if piece.read_first > piece.series.first and self.filler.fill == "forward" and len(gaps):
            names = self.scorer.metadata.columns
            found = last_values(self.task.earlier, [names[j] for j in gaps])
            self.filler.last = self.filler.last.copy()
            for j in gaps:
                self.filler.last[j] = found.get(names[j], self.filler.mean[j])
        return piece

    def finish(self) -> tuple[Floats, Bools]:
        """Scores of the rows that the split is for, and which of all rows read were bad."""
        self.rows.flush()
        scores = np.concatenate([*self.ready, *self.rows.take()])
        split = self.task.split
        before = split.first - split.pieces[0].read_first
        return scores[before : before + split.rows], np.concatenate(self.bad)


def _count(split: Split, scorer: Scorer, bad: Bools, verdicts: Bools) -> dict[str, Any]:
    """Windows that end in the split, and runs of anomalous rows in each of its series."""
    layout, read_first = scorer.layout, split.pieces[0].read_first
    spoiled = np.concatenate([[0], np.cumsum(bad)])
    windows = bad_windows = segments = 0
    for piece in split.pieces:
        if piece.series.rows < layout.window:
            if scorer.options.short_series == "pad":
                windows += 1
                bad_windows += int(spoiled[piece.end - read_first] > spoiled[piece.first - read_first])
        else:
            at = owned_windows(piece, layout) - read_first
            windows += len(at)
            bad_windows += int((spoiled[at + layout.window] > spoiled[at]).sum())
        anomalous = verdicts[piece.first - split.first : piece.end - split.first]
        segments += int(np.count_nonzero(anomalous[1:] & ~anomalous[:-1])) + int(anomalous[0])
    return {
        "windows": windows,
        "bad_windows": bad_windows,
        "anomalies": int(verdicts.sum()),
        "segments": segments,
        "begins_anomalous": bool(verdicts[0]),
        "ends_anomalous": bool(verdicts[-1]),
    }
