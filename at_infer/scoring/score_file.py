"""score_file(): Parquet of any size through an engine, with reading, scoring and writing overlapped."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from at_infer import __version__
from at_infer.engines import Engine, Provider
from at_infer.errors import AtInferError, ConfigError, DataError, OutputError
from at_infer.interrupt import Interrupt
from at_infer.output import check_writable
from at_infer.scoring.columns import added_columns, scored_columns, scored_properties
from at_infer.scoring.overlap import ReadAhead, WriteBehind
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.scorer import ScoreOptions, Scorer
from at_infer.scoring.windows import Floats
from at_infer.tables.parts import CarriedRows, Parts, check_names
from at_infer.tables.row_stream import Carried, Chunk, RowStream

PART_ROWS = 1 << 18
PART_S = 10.0  # a killed run loses at most this much work

Observer = Callable[[int, int], None]
Say = Callable[[str], None]
"""Told rows done and rows in all."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did."""

    output: str
    engine: str
    rows: int
    series: int
    windows: int
    anomalies: int
    segments: int
    """Runs of anomalous rows."""
    unscored_rows: int
    """Rows without a score: in bad windows, in skipped series, or before a first full window."""
    bad_windows: int
    short_series: int
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


def score_file(
    source: str | Path,
    engine: str | Path | Engine,
    output: str | Path,
    options: ScoreOptions | None = None,
    *,
    time_column: str | None = None,
    series_column: str | None = None,
    one_series: bool = False,
    series_per_file: bool = False,
    provider: Provider = "cpu",
    threads: int | None = None,
    batch_size: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    observe: Observer = lambda _done, _all: None,
    say: Say = lambda _: None,
) -> Summary:
    """Score every row of a Parquet file, folder, glob or URL and write the scores as Parquet.

    >>> from at_infer import score_file
    >>> summary = score_file("data.parquet", "model.onnx", "scores.parquet")   # doctest: +SKIP
    >>> summary.anomalies, summary.rows_per_s                                   # doctest: +SKIP

    `time_column` and `series_column` default to those of the training data; `one_series` says that the input is a
    single series although the training data had several. The output is complete or absent; an interrupted run goes
    on with `resume`.
    """
    output = Path(output)
    check_writable(output, overwrite=overwrite)
    with Scorer(engine, options, provider=provider, threads=threads, batch_size=batch_size) as scorer:
        known = scorer.metadata
        if one_series and (series_column is not None or series_per_file):
            raise ConfigError("series: --one-series excludes --series-column and --series-per-file; give one of them")
        stream = RowStream(
            str(source),
            known.columns,
            time_column=known.time_column if time_column is None else time_column,
            series_column=None if one_series else known.series_column if series_column is None else series_column,
            series_per_file=series_per_file,
        )
        _refuse_output_as_input(stream, output)
        run = _Run(scorer, stream, output, resume=resume)
        for note in scorer.notes:
            say(f"note: {note}")
        return run.run(observe)


