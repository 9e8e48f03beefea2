"""A folder of splits: what it remembers, what it refuses, and what a run makes of trouble on the way."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from itertools import product
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import InputOptions
from at_infer.cluster.earlier import finished_summary, look_for_file
from at_infer.cluster.manifest import NAME, Manifest, split_file
from at_infer.cluster.run import ATTEMPTS, score_on_workers
from at_infer.cluster.scoring import PROPERTY
from at_infer.cluster.summary import ClusterSummary
from at_infer.cluster.worker import Failure, Job, Lost, SplitWorker
from at_infer.errors import ClusterError, ConfigError, DataError, OutputError
from at_infer.scoring.options import ScoreOptions
from at_infer.scoring.score_file import score_file
from tests.exported import metadata
from tests.in_process import EasyEngine, Opener, read_splits
from tests.options import by_kind

NAMES = metadata().columns
LENGTHS = [60, 20, 300, 25, 40]  # of the files; the third is longer than two splits
SPLIT_ROWS = 100

Run = Callable[..., ClusterSummary]


def frame(rows: int, seed: int) -> pl.DataFrame:
    values = np.random.default_rng(seed).normal(size=(rows, len(NAMES))).astype(np.float32)
    return pl.DataFrame(values, schema=NAMES).with_columns(t=pl.int_range(rows))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Five files, a series each."""
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(LENGTHS):
        frame(rows, number).write_parquet(tmp_path / "in" / f"{number}.parquet")
    return tmp_path / "in"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("at_infer.scoring.scorer.open_engine", lambda path, **_: EasyEngine(Path(path)))
    path = tmp_path / "model.onnx"
    path.write_bytes(b"opened by a stand-in")
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def run(source: Path, engine: Path, out: Path) -> Run:
    """Score the five files; options by name."""

    def score(opener: Opener | None = None, options: ScoreOptions | None = None, **given: Any) -> ClusterSummary:
        given = {"time_column": "t", "series_per_file": True, "split_rows": SPLIT_ROWS} | given
        where = given.pop("source", source)
        return score_on_workers(where, engine, out, options, open_workers=opener or Opener(), **by_kind(**given))

    return score


@pytest.fixture
def expected(source: Path, engine: Path, tmp_path: Path) -> Callable[[], pl.DataFrame]:
    """What the plain command makes of the files as they are now."""

    def score() -> pl.DataFrame:
        plain = tmp_path / "plain.parquet"
        score_file(
            source, engine, plain, input_options=InputOptions(time_column="t", series_per_file=True), overwrite=True
        )
        return pl.read_parquet(plain)

    return score


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def poison(path: Path, row: int = 5) -> None:
    """An infinite value: the file can be read, but not scored."""
    bad = pl.read_parquet(path)
    spoiled = pl.when(pl.int_range(pl.len()) == row).then(float("inf")).otherwise(pl.col(NAMES[0]))
    bad.with_columns(spoiled.cast(pl.Float32).alias(NAMES[0])).write_parquet(path)


# What a folder holds


def test_there_is_one_file_per_split_and_a_manifest_that_tells_about_them(
    run: Run, out: Path, engine: Path, expected: Callable[[], pl.DataFrame]
) -> None:
    summary = run()
    splits = [split_file(0, 0), split_file(2, 0), split_file(2, 104), split_file(2, 208), split_file(3, 0)]
    assert names(out) == [*splits, NAME]
    told = json.loads((out / NAME).read_text())
    assert told["identity"]["model"]["file"] == engine.name
    assert told["identity"]["options"]["align"] == "window"
    assert [entry["name"].rsplit("/", 1)[1] for entry in told["inputs"]] == [f"{i}.parquet" for i in range(5)]
    assert [entry["rows"] for entry in told["inputs"]] == LENGTHS
    assert [entry["file"] for entry in told["splits"]] == splits
    assert [entry["rows"] for entry in told["splits"]] == [80, 104, 104, 92, 65]
    assert [entry["pieces"] for entry in told["splits"]] == [2, 1, 1, 1, 2]
    assert [entry["read_rows"] for entry in told["splits"]] == [[0, 0], [0, 8], [8, 8], [8, 0], [0, 0]]
    assert {entry["status"] for entry in told["splits"]} == {"done"}
    assert told["summary"]["rows"] == sum(LENGTHS)
    assert (summary.splits, summary.skipped_splits, summary.workers, summary.series) == (5, 0, 2, 5)
    assert read_splits(out).equals(expected())


