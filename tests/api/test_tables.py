"""Tables in memory are scored by name, as files are, whatever library made them."""

import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

import at_infer
from at_infer import EngineOptions, Result, ScoreOptions, Scorer
from at_infer.errors import ConfigError, DataError
from tests.checkpoints import WINDOW
from tests.scored import COLUMNS, Edit, Score, rows, values

BEGIN = datetime(2024, 3, 1, tzinfo=UTC)
KEYS = {"time_column": "ts", "series_column": "machine"}


def machines(*lengths: int) -> pl.DataFrame:
    """Rows of machines a, b, ..., with time, series, a text, and features as integers, with nulls in another column."""
    times = [BEGIN + timedelta(minutes=i) for length in lengths for i in range(length)]
    names = [chr(97 + k) for k, length in enumerate(lengths) for _ in range(length)]
    frame = rows(sum(lengths), ts=times, machine=names, note=["x", None] * (sum(lengths) // 2))
    return frame.with_columns(pl.col("f02").round().cast(pl.Int32))


class Stranger:
    """A table of a library that nobody knows."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.frame.__arrow_c_stream__(requested_schema)


def to_pandas(frame: pl.DataFrame) -> Any:
    pandas = pytest.importorskip("pandas")
    columns = {name: frame[name].to_list() for name in frame.columns}
    table = pandas.DataFrame(columns, index=np.arange(frame.height) * 7 + 3)
    return table.astype({"f00": "float32", "f01": "float32", "f02": "int32", "machine": "category"})


def to_pyarrow(frame: pl.DataFrame) -> Any:
    pytest.importorskip("pyarrow")
    return frame.to_arrow()


def to_duckdb(frame: pl.DataFrame) -> Any:
    pytest.importorskip("pyarrow")
    duckdb = pytest.importorskip("duckdb")
    return duckdb.connect().from_arrow(frame.to_arrow())


KINDS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "lazy": pl.DataFrame.lazy,
    "stranger": Stranger,
    "pandas": to_pandas,
    "pyarrow": to_pyarrow,
    "duckdb": to_duckdb,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("explain", ["none", "top"])
@pytest.mark.slow
def test_every_kind_of_table_gets_the_scores_of_the_file(edited: Edit, score: Score, kind: str, explain: Any) -> None:
    frame, engine = machines(50, 30, 44), edited(**KEYS)
    expected = score(frame, engine=engine, explain=explain)
    shuffled = frame.select(reversed(frame.columns))
    with Scorer(engine, ScoreOptions(explain=explain)) as scorer:
        result = scorer.score(KINDS[kind](shuffled))
        assert result.incidents == scorer.score(frame).incidents
    np.testing.assert_array_equal(result.score, expected.score)
    np.testing.assert_array_equal(result.is_anomaly, expected.frame["is_anomaly"])
    assert result.threshold == expected.summary.threshold
    if explain == "top":
        assert result.columns["top_feature"].tolist() == expected.frame["top_feature"].to_list()
    added = [name for name in expected.frame.columns if name not in frame.columns]
    names = result.table.column_names if kind == "pyarrow" else list(result.table.columns)
    assert names == [*shuffled.columns, *added]


def test_a_polars_frame_comes_back_as_it_was_with_columns_added(score: Score, models: Path) -> None:
    frame = rows(60, label=list(range(60)))
    with Scorer(models / "model.onnx", ScoreOptions(explain="top")) as scorer:
        result = scorer.score(frame)
    assert result.table.select(frame.columns).equals(frame)
    written = score(frame, explain="top").frame
    assert result.table.select(written.columns[1:]).equals(written.drop("row"))


def test_a_pandas_frame_keeps_its_index_and_its_types(models: Path) -> None:
    given = to_pandas(rows(60, machine=["a"] * 60))
    with Scorer(models / "model.onnx") as scorer:
        found = scorer.score(given).table
    assert found.index.equals(given.index)
    assert found[given.columns].equals(given)
    assert (str(found["score"].dtype), str(found["is_anomaly"].dtype)) == ("float32", "bool")
    assert "score" not in given.columns


def test_the_index_of_a_pandas_frame_is_a_column_if_it_has_the_name(edited: Edit, score: Score) -> None:
    frame = machines(50).drop("machine")
    engine = edited(time_column="ts")
    given = to_pandas(frame.with_columns(machine=pl.lit("a"))).set_index("ts")
    with Scorer(engine) as scorer:
        result = scorer.score(given)
        with pytest.raises(DataError, match="column 'ts' is missing"):
            scorer.score(given.rename_axis(None))
    np.testing.assert_array_equal(result.score, score(frame, engine=engine).score)
    assert result.table.index.name == "ts"


def test_a_pyarrow_table_comes_back_as_one(models: Path) -> None:
    given = to_pyarrow(rows(60))
    with Scorer(models / "model.onnx") as scorer:
        found = scorer.score(given).table
    assert found.column_names[: len(COLUMNS) + 3] == [*COLUMNS, "score", "is_anomaly", "top_feature"]
    assert found.select(COLUMNS).equals(given)


def test_names_of_time_and_series_may_be_others_than_in_training(edited: Edit, score: Score) -> None:
    frame, engine = machines(50, 30), edited(**KEYS)
    expected = score(frame, engine=engine).score
    renamed = frame.rename({"ts": "when", "machine": "host"})
    with Scorer(engine) as scorer:
        np.testing.assert_array_equal(scorer.score(renamed, time="when", series="host").score, expected)
        with pytest.raises(DataError, match="table: column 'ts' is missing"):
            scorer.score(renamed)
        one = scorer.score(frame.select(COLUMNS), no_time=True, one_series=True)
    np.testing.assert_array_equal(one.score, score(frame, engine=engine, no_time=True, one_series=True).score)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda frame: frame.drop("f01"), "; the model was trained on f00, f01, f02"),
        (lambda frame: frame.with_columns(f01=pl.lit("x")), "table: column 'f01' is String, not numeric"),
        (lambda frame: frame.reverse(), "table: row 1: ts .* comes after .*; sort the rows by time"),
        (lambda frame: frame.head(0), "table: has no rows"),
        (
            lambda frame: frame.with_columns(f01=pl.lit(None)),
            "column 'f01' has no value in row 0; .*='null'",
        ),
        (lambda frame: frame.head(5), "series 'a': has 5 rows, fewer than the model's window"),
    ],
    ids=["missing", "text", "order", "empty", "null", "short"],
)
def test_errors_are_those_of_files_and_speak_of_parameters(
    edited: Edit, change: Callable[[pl.DataFrame], pl.DataFrame], says: str
) -> None:
    with Scorer(edited(**KEYS)) as scorer, pytest.raises(DataError, match=says) as caught:
        scorer.score(change(machines(50)))
    assert "--" not in str(caught.value)


def test_an_array_has_no_names(models: Path) -> None:
    array = values(rows(60))
    with Scorer(models / "model.onnx", ScoreOptions(explain="top")) as scorer:
        score, is_anomaly = scorer.score(array)
        result = scorer.score(array)
        np.testing.assert_array_equal(result.score, scorer.score(rows(60)).score)
        with pytest.raises(ConfigError, match="an array has no names"):
            scorer.score(array, time="ts")
        with pytest.raises(ConfigError, match="times: are for arrays"):
            scorer.score(rows(60), [BEGIN] * 60)
        with pytest.raises(DataError, match="rows: are not numbers"):
            scorer.score({"f00": [1.0]})  # type: ignore[arg-type]
    np.testing.assert_array_equal(score, result.score)
    np.testing.assert_array_equal(is_anomaly, result.is_anomaly)
    assert result.table.columns == list(result.columns)


def test_a_column_that_would_be_replaced_is_refused_when_the_table_is_asked_for(models: Path) -> None:
    with Scorer(models / "model.onnx") as scorer:
        result = scorer.score(rows(60, score=[0.0] * 60))
    assert len(result.score) == 60
    with pytest.raises(DataError, match="table: column 'score' is there already"):
        _ = result.table


def test_a_result_says_what_it_is_and_can_be_pickled(models: Path) -> None:
    with Scorer(models / "model.onnx") as scorer:
        result = scorer.score(rows(60))
    again: Result = pickle.loads(pickle.dumps(result))
    assert repr(again) == repr(result)
    assert repr(result).startswith("<Result: 60 rows, ")
    assert again.table.equals(result.table)


@pytest.mark.parametrize("size", [1, 7, 33, 1000])
@pytest.mark.slow
def test_a_stream_of_tables_gets_the_scores_of_one_table(edited: Edit, size: int) -> None:
    frame, engine = machines(50, 30, 44), edited(**KEYS)
    with Scorer(engine, ScoreOptions(explain="top", ratio=0.2)) as scorer:
        whole = scorer.score(frame)
        parts = list(scorer.stream(frame.iter_slices(size)))
    assert [len(part.score) for part in parts] == [len(part) for part in frame.iter_slices(size)]
    assert pl.concat([part.table for part in parts]).equals(whole.table)
    assert [one.as_json() for part in parts for one in part.incidents] == [one.as_json() for one in whole.incidents]


def test_a_stream_gives_a_result_as_soon_as_it_is_final(edited: Edit) -> None:
    read = []

    def batches() -> Any:
        for part in rows(40 * WINDOW).iter_slices(WINDOW):
            read.append(part)
            yield part

    with Scorer(edited(score={"mode": "reconstruction", "smooth": 1})) as scorer:
        next(scorer.stream(batches()))
        with pytest.raises(DataError, match="table 1: column 'f02' is missing"):
            list(scorer.stream([rows(30), rows(30).drop("f02")]))
        assert list(scorer.stream([])) == []
    assert len(read) < 20


@pytest.mark.parametrize("interval", [None, "2m"])
@pytest.mark.parametrize("kind", ["polars", "pandas", "pyarrow"])
@pytest.mark.slow
def test_incidents_that_are_open_at_the_end_of_a_stream_are_told(
    edited: Edit, kind: str, interval: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = machines(100).with_columns(f00=pl.when(pl.int_range(pl.len()) >= 90).then(1e4).otherwise("f00"))
    options = ScoreOptions(align="last", threshold=50.0, interval=interval)
    with Scorer(edited(**KEYS), options, EngineOptions(batch_size=1)) as scorer:
        monkeypatch.setattr(scorer.engine, "lanes", 0)  # no row waits for others
        whole = scorer.score(frame).incidents
        parts = list(scorer.stream(KINDS[kind](part) for part in frame.iter_slices(10)))
    assert whole[-1].state == "open"
    assert [one for part in parts for one in part.incidents] == whole
    assert len(parts[-1].score) == len(parts[-1].table) == 0
    if interval is None:
        assert type(parts[-1].table) is type(parts[0].table)


def test_incidents_have_times_series_and_causes(edited: Edit) -> None:
    frame = machines(100, 100).with_columns(
        f00=pl.when((pl.int_range(pl.len()) % 100).is_between(60, 64)).then(1e4).otherwise(pl.col("f00"))
    )
    with Scorer(edited(**KEYS), ScoreOptions(explain="top", threshold=50.0)) as scorer:
        found = scorer.score(frame).incidents
    assert [one.series for one in found] == ["a", "b"]
    assert all(one.begin_row <= 64 and one.end_row >= 60 for one in found)
    assert found[0].begin == (BEGIN + timedelta(minutes=found[0].begin_row)).isoformat()
    assert found[0].causes[0].feature == "f00"


def test_incidents_are_those_that_the_command_writes(edited: Edit, run_cli: Any, tmp_path: Path) -> None:
    frame, engine = machines(100, 100), edited(**KEYS)
    frame = frame.with_columns(f01=pl.when(pl.col("ts").dt.minute() == 30).then(1e3).otherwise("f01"))
    frame.write_parquet(tmp_path / "data.parquet")
    words = ("--engine", engine, "-o", tmp_path / "scores.parquet", "--incidents", tmp_path / "found.jsonl")
    assert run_cli("score", tmp_path / "data.parquet", *words, "--explain", "all").code == 0
    written = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    with Scorer(engine, ScoreOptions(explain="all")) as scorer:
        found = [json.loads(json.dumps(one.as_json())) for one in scorer.score(frame).incidents]
    assert len(found) >= 2
    for one in [*written, *found]:
        for cause in one["causes"]:
            del cause["view"]  # of each row's top feature in a file, of all features here
            cause["share"] = pytest.approx(cause["share"], rel=1e-5)
    assert found == written


def test_a_notebook_shows_scores_threshold_and_the_worst_incidents(edited: Edit) -> None:
    frame = machines(100, 100).with_columns(machine="<b>" + pl.col("machine"))
    frame = frame.with_columns(f01=pl.when(pl.col("ts").dt.minute() == 30).then(1e3).otherwise("f01"))
    with Scorer(edited(**KEYS), ScoreOptions(explain="top")) as scorer:
        result = scorer.score(frame)
        nothing = Scorer(scorer.engine, ScoreOptions(short_series="skip")).score(np.zeros((0, 3)))
    page = ElementTree.fromstring(result._repr_html_())
    assert "200 rows" in (page.findtext("p") or "")
    assert "<b>a" in [cell.text for cell in page.iter("td")]
    assert "0 rows" in nothing._repr_html_()


def test_rows_on_a_grid_come_back_as_the_rows_of_the_file(edited: Edit, score: Score) -> None:
    frame, engine = machines(800, 80), edited(**KEYS)
    expected = score(frame, engine=engine, interval="2m", explain="top")
    with Scorer(engine, ScoreOptions(interval="2m")) as scorer:
        result = scorer.score(to_pandas(frame) if find_spec("pandas") else frame)
        parts = list(scorer.stream(frame.iter_slices(33)))
    assert len(result.score) == expected.frame.height < frame.height
    np.testing.assert_array_equal(result.score, expected.score)
    assert result.table.columns == expected.frame.columns
    assert pl.concat([part.table for part in parts]).equals(result.table)
    assert len(parts) > 1
    assert [one for part in parts for one in part.incidents] == result.incidents


def test_dir_shows_exactly_the_public_names() -> None:
    assert dir(at_infer) == sorted(at_infer.__all__)
    for name in at_infer.__all__:
        public = getattr(at_infer, name)
        assert name == "__version__" or public.__doc__
