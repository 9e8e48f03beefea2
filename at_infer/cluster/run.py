"""score_on_workers(): one input cut into splits, scored by any number of workers, kept split by split."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from at_infer import __version__
from at_infer.cluster.earlier import finished_summary, open_folder
from at_infer.cluster.inputs import FoundSeries, count_short, find_series
from at_infer.cluster.manifest import remove_splits
from at_infer.cluster.schedule import SplitSchedule
from at_infer.cluster.scoring import SplitResult
from at_infer.cluster.splits import choose_split_rows
from at_infer.cluster.summary import ClusterSummary, RunCounts, sum_up
from at_infer.cluster.worker import Failure, Job, Lost, OpenWorkers, Workers, WorkerSettings
from at_infer.engines.tensorrt.on_paper import PlanOnPaper
from at_infer.errors import ClusterError, ConfigError, DataError, OutputError
from at_infer.interrupt import Interrupt
from at_infer.models.kinds import file_sha256, is_plan
from at_infer.scoring.columns import added_columns
from at_infer.scoring.identity import run_identity
from at_infer.scoring.options import EngineOptions, InputOptions, ScoreOptions
from at_infer.scoring.score_file import Observer, Say
from at_infer.scoring.scorer import Scorer
from at_infer.tables.columns import Columns, Survey
from at_infer.tables.parts import check_names
from at_infer.tables.ranges import find_places
from at_infer.tables.row_stream import other_clock

ATTEMPTS = 3  # of a split whose engine fails or whose worker dies
SAVE_S = 2.0  # a manifest of many splits is not written after each of them
SURVEY_FILES = 64  # files that a worker looks at before it answers


def score_on_workers(
    source: str | Path,
    engine: str | Path,
    output: str | Path,
    options: ScoreOptions | None = None,
    input_options: InputOptions | None = None,
    engine_options: EngineOptions | None = None,
    *,
    open_workers: OpenWorkers,
    split_rows: int | None = None,
    overwrite: bool = False,
    observe: Observer = lambda _done, _all: None,
    say: Say = lambda _: None,
) -> ClusterSummary:
    """Score every row of an input; `output` becomes a folder of Parquet files, in name order the rows of the input.

    What an earlier run has finished in this folder stays as it is.
    """
    if split_rows is not None and split_rows < 1:
        raise ConfigError(f"split_rows: {split_rows} is too small; at least 1")
    if input_options is not None and input_options.on_bad_time == "drop":
        raise ConfigError(
            "on_bad_time: on a cluster rows keep their numbers and none can be dropped; sort the rows by time, or pass "
            "on_bad_time='ignore'"
        )
    path = Path(engine).resolve()
    sha256 = file_sha256(path)
    with Scorer(PlanOnPaper(path) if is_plan(path) else path, options, EngineOptions(threads=1)) as scorer:
        if scorer.grid is not None:
            raise ConfigError(
                f"interval: a cluster cannot resample rows to a grid ({scorer.grid}); score without `ray`, or "
                f"resample first and pass interval='none'"
            )
        columns = (input_options or InputOptions()).columns(scorer.metadata, scorer.options.max_gap, mask=scorer.masks)
        check_names(columns, added_columns(scorer))
        for note in scorer.notes:
            say(f"note: {note}")
        run = _Run(str(source), Path(output), scorer, columns, observe, say)
        settings = WorkerSettings(
            version=__version__,
            engine=str(path),
            engine_sha256=sha256,
            options=scorer.options,
            engine_options=engine_options or EngineOptions(),
            columns=columns,
            folder=str(Path(output).resolve()),
        )
        identity = run_identity(scorer, columns) | {"model": {"file": path.name, "sha256": sha256}}
        return run.run(settings, identity, open_workers, split_rows=split_rows, overwrite=overwrite)


class _Run:
    """One run: survey, cut, score, sum up."""

    def __init__(
        self, source: str, folder: Path, scorer: Scorer, columns: Columns, observe: Observer, say: Say
    ) -> None:
        self.source, self.folder, self.scorer, self.columns = source, folder, scorer, columns
        self.observe, self.say = observe, say
        self.places = find_places(source, series_per_file=columns.series_per_file)
        self.begin = time.perf_counter()
        self.counts = RunCounts()

    def run(
        self,
        settings: WorkerSettings,
        identity: dict[str, Any],
        open_workers: OpenWorkers,
        *,
        split_rows: int | None,
        overwrite: bool,
    ) -> ClusterSummary:
        """Everything from the manifest of an earlier run to the summary of this one."""
        if "://" not in self.source and self.folder.resolve().is_relative_to(Path(self.source).resolve()):
            raise OutputError(f"{self.folder}: is in the input folder; choose another output")
        self.manifest = open_folder(self.folder, identity, self.places, overwrite=overwrite)
        earlier = finished_summary(self.manifest, time.perf_counter() - self.begin)
        if earlier is not None:
            self.say(f"{self.folder}: all {earlier.skipped_splits} splits are done already")
            return earlier
        try:
            with Interrupt() as self.interrupt, open_workers(settings) as workers:
                self.found = self._survey(workers)
                self._cut(workers, self.found, split_rows)
                self._score(workers)
        except BaseException:
            with suppress(OSError):
                self.folder.rmdir()  # if nothing has come into it
            raise
        return self._finish(workers)

    def _answers(self, workers: Workers, jobs: deque[Job]) -> Iterator[tuple[Job, Any]]:
        """The result of each job; a job whose worker died is given to another."""
        for answer in workers.run(jobs):
            if self.interrupt.requested:
                raise KeyboardInterrupt(self._kept())
            if answer is None:
                continue
            job, value = answer
            retry = isinstance(value, Lost) or (isinstance(value, Failure) and value.kind == "engine")
            if isinstance(value, Lost):
                self.counts.lost_workers += 1
            if retry and job.attempts < ATTEMPTS:
                jobs.append(job._replace(attempts=job.attempts + 1))
                continue
            if isinstance(value, Lost):
                value = Failure("engine", f"{job.attempts} workers died on it, the last one: {value.why}")
            yield job, value

    def _survey(self, workers: Workers) -> FoundSeries:
        """The workers look at the key columns, file by file."""
        step = max(1, min(SURVEY_FILES, len(self.places) // (4 * workers.count)))
        jobs = deque(Job("survey", tuple(self.places[at : at + step])) for at in range(0, len(self.places), step))
        numbers = {place: number for number, place in enumerate(self.places)}
        surveys: list[Survey | str] = [Survey(0)] * len(self.places)
        for job, answer in self._answers(workers, jobs):
            for at, place in enumerate(job.payload):
                seen = answer if isinstance(answer, Failure) else answer[at]
                surveys[numbers[place]] = _named(seen, place.name) if isinstance(seen, Failure) else seen
        found = find_series(self.places, surveys, self.columns, self.scorer.longest_step)
        for number, error in found.errors.items():
            self.manifest.inputs[number].error = error
        if found.errors and self.columns.is_one_series:
            raise DataError(f"{next(iter(found.errors.values()))}; the files are one series, none can be skipped")
        for entry, survey in zip(self.manifest.inputs, surveys, strict=True):
            entry.rows = survey.rows if isinstance(survey, Survey) else None
        if not found.series and not found.empty_series:
            raise DataError(next(iter(found.errors.values()), f"{self.source}: has no rows"))
        options = self.scorer.options
        self.short = count_short(found, self.scorer.layout.window, options.short_series, self.source)
        seen = next((one for one in surveys if isinstance(one, Survey) and one.rows), None)
        if self.columns.clock is not None and self.scorer.longest_step is not None and seen and seen.span is None:
            dtype = dict(seen.dtypes)[str(self.columns.time_column)]
            self.say(f"note: {other_clock(self.columns, dtype, self.source)}")
        return found

    def _cut(self, workers: Workers, found: FoundSeries, split_rows: int | None) -> None:
        """Split the input, skip finished splits, and list the rest."""
        settings, manifest = self.scorer.row_settings, self.manifest
        self.total_rows = sum(series.rows for series in found.series)
        self.share = self.total_rows // workers.count
        split_rows = manifest.split_rows or split_rows
        if split_rows is None:
            rate = self._measure(workers)
            split_rows = choose_split_rows(self.total_rows, settings, rows_per_s=rate, workers=workers.count)
        self.schedule = SplitSchedule(self.places, found, settings, split_rows)
        manifest.splits = self.schedule.keep(manifest.done)
        self.counts.skipped_splits = len(manifest.splits)
        self.counts.resumed_rows = sum(entry.rows for entry in manifest.done)
        remove_splits(self.folder, keep=set(manifest.splits))
        manifest.splits |= {entry.file: entry for entry in self.schedule.add_rest()}
        manifest.split_rows, manifest.summary = split_rows, None
        manifest.save()

    def _measure(self, workers: Workers) -> float:
        for _, answer in self._answers(workers, deque([Job("measure", self.share)])):
            if isinstance(answer, Failure):
                raise ClusterError(answer.message)
            return float(answer)
        raise ClusterError("no worker has answered")

    def _score(self, workers: Workers) -> None:
        """Longest splits first: short ones fill the gaps at the end."""
        waiting = [entry for entry in self.manifest.splits.values() if entry.status != "done"]
        waiting.sort(key=lambda entry: -entry.rows)
        jobs = deque(Job("score", self.schedule.task(entry, self.share)) for entry in waiting)
        done_rows, saved = self.counts.resumed_rows, time.monotonic()
        self.observe(done_rows, self.total_rows)
        try:
            for job, answer in self._answers(workers, jobs):
                entry = self.manifest.splits[job.payload.name]
                if isinstance(answer, SplitResult):
                    if not (self.folder / entry.file).is_file():
                        raise ClusterError(
                            f"{self.folder / entry.file}: was written by a worker, but not where this machine sees it; "
                            f"choose a folder that all machines share"
                        )
                    entry.status, entry.error, entry.result = "done", None, asdict(answer)
                    done_rows += entry.rows
                    self.observe(done_rows, self.total_rows)
                elif answer.kind == "output":
                    raise OutputError(f"{answer.message}; {self._kept()}")
                elif answer.kind == "data" and (halves := self.schedule.halve(entry)):
                    # One bad series costs only itself.
                    del self.manifest.splits[entry.file]
                    self.manifest.splits |= {half.file: half for half in halves}
                    jobs.extend(Job("score", self.schedule.task(half, self.share)) for half in halves)
                else:
                    file, row = entry.first
                    entry.status, entry.error = "failed", _named(answer, f"{self.places[file].name} from row {row}")
                    for number in self.schedule.files(entry):
                        self.manifest.inputs[number].error = entry.error
                if time.monotonic() - saved > SAVE_S:
                    self.manifest.save()
                    saved = time.monotonic()
        except ClusterError as error:
            raise ClusterError(f"{error}; {self._kept()}") from None
        finally:
            self.manifest.save()

    def _kept(self) -> str:
        done, splits = len(self.manifest.done), len(self.manifest.splits)
        if not splits:
            return "nothing was written"
        return f"{done} of {splits} splits are kept in {self.folder}, the same command continues from there"

    def _finish(self, workers: Workers) -> ClusterSummary:
        remove_splits(self.folder, keep={entry.file for entry in self.manifest.done})
        failed = [entry.error for entry in self.manifest.splits.values() if entry.status == "failed"]
        errors = list(dict.fromkeys([*self.found.errors.values(), *(error for error in failed if error)]))
        if errors:
            shown = "; ".join(errors[:3]) + (f"; and {len(errors) - 3} more" if len(errors) > 3 else "")
            raise DataError(f"{shown}; {self._kept()}")
        seconds = time.perf_counter() - self.begin
        summary = sum_up(self.manifest, self.schedule, self.short, self.scorer, workers, self.counts, seconds=seconds)
        self.manifest.summary = asdict(summary)
        self.manifest.save()
        return summary


def _named(failure: Failure, place: str) -> str:
    """Bad data say where they are, an engine or a worker that fails does not."""
    return failure.message if failure.kind == "data" else f"{place}: {failure.message}"