def test_the_longest_splits_are_given_out_first(run: Run, out: Path) -> None:
    opener = Opener()
    run(opener)
    rows = {entry["file"]: entry["rows"] for entry in json.loads((out / NAME).read_text())["splits"]}
    given = [rows[name] for name in opener.runs[0].scored]
    assert given == sorted(given, reverse=True)


def test_the_size_of_splits_is_measured_unless_it_is_given(run: Run, out: Path) -> None:
    seen = []

    def watch(_worker: SplitWorker, job: Job) -> None:
        seen.append(job.method)

    summary = run(Opener(2, watch), split_rows=None)
    assert seen.count("measure") == 1
    assert summary.split_rows == 20 * 8  # few rows: the least that is worth a split
    assert json.loads((out / NAME).read_text())["split_rows"] == 160


# Going on


def test_what_is_done_is_not_done_again(run: Run, out: Path) -> None:
    first = run()
    times = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    opener = Opener()
    again = run(opener)
    assert opener.runs == []  # not even workers are needed
    assert {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")} == times
    assert (again.skipped_splits, again.resumed_rows) == (5, sum(LENGTHS))
    assert (again.rows, again.anomalies, again.segments) == (first.rows, first.anomalies, first.segments)


def test_a_split_whose_file_is_gone_is_done_again(run: Run, out: Path, expected: Callable[[], pl.DataFrame]) -> None:
    run()
    (out / split_file(2, 104)).unlink()
    opener = Opener()
    again = run(opener)
    assert opener.runs[0].scored == [split_file(2, 104)]
    assert (again.skipped_splits, again.resumed_rows) == (4, sum(LENGTHS) - 104)
    assert read_splits(out).equals(expected())


def test_a_run_that_was_killed_goes_on_with_the_files_it_left(
    run: Run, out: Path, expected: Callable[[], pl.DataFrame]
) -> None:
    """The manifest may be older than the last files, and a worker may have been killed while it wrote."""

    class KilledError(BaseException):
        pass

    def kill(_worker: SplitWorker, job: Job) -> None:
        if job.method == "score" and job.payload.name == split_file(0, 0):
            raise KilledError

    with pytest.raises(KilledError):
        run(Opener(2, kill))
    manifest = Manifest.load(out)
    assert manifest is not None
    for entry in manifest.splits.values():
        entry.status, entry.result = "waiting", None
    manifest.save()
    (out / f".{split_file(0, 0)}.123.tmp").write_bytes(b"half")
    opener = Opener()
    run(opener)
    assert sorted(opener.runs[0].scored) == [split_file(0, 0), split_file(3, 0)]
    assert not list(out.glob(".*"))
    assert read_splits(out).equals(expected())


def test_ctrl_c_says_what_is_kept(run: Run, out: Path) -> None:
    def interrupt(_worker: SplitWorker, job: Job) -> None:
        if job.method == "score" and job.payload.name == split_file(0, 0):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"3 of 5 splits are kept in .*out, the same command continues"):
        run(Opener(2, interrupt))
    assert run().skipped_splits >= 3


def test_overwrite_starts_again(run: Run, out: Path, engine: Path) -> None:
    run()
    engine.write_bytes(b"another model")
    (out / "notes.txt").write_text("not ours")
    opener = Opener()
    run(opener, overwrite=True)
    assert len(opener.runs[0].scored) == 5
    assert (out / "notes.txt").exists()


# Refusals