class _Run:
    """One run: the scorer between a stream of rows and the parts of the output."""

    def __init__(self, scorer: Scorer, stream: RowStream, output: Path, *, resume: bool) -> None:
        self.scorer, self.stream, self.output = scorer, stream, output
        self.parts = Parts(output)
        keys = [key for key in (stream.series_column, stream.time_column) if key is not None]
        check_names(keys, [*added_columns(scorer), *(["file"] if stream.series_per_file else [])])
        self._begin(resume)
        self.resumed_rows = self.parts.rows
        self.rows: RowScorer = scorer.row_scorer(skip_rows=self.resumed_rows)
        self.carried = CarriedRows()
        self.waiting: list[Floats] = []
        self.done = 0
        """Rows that came out of the scorer."""
        # Rows handed over at once: few enough to notice Ctrl-C soon, enough not to notice the handing over.
        self.step = 8 * (scorer.batch_size or 1) * scorer.layout.stride

    def _begin(self, resume: bool) -> None:
        """Parts of an earlier run are continued, if asked for and if they are of the same run."""
        identity = {
            "at_infer": __version__,
            "engine": _digest(self.scorer.metadata.to_dict()),
            "options": self.scorer.options.to_dict(),
            "input": self.stream.fingerprint(),
            "keys": [self.stream.time_column, self.stream.series_column, self.stream.series_per_file],
        }
        identity = json.loads(json.dumps(identity))
        journal = self.parts.journal()
        if resume and journal is not None:
            if not _continues(journal["identity"], identity):
                raise OutputError(
                    f"{self.output}: the unfinished run had another engine, other options or other input; start again "
                    f"without --resume"
                )
            if self.scorer.batch_size not in (None, journal["batch_size"]):
                raise OutputError(f"{self.output}: the unfinished run had --batch-size {journal['batch_size']}")
            self.scorer.batch_size = journal["batch_size"]
            self.parts.resume({**journal, "identity": identity})
            return
        self.scorer.choose_batch_size(self.stream.rows)
        self.parts.begin({"identity": identity, "batch_size": self.scorer.batch_size})

    def run(self, observe: Observer) -> Summary:
        """Read, score, write; on any failure the finished parts stay for a resumed run."""
        begin = time.perf_counter()
        try:
            reader, writer = self._score(observe)
            keys = [self.stream.series_column] if self.stream.series_column is not None else []
            verdicts = self.parts.count([*keys, *(["file"] if self.stream.series_per_file else [])])
            if verdicts.rows != self.stream.rows:
                raise OutputError(f"{self.output}: {verdicts.rows} rows were written instead of {self.stream.rows}")
            self.parts.publish(scored_properties(self.scorer))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._kept()) from None
        except AtInferError as error:
            kept = self._kept()
            raise type(error)(f"{error}; {kept}" if self.parts.rows else str(error)) from None
        except BaseException:
            self._kept()
            raise
        finally:
            self.parts.release()
        seconds = time.perf_counter() - begin
        counts = self.rows.counts
        return Summary(
            output=str(self.output),
            engine=self.scorer.engine.describe(),
            rows=counts.rows,
            series=counts.series,
            windows=counts.windows,
            anomalies=verdicts.anomalies,
            segments=verdicts.segments,
            unscored_rows=verdicts.unscored_rows,
            bad_windows=counts.bad_windows,
            short_series=counts.short_series,
            threshold=self.scorer.threshold,
            score_mode=self.scorer.config.mode,
            batch_size=self.scorer.batch_size or 0,
            resumed_rows=self.resumed_rows,
            seconds=seconds,
            rows_per_s=(counts.rows - self.resumed_rows) / seconds,
            read_s=reader.busy_s,
            engine_s=self.scorer.engine_s,
            write_s=writer.busy_s,
        )

    def _score(self, observe: Observer) -> tuple[ReadAhead[Chunk], "WriteBehind[_Part]"]:
        reader: ReadAhead[Chunk] = ReadAhead(self.stream.chunks())
        writer: WriteBehind[_Part] = WriteBehind(self._write)
        try:
            with Interrupt() as interrupt:
                written = time.monotonic()
                for chunk in reader:
                    for _ in self._push(chunk):
                        if interrupt.requested:
                            raise KeyboardInterrupt
                        observe(self.done, self.stream.rows)
                        if self._pending() >= PART_ROWS or time.monotonic() - written > PART_S:
                            self._pass_on(writer)
                            written = time.monotonic()
                self.rows.flush()
                self._collect()
                self._pass_on(writer)
                writer.close()
        finally:
            reader.close()
            with suppress(BaseException):  # the first error is on its way already
                self._collect()
                self._pass_on(writer)  # rows that are final are kept
            with suppress(BaseException):
                writer.close()
        if self.done != self.stream.rows:
            raise DataError(f"{self.stream.source}: {self.stream.rows} rows were promised, {self.done} came")
        observe(self.done, self.stream.rows)
        return reader, writer

    def _push(self, chunk: Chunk) -> Iterator[None]:
        """Hand the rows of a chunk to the scorer, series by series; yields often, so that the caller can look up."""
        self.carried.push(chunk.carried)
        cuts = [*chunk.starts, (len(chunk.values), "")]
        yield from self._push_rows(chunk, 0, cuts[0][0])
        for (first, name), (end, _) in pairwise(cuts):
            self.rows.start_series(name)
            self.filler = self.scorer.filler()
            yield from self._push_rows(chunk, first, end)

    def _push_rows(self, chunk: Chunk, first: int, end: int) -> Iterator[None]:
        for at in range(first, end, self.step):
            values = chunk.values[at : min(at + self.step, end)]
            bad = self.scorer.prepare(values, self.filler, chunk.file, chunk.file_row + at)
            self.rows.push(values, bad)
            self._collect()
            yield

    def _collect(self) -> None:
        for rows in self.rows.take():
            self.waiting.append(rows)
            self.done += len(rows)

    def _pending(self) -> int:
        return sum(len(rows) for rows in self.waiting)

    def _pass_on(self, writer: "WriteBehind[_Part]") -> None:
        """Rows that are final go to the writer, except those that an earlier run has written."""
        if not self.waiting:
            return
        scores = np.concatenate(self.waiting)
        self.waiting.clear()
        carried = self.carried.take(len(scores))
        first = self.done - len(scores)
        skip = min(len(scores), max(0, self.resumed_rows - first))
        if skip < len(scores):
            writer.put(_Part(carried[skip:], scores[skip:]))

    def _write(self, part: "_Part") -> None:
        self.parts.write(part.carried, scored_columns(self.scorer, part.scores))

    def _kept(self) -> str:
        if self.parts.rows == 0:
            self.parts.discard()
            return "nothing was written"
        return f"{self.parts.rows} rows are kept, the same command with --resume goes on from there"


@dataclass(slots=True)
class _Part:
    carried: Carried
    scores: Floats


def _refuse_output_as_input(stream: RowStream, output: Path) -> None:
    place = output.resolve()
    if any(isinstance(file.path, Path) and file.path.resolve() == place for file in stream.files):
        raise OutputError(f"{output}: is also the input; choose another output")
    folder = Path(stream.source)
    in_folder = "://" not in stream.source and folder.is_dir() and place.is_relative_to(folder.resolve())
    if in_folder and output.suffix == ".parquet":
        raise OutputError(f"{output}: is in the input folder, the next run would read it; choose another output")


def _continues(earlier: dict[str, Any], now: dict[str, Any]) -> bool:
    """The same run, or one that goes on where the earlier one stopped at a bad row or a short series."""
    given = now["options"]
    allowed = {name: given[name] for name in ("short_series", "on_bad_rows") if earlier["options"].get(name) == "error"}
    return {**earlier, "options": earlier["options"] | allowed} == now


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def as_json(summary: Summary) -> str:
    """The summary as one JSON line."""
    return json.dumps(asdict(summary))
