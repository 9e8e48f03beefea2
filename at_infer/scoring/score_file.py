"""score_file(): Parquet of any size through an engine, with reading, scoring and writing overlapped."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from at_infer.engines import Engine
from at_infer.errors import AtInferError, DataError, OutputError
from at_infer.interrupt import Interrupt
from at_infer.models.sidecar import sidecar_path
from at_infer.output import check_writable, notes_to
from at_infer.scoring.columns import added_columns, scored_columns, scored_properties
from at_infer.scoring.identity import differences, run_identity
from at_infer.scoring.options import EngineOptions, InputOptions, ScoreOptions
from at_infer.scoring.overlap import ReadAhead, WriteBehind
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.scorer import Scorer
from at_infer.scoring.series import SeriesState
from at_infer.scoring.windows import Floats
from at_infer.tables.parts import CarriedRows, Parts, check_names
from at_infer.tables.row_stream import Carried, Chunk, RowStream

PART_ROWS = 1 << 18
PART_S = 10.0  # a killed run loses at most this much work
STEP_WINDOWS = 64  # handed over at once: few enough to notice Ctrl-C soon, enough not to notice the handing over

Observer = Callable[[int, int], None]
"""Receives the rows done and the total."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did.

    >>> from at_infer import score_file
    >>> summary = score_file("data.parquet", "model.onnx", "scores.parquet")
    >>> summary.rows - summary.unscored_rows == frame.height
    True
    """

    output: str
    engine: str
    rows: int
    """Of the output."""
    input_rows: int
    """Equal to `rows`, unless rows were dropped or resampled."""
    interval_s: float | None
    """Of the grid; None: the rows of the output are those of the input."""
    series: int
    windows: int
    anomalies: int
    segments: int
    """Runs of anomalous rows."""
    unscored_rows: int
    """Rows without a score: in bad windows, in skipped series or short stretches, or before a first full window."""
    bad_windows: int
    short_series: int
    gaps: int
    """Gaps in time; each begins a new stretch of its series."""
    short_stretches: int
    """Stretches between gaps that are shorter than a window."""
    dropped_rows: int
    """Dropped because their times do not increase."""
    missing_features: dict[str, int]
    """Masked features, and in how many rows."""
    threshold: float
    score_mode: str
    batch_size: int
    resumed_rows: int
    """Rows that an earlier run had scored already."""
    seconds: float
    rows_per_s: float
    read_s: float
    engine_s: float
    write_s: float
    """The three overlap, so they may add up to more than `seconds`."""

    def to_json(self) -> str:
        """One JSON line."""
        return json.dumps(asdict(self))


def score_file(
    source: str | Path,
    engine: str | Path | Engine,
    output: str | Path,
    options: ScoreOptions | None = None,
    input_options: InputOptions | None = None,
    engine_options: EngineOptions | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    observe: Observer = lambda _done, _all: None,
    say: Say = lambda _: None,
) -> Summary:
    """Score every row of a Parquet file, folder, glob or URL and write the scores as Parquet.

    >>> from at_infer import score_file
    >>> summary = score_file("data.parquet", "model.onnx", "scores.parquet")
    >>> share = summary.anomalies / summary.rows

    The output is complete or absent; an interrupted run continues with `resume`.
    """
    output = Path(output)
    model = Path(engine) if isinstance(engine, str | Path) else engine.path
    with notes_to(say):
        check_writable(output, overwrite=overwrite, inputs=[model, sidecar_path(model)])
    with Scorer(engine, options, engine_options) as scorer:
        columns = (input_options or InputOptions()).columns(
            scorer.metadata, scorer.options.max_gap, mask=scorer.masks, on_grid=scorer.on_grid
        )
        stream = RowStream(str(source), columns)
        _refuse_output_as_input(stream, output)
        check_names(columns, added_columns(scorer))
        parts = Parts(output)
        batch_size = _begin(parts, scorer, stream, resume=resume)
        for note in [*scorer.notes, *stream.notes]:
            say(f"note: {note}")
        with _kept_if_it_fails(parts):
            return _score(scorer, stream, parts, batch_size, observe)


def _begin(parts: Parts, scorer: Scorer, stream: RowStream, *, resume: bool) -> int:
    """Claim the output and return the batch size; parts of an earlier run stay if asked for and of the same run."""
    identity = run_identity(scorer, stream.columns) | {"input": stream.fingerprint()}
    journal = parts.journal()
    if not (resume and journal is not None):
        batch_size = scorer.batch_size_for(stream.rows)
        parts.begin({"identity": identity, "batch_size": batch_size})
        return batch_size
    if differences(journal["identity"], identity):
        raise OutputError(
            f"{parts.output}: the unfinished run had another engine, other options or other input; start again without "
            f"`resume`"
        )
    earlier: int = journal["batch_size"]
    if scorer.engine_options.batch_size not in (None, earlier):
        raise OutputError(f"{parts.output}: the unfinished run had batch_size={earlier}")
    parts.resume({"identity": identity, "batch_size": earlier})
    return earlier


@contextmanager
def _kept_if_it_fails(parts: Parts) -> Iterator[None]:
    """On any failure the finished parts stay for a resumed run, and the message says so."""

    def kept() -> str:
        if parts.rows == 0:
            parts.discard()
            return "nothing was written"
        return f"{parts.rows} rows are kept, the same run with `resume` continues from there"

    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(kept()) from None
    except AtInferError as error:
        said = kept()
        raise type(error)(f"{error}; {said}" if parts.rows else str(error)) from None
    except BaseException:
        kept()
        raise
    finally:
        parts.release()


class _Part(NamedTuple):
    carried: Carried
    channels: Floats


class _PartWriter:
    """Joins scored rows with their keys and writes them in parts, except those that an earlier run has written."""

    def __init__(self, scorer: Scorer, parts: Parts) -> None:
        self.skip = parts.rows
        self.done = 0
        """Rows that came out of the scoring core."""
        self.carried = CarriedRows()
        self.waiting: list[Floats] = []
        self.written_at = time.monotonic()
        self.thread: WriteBehind[_Part] = WriteBehind(
            lambda part: parts.write(part.carried, scored_columns(scorer, part.channels))
        )

    def collect(self, core: RowScorer) -> None:
        """Take final rows; a part that is large or old enough goes to the writing thread."""
        for rows in core.take():
            self.waiting.append(rows.channels)
            self.done += len(rows.channels)
        if sum(map(len, self.waiting)) >= PART_ROWS or time.monotonic() - self.written_at > PART_S:
            self.pass_on()

    def pass_on(self) -> None:
        """Write all pending rows as a part."""
        self.written_at = time.monotonic()
        if not self.waiting:
            return
        channels = np.concatenate(self.waiting)
        self.waiting.clear()
        carried = self.carried.take(len(channels))
        old = min(len(channels), max(0, self.skip - (self.done - len(channels))))
        if old < len(channels):
            self.thread.put(_Part(carried[old:], channels[old:]))


def _score(scorer: Scorer, stream: RowStream, parts: Parts, batch_size: int, observe: Observer) -> Summary:
    """Read, score, write."""
    began, resumed_rows, seen = time.perf_counter(), parts.rows, stream.fingerprint()
    core = scorer.rows(batch_size, skip_rows=resumed_rows)
    reader: ReadAhead[Chunk] = ReadAhead(stream.chunks())
    writer = _PartWriter(scorer, parts)
    step = STEP_WINDOWS * scorer.layout.stride
    series: SeriesState | None = None
    try:
        with Interrupt() as interrupt:
            for chunk in reader:
                writer.carried.push(chunk.carried)
                for first, end, name in chunk.runs():
                    if name is not None:
                        if series is not None:
                            core.end(series)
                        series = core.start(name)
                    assert series is not None
                    for at in range(first, end, step):
                        part = slice(at, min(at + step, end))
                        times = None if chunk.times is None else chunk.times[part]
                        core.push(series, chunk.values[part], chunk.file, chunk.file_row + at, times)
                        writer.collect(core)
                        observe(writer.done if scorer.grid is None else stream.read_rows, stream.rows)
                        if interrupt.requested:
                            raise KeyboardInterrupt
            if series is not None:
                core.end(series)
            core.flush()
            writer.collect(core)
            writer.pass_on()
            writer.thread.close()
    finally:
        reader.close()
        with suppress(BaseException):  # the first error is on its way already
            core.settle()
        with suppress(BaseException):
            writer.collect(core)
            writer.pass_on()  # rows that are final are kept
        with suppress(BaseException):
            writer.thread.close()
    rows = stream.rows - stream.dropped_rows if scorer.grid is None else stream.given_rows
    if writer.done != rows:
        raise DataError(f"{stream.source}: {rows} rows were expected, {writer.done} came")
    observe(writer.done if scorer.grid is None else stream.rows, stream.rows)
    verdicts = parts.count(stream.columns.series_keys)
    if verdicts.rows != rows:
        raise OutputError(f"{parts.output}: {verdicts.rows} rows were written instead of {rows}")
    if stream.fingerprint() != seen:
        raise DataError(f"{stream.source}: was modified while it was read; score it again")
    parts.publish(scored_properties(scorer, stream.columns))
    seconds, counts = time.perf_counter() - began, core.counts
    return Summary(
        output=str(parts.output),
        engine=scorer.engine.describe(),
        rows=counts.rows,
        input_rows=stream.rows,
        interval_s=None if scorer.grid is None else scorer.grid.interval_s,
        series=counts.series,
        windows=counts.windows,
        anomalies=verdicts.anomalies,
        segments=verdicts.segments,
        unscored_rows=verdicts.unscored_rows,
        bad_windows=counts.bad_windows,
        short_series=counts.short_series,
        gaps=counts.gaps,
        short_stretches=counts.short_stretches,
        dropped_rows=stream.dropped_rows,
        missing_features=name_missing(scorer, counts.missing),
        threshold=scorer.threshold,
        score_mode=scorer.config.mode,
        batch_size=batch_size,
        resumed_rows=resumed_rows,
        seconds=seconds,
        rows_per_s=(counts.rows - resumed_rows) / seconds,
        read_s=reader.busy_s,
        engine_s=scorer.engine_s,
        write_s=writer.thread.busy_s,
    )


def name_missing(scorer: Scorer, missing: dict[int, int]) -> dict[str, int]:
    """Rows in which features were masked, by their names."""
    return {scorer.metadata.columns[j]: rows for j, rows in sorted(missing.items())}


def _refuse_output_as_input(stream: RowStream, output: Path) -> None:
    place = output.resolve()
    if any(isinstance(file.path, Path) and file.path.resolve() == place for file in stream.files):
        raise OutputError(f"{output}: is also the input; choose another output")
    folder = Path(stream.source)
    in_folder = "://" not in stream.source and folder.is_dir() and place.is_relative_to(folder.resolve())
    if in_folder and output.suffix == ".parquet":
        raise OutputError(f"{output}: is in the input folder, the next run would read it; choose another output")