def test_the_scores_of_another_model_are_not_mixed_in(run: Run, engine: Path) -> None:
    run()
    engine.write_bytes(b"another model")
    with pytest.raises(OutputError, match=r"out: holds scores of another model, model.onnx with sha256 \w{12}; choose"):
        run()


def test_the_scores_of_other_options_are_not_mixed_in(run: Run) -> None:
    run()
    with pytest.raises(OutputError, match="holds scores of a run with other stride; choose another folder"):
        run(options=ScoreOptions(stride=2))
    with pytest.raises(OutputError, match="with other time column, series per file; choose"):
        run(time_column=None, series_per_file=False)


@pytest.mark.parametrize("change", ["rows", "touch", "new", "gone"])
def test_input_that_has_changed_is_refused(run: Run, source: Path, out: Path, change: str) -> None:
    run()
    before = (out / NAME).read_bytes()
    path = source / "1.parquet"
    if change == "rows":
        frame(21, 1).write_parquet(path)
    elif change == "touch":
        os.utime(path, ns=(1, 1))
    elif change == "new":
        path = source / "9.parquet"
        frame(20, 9).write_parquet(path)
    else:
        path.unlink()
    with pytest.raises(OutputError, match=rf"out: the input has changed, .*{path.name} .*; choose another folder"):
        run()
    assert (out / NAME).read_bytes() == before


def test_a_folder_of_something_else_is_refused(run: Run, out: Path) -> None:
    out.mkdir()
    (out / "thesis.docx").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(
            OutputError, match=r"out: holds files but no manifest.json; choose an empty or a new folder"
        ):
            run(overwrite=overwrite)
    assert names(out) == ["thesis.docx"]


def test_places_that_cannot_be_written_to_are_refused(run: Run, out: Path, source: Path, engine: Path) -> None:
    out.write_text("a file")
    with pytest.raises(OutputError, match="out: is a file; with `ray` the output is a folder"):
        run()
    with pytest.raises(OutputError, match=r"folder .*missing does not exist; create it"):
        score_on_workers(source, engine, out.parent / "missing" / "out", open_workers=Opener())
    with pytest.raises(OutputError, match="is in the input folder; choose another output"):
        score_on_workers(source, engine, source / "out", open_workers=Opener())


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 99}', "\xff"])
@pytest.mark.slow
def test_a_damaged_manifest_is_refused_and_can_be_replaced(run: Run, out: Path, text: str) -> None:
    run()
    (out / NAME).write_text(text, encoding="latin-1")
    with pytest.raises(OutputError, match=r"manifest.json: (is damaged|is not JSON|has format 99).*`overwrite`"):
        run()
    run(overwrite=True)


HOSTILE = ("null", "true", "NaN", "-1", "1e999", '""', "[]", "{}", "9" * 5_000, "[" * 30_000, '"../../x"', '"\\ud800"')


@pytest.mark.slow
def test_no_value_of_a_manifest_is_believed(run: Run, out: Path) -> None:
    """Each value of it by each hostile one: refused, or worth what the sound one is."""
    rows = run().rows
    sound = json.loads((out / NAME).read_text())
    sound["inputs"], sound["splits"] = sound["inputs"][:1], sound["splits"][:1]
    for place, text in product(list(places(sound)), HOSTILE):
        changed = json.loads(json.dumps(sound))
        inner = reduce(getitem, place[:-1], changed)
        inner[place[-1]] = "@"
        (out / NAME).write_text(json.dumps(changed).replace('"@"', text))
        with suppress(OutputError):
            found = Manifest.load(out)
            assert found is not None
            found.check(sound["identity"], found.inputs)
            for entry in found.splits.values():
                look_for_file(out, entry)
            told = finished_summary(found, 1.0)
            assert told is None or text in ("null", "-1", '""', "{}", '"../../x"') or told.rows == rows, (place, text)


def places(value: Any, *before: str | int) -> Iterator[tuple[str | int, ...]]:
    """Where the values of JSON are, from outside to inside."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*before, key)
        yield from places(value[key], *before, key)


def test_a_pipe_in_the_place_of_the_manifest_is_refused(run: Run, out: Path) -> None:
    out.mkdir()
    os.mkfifo(out / NAME)
    with pytest.raises(OutputError, match=r"manifest.json: is not a regular file"):
        run()


@pytest.mark.parametrize("text", ["{", "[]", "[" * 30_000, "9" * 5_000, '{"key": 1}'])
@pytest.mark.slow
def test_a_split_that_tells_odd_things_is_refused_or_done_again(run: Run, out: Path, text: str) -> None:
    run()
    path = out / split_file(3, 0)
    properties = pl.read_parquet_metadata(path)
    properties.pop("ARROW:schema", None)
    pl.read_parquet(path).write_parquet(path, metadata=properties | {PROPERTY: text})
    with suppress(OutputError):
        assert run().skipped_splits == 4  # of five


def test_a_damaged_split_is_refused(run: Run, out: Path) -> None:
    run()
    (out / split_file(3, 0)).write_bytes(b"PAR1 not")
    with pytest.raises(OutputError, match=r"000003-000000000000.parquet: .*; remove it, or pass overwrite=True"):
        run()


def test_settings_that_cannot_work_are_refused(run: Run) -> None:
    with pytest.raises(ConfigError, match="split_rows: 0 is too small"):
        run(split_rows=0)
    with pytest.raises(ConfigError, match=r"^one_series: excludes"):
        run(one_series=True)


# Trouble on the way


def test_a_poisoned_file_costs_only_itself(run: Run, source: Path, out: Path) -> None:
    poison(source / "4.parquet")
    with pytest.raises(DataError) as refusal:
        run()
    message = str(refusal.value)
    assert f"{source}/4.parquet: column 'plain' is infinite" in message
    assert "in row 5" in message
    assert "5 of 6 splits are kept" in message
    kept = read_splits(out)
    assert kept["file"].unique(maintain_order=True).to_list() == [f"{source}/{i}.parquet" for i in range(4)]
    assert not list(out.glob(".*"))


def test_once_mended_only_the_poisoned_file_is_scored(
    run: Run, source: Path, out: Path, expected: Callable[[], pl.DataFrame]
) -> None:
    healthy = (source / "4.parquet").read_bytes()
    poison(source / "4.parquet")
    with pytest.raises(DataError, match=r"4.parquet"):
        run()
    (source / "4.parquet").write_bytes(healthy)
    opener = Opener()
    summary = run(opener)
    assert opener.runs[0].scored == [split_file(4, 0)]
    assert (summary.splits, summary.skipped_splits) == (6, 5)
    assert read_splits(out).equals(expected())


def test_bad_rows_may_be_allowed_afterwards(run: Run, source: Path, out: Path) -> None:
    poison(source / "4.parquet")
    with pytest.raises(DataError, match=r"pass on_bad_rows='null'"):
        run()
    opener = Opener()
    summary = run(opener, ScoreOptions(on_bad_rows="null"))
    assert opener.runs[0].scored == [split_file(4, 0)]
    assert (summary.bad_windows, summary.unscored_rows) == (1, 8)


def test_a_file_that_cannot_even_be_opened_costs_only_itself(
    run: Run, source: Path, out: Path, expected: Callable[[], pl.DataFrame]
) -> None:
    healthy = (source / "1.parquet").read_bytes()
    (source / "1.parquet").write_bytes(healthy[:100])
    with pytest.raises(DataError, match=r"1.parquet: cannot be read as Parquet.*; 5 of 5 splits are kept in"):
        run()
    assert read_splits(out)["file"].n_unique() == 4
    (source / "1.parquet").write_bytes(healthy)
    opener = Opener()
    run(opener)
    assert split_file(2, 0) not in opener.runs[0].scored
    assert read_splits(out).equals(expected())


def test_a_file_with_other_columns_costs_only_itself(run: Run, source: Path) -> None:
    frame(20, 1).rename({NAMES[1]: "else"}).write_parquet(source / "1.parquet")
    with pytest.raises(DataError, match=r"(?s)1.parquet: column 'quo.*' is missing; .* splits are kept"):
        run()


def test_a_file_in_the_middle_of_one_series_cannot_be_left_out(run: Run, source: Path) -> None:
    (source / "1.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"1.parquet: .*; the files are one series, none can be skipped"):
        run(series_per_file=False, time_column=None)


def test_time_that_stalls_at_a_seam_is_found(run: Run, source: Path) -> None:
    bad = frame(300, 2)
    row = pl.int_range(pl.len())
    bad.with_columns(t=pl.when(row >= 104).then(row - 1).otherwise(row)).write_parquet(source / "2.parquet")
    with pytest.raises(DataError, match=r"2.parquet: row 104: t 103 is there twice; .*3 of 5 splits are kept"):
        run()


def test_input_without_rows_or_with_short_series_is_refused(run: Run, source: Path, out: Path) -> None:
    frame(5, 1).write_parquet(source / "1.parquet")
    with pytest.raises(DataError, match=r"1.parquet': has 5 rows, fewer than the model's window of 8; pass short"):
        run()
    frame(0, 1).write_parquet(source / "1.parquet")
    with pytest.raises(DataError, match=r"a file has no rows; pass short_series='skip'"):
        run()
    summary = run(options=ScoreOptions(short_series="skip"))
    assert (summary.short_series, summary.series) == (1, 5)
    for path in source.iterdir():
        frame(0, 1).write_parquet(path)
    with pytest.raises(DataError, match=r"in: has no rows"):
        run(series_per_file=False, overwrite=True)


def test_a_job_whose_worker_died_is_given_to_another(run: Run, out: Path, expected: Callable[[], pl.DataFrame]) -> None:
    def die(_worker: SplitWorker, job: Job) -> Lost | None:
        return Lost("killed") if job.attempts < ATTEMPTS else None

    opener = Opener(2, die)
    summary = run(opener)
    assert summary.lost_workers == 2 * (5 + 5)  # five surveys, five splits
    assert sorted(opener.runs[0].scored) == sorted(path.name for path in out.glob("*.parquet"))
    assert read_splits(out).equals(expected())


def test_a_split_that_kills_every_worker_is_given_up(run: Run, out: Path) -> None:
    def die(_worker: SplitWorker, job: Job) -> Lost | None:
        return Lost("out of memory") if job.method == "score" and job.payload.name == split_file(2, 104) else None

    with pytest.raises(DataError, match=r"2.parquet from row 104: 3 workers died on it, .*: out of memory; 4 of 5"):
        run(Opener(2, die))
    entry = json.loads((out / NAME).read_text())["splits"][2]
    assert (entry["status"], entry["rows"]) == ("failed", 104)


def test_an_engine_that_fails_once_is_tried_again(run: Run, expected: Callable[[], pl.DataFrame], out: Path) -> None:
    def fail(_worker: SplitWorker, job: Job) -> Failure | None:
        return Failure("engine", "GPU: out of memory") if job.method == "score" and job.attempts == 1 else None

    run(Opener(2, fail))
    assert read_splits(out).equals(expected())


def test_a_full_disk_ends_the_run_and_keeps_what_was_written(run: Run, out: Path) -> None:
    def fail(_worker: SplitWorker, job: Job) -> Failure | None:
        full = job.method == "score" and job.payload.name == split_file(0, 0)
        return Failure("output", "out: no space left on device") if full else None

    with pytest.raises(OutputError, match="no space left on device; 3 of 5 splits are kept"):
        run(Opener(2, fail))


def test_a_folder_that_only_the_workers_see_is_noticed(run: Run, out: Path) -> None:
    def elsewhere(worker: SplitWorker, job: Job) -> Any:
        if job.method != "score":
            return None
        result = worker.score(job.payload)
        (out / job.payload.name).unlink()
        return result

    with pytest.raises(ClusterError, match="was written by a worker, but not where this machine sees it; choose a"):
        run(Opener(2, elsewhere))
