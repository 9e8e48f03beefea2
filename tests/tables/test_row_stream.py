"""What is read: which columns, which files, where a series ends."""

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer.errors import ConfigError, DataError, OutputError
from at_infer.tables import row_stream as stream_module
from tests.conftest import WriteParquet
from tests.scored import COLUMNS, Edit, Score, files, rows

# Columns


def test_columns_are_found_by_name_whatever_their_order_and_others_are_ignored(score: Score) -> None:
    frame = rows(50)
    odd = frame.select("f02", pl.lit("x").alias("word"), "f00", pl.lit([1]).alias("list"), "f01")
    np.testing.assert_array_equal(score(odd).score, score(frame).score)


@pytest.mark.parametrize("dtype", [pl.Int8, pl.Int64, pl.UInt32, pl.Float64, pl.Decimal(10, 2)])
def test_numbers_of_any_type_are_cast(score: Score, dtype: pl.DataType) -> None:
    whole = rows(50).select(pl.all().abs().round().clip(0, 100))
    np.testing.assert_array_equal(score(whole.cast(dtype)).score, score(whole).score)


def test_time_and_series_are_carried_through(score: Score) -> None:
    times = [dt.datetime(2024, 1, 1) + dt.timedelta(minutes=i % 30) for i in range(60)]
    frame = rows(60, when=times, host=["b"] * 30 + ["a"] * 30)
    found = score(frame, time_column="when", series_column="host")
    assert found.frame.columns == ["host", "when", "score", "is_anomaly"]
    assert found.frame.select("host", "when").equals(frame.select("host", "when"))


def test_time_and_series_default_to_those_of_the_training_data(score: Score, edited: Edit) -> None:
    engine = edited(time_column="t", series_column="s")
    frame = rows(60, t=range(60), s=["a"] * 30 + ["b"] * 30, other=range(60))
    found = score(frame, engine=engine)
    assert (found.frame.columns[:2], found.summary.series) == (["s", "t"], 2)
    found = score(frame, engine=engine, one_series=True, time_column="other")
    assert (found.frame.columns[:1], found.summary.series) == (["other"], 1)
    with pytest.raises(DataError, match="column 't' is missing"):
        score(frame.drop("t"), engine=engine)
    with pytest.raises(ConfigError, match=r"^one_series: excludes"):
        score(frame, engine=engine, one_series=True, series_column="s")


@pytest.mark.parametrize(
    "times",
    [
        pl.Series([dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in range(60)]),
        pl.Series([dt.datetime(2024, 1, 1) + dt.timedelta(hours=i) for i in range(60)], dtype=pl.Datetime("ns", "UTC")),
        pl.Series([f"2024-{i:03}" for i in range(60)]),
        pl.Series([i / 3 for i in range(60)]),
        pl.Series([Decimal(i) for i in range(60)]),
        pl.Series([dt.timedelta(seconds=i) for i in range(60)]),
    ],
    ids=["date", "datetime", "text", "float", "decimal", "duration"],
)
@pytest.mark.slow
def test_time_may_be_of_any_type_that_rises(score: Score, times: pl.Series, small_parts: None) -> None:
    frame = rows(60).with_columns(t=times)
    assert score(frame, time_column="t", batch_size=1).frame["t"].equals(times)
    for row, swapped in ((30, [*range(30), 31, 30, *range(32, 60)]), (41, [*range(41), 40, *range(42, 60)])):
        with pytest.raises(DataError, match=rf"given.parquet: row {row + 1 if row == 30 else row}: t "):
            score(frame.with_columns(t=times[swapped]), time_column="t")


@pytest.mark.parametrize(
    "names",
    [
        pl.Series(["b"] * 50 + ["a"] * 55, dtype=pl.Categorical),
        pl.Series(["b"] * 50 + ["a"] * 55, dtype=pl.Enum(["a", "b"])),
        pl.Series([True] * 50 + [False] * 55),
        pl.Series([2.5] * 50 + [-1] * 55),
        pl.Series(["größe ✓"] * 50 + [""] * 55),
    ],
    ids=["categorical", "enum", "bool", "float", "unicode"],
)
def test_series_may_be_named_by_any_type(score: Score, names: pl.Series, small_parts: None) -> None:
    frame = rows(105).with_columns(s=names)
    found = score(frame, series_column="s", batch_size=1)
    assert found.frame["s"].equals(names)
    assert found.frame["s"].dtype == names.dtype
    assert (found.summary.series, found.summary.windows) == (2, 6)


ODD_NAMES = ["^a.*$", "*", "row", "file", ":0", "", "größe µ", "len", "f00"]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.slow
def test_names_of_time_and_series_have_no_special_meaning(score: Score, name: str, small_parts: None) -> None:
    frame = rows(60).with_columns(pl.int_range(pl.len()).cast(pl.Float64).alias(name))
    found = score(frame, time_column=name, explain="top")
    assert found.frame[name].to_list() == frame[name].to_list()
    series = [i // 30 for i in range(60)]
    found = score(rows(60).with_columns(pl.Series(name, series)), series_column=name, threshold=-1.0, explain="all")
    assert found.frame[name].to_list() == series
    assert (found.summary.series, found.summary.segments) == (2, 2)


@pytest.mark.parametrize("name", ["^a.*$", "score", "is_anomaly", "row", "file", "top_feature", "error_x", "größe", ""])
@pytest.mark.slow
def test_names_of_features_have_no_special_meaning(score: Score, edited: Edit, name: str, small_parts: None) -> None:
    engine = edited(columns=["f00", name, "f02"])
    frame = rows(60)
    found = score(frame.rename({"f01": name}), engine=engine, explain="all")
    expected = score(frame, explain="all").frame
    assert found.frame.columns[-3:] == ["error_f00", f"error_{name}", "error_f02"]
    np.testing.assert_array_equal(found.frame[f"error_{name}"], expected["error_f01"])
    assert found.frame["top_feature"].to_list() == expected["top_feature"].replace({"f01": name}).to_list()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("score", {}),
        ("is_anomaly", {}),
        ("top_feature", {"explain": "top"}),
        ("top_feature_share", {"explain": "top"}),
        ("error", {"explain": "top"}),
        ("error_f01", {"explain": "all"}),
        ("file", {"series_per_file": True}),
    ],
)
@pytest.mark.slow
def test_a_carried_column_cannot_have_the_name_of_one_of_ours(score: Score, name: str, options: dict[str, Any]) -> None:
    frame = rows(60).with_columns(pl.int_range(pl.len()).alias(name))
    for role in ("time_column", "series_column"):
        with pytest.raises(DataError, match=f"column '{name}': is the time or series column and a column of the"):
            score(frame, **{role: name}, **options)
    assert len(score(frame).frame) == 60


def test_time_and_series_are_two_columns_of_plain_values(score: Score) -> None:
    frame = rows(60, t=range(60), l=[[i] for i in range(60)])
    with pytest.raises(DataError, match="'t' cannot be the time and the series column at once"):
        score(frame, time_column="t", series_column="t")
    for role in ("time_column", "series_column"):
        with pytest.raises(DataError, match=r"column 'l' is List\(Int64\); a time or series column holds plain values"):
            score(frame, **{role: "l"})


# Files


@pytest.fixture
def three_files(write_parquet: WriteParquet, tmp_path: Path) -> Path:
    """105 rows in three files, the last one in a folder of its own; their order is that of their names."""
    frame = rows(105, t=range(105))
    write_parquet("many/1.parquet", frame[:33])
    write_parquet("many/2.parquet", frame[33:40])
    write_parquet("many/sub/0.parquet", frame[40:])
    return tmp_path / "many"


def test_many_files_are_one_series_in_the_order_of_their_names(score: Score, three_files: Path) -> None:
    whole = score(rows(105, t=range(105)))
    for source in (three_files, f"{three_files}/**/*.parquet", f"file://{three_files}/**/*.parquet"):
        found = score(source, time_column="t")
        np.testing.assert_array_equal(found.score, whole.score)
        assert found.frame["t"].to_list() == list(range(105))
    assert score(three_files).frame["row"].to_list() == list(range(105))


def test_each_file_may_be_a_series_of_its_own(score: Score, three_files: Path) -> None:
    found = score(three_files, series_per_file=True, short_series="pad", threshold=-1.0)
    paths = [three_files / "1.parquet", three_files / "2.parquet", three_files / "sub" / "0.parquet"]
    assert found.frame["file"].to_list() == [str(paths[0])] * 33 + [str(paths[1])] * 7 + [str(paths[2])] * 65
    assert found.frame["row"].to_list() == list(range(105))
    assert (found.summary.series, found.summary.short_series, found.summary.segments) == (3, 1, 3)
    alone = [score(path, short_series="pad").score for path in paths]
    np.testing.assert_allclose(found.score, np.concatenate(alone), atol=1e-6)


def test_a_series_that_goes_on_in_the_next_file_starts_anew_if_each_file_is_a_series(
    score: Score, write_parquet: WriteParquet, tmp_path: Path
) -> None:
    write_parquet("many/1.parquet", rows(60, s=["a"] * 30 + ["b"] * 30, t=[*range(30), *range(30)]))
    write_parquet("many/2.parquet", rows(60, s=["b"] * 30 + ["a"] * 30, t=[*range(30, 60), *range(30)]))
    with pytest.raises(DataError, match=r"2\.parquet: row 30: series 'a' starts again"):
        score(tmp_path / "many", series_column="s")
    found = score(tmp_path / "many", series_column="s", time_column="t", series_per_file=True, threshold=-1.0)
    assert found.frame.columns[:3] == ["file", "s", "t"]
    assert (found.summary.series, found.summary.segments, found.summary.windows) == (4, 4, 8)


def test_folders_of_a_hive_tree_name_the_series(score: Score, write_parquet: WriteParquet, tmp_path: Path) -> None:
    for host in ("b", "a"):
        for part in (1, 2):
            write_parquet(f"tree/host={host}/{part}.parquet", rows(25, seed=part))
    for source in (tmp_path / "tree", f"{tmp_path}/tree/*/*.parquet", f"file://{tmp_path}/tree/"):
        found = score(source, series_column="host")
        assert found.frame["host"].to_list() == ["a"] * 50 + ["b"] * 50
        assert (found.summary.series, found.summary.windows) == (2, 6)
    found = score(f"{tmp_path}/tree/host=b/1.*", series_column="host")
    assert found.frame["host"].to_list() == ["b"] * 25


def test_a_csv_file_is_read_by_its_suffix(score: Score, tmp_path: Path) -> None:
    times = [dt.datetime(2024, 1, 1) + dt.timedelta(minutes=i) for i in range(60)]
    frame = rows(60, when=times)
    frame.write_csv(tmp_path / "data.CSV")
    found = score(tmp_path / "data.CSV", time_column="when")
    np.testing.assert_allclose(found.score, score(frame).score, rtol=1e-4)
    assert found.frame["when"].to_list() == times


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("schema", [rows(1).schema, {"other": pl.String}, dict.fromkeys(COLUMNS, pl.Null)])
@pytest.mark.slow
def test_a_file_without_rows_changes_nothing(
    score: Score, write_parquet: WriteParquet, tmp_path: Path, place: int, schema: Any
) -> None:
    parts = [rows(50)[:25], rows(50)[25:]]
    parts.insert(place, pl.DataFrame(schema=schema))
    for number, part in enumerate(parts):
        write_parquet(f"many/{number}.parquet", part)
    np.testing.assert_array_equal(score(tmp_path / "many").score, score(rows(50)).score)
    with pytest.raises(DataError, match=rf"series '.*{place}\.parquet': has 0 rows.*pass short_series='skip'"):
        score(tmp_path / "many", series_per_file=True)
    found = score(tmp_path / "many", series_per_file=True, short_series="skip")
    assert (found.summary.series, found.summary.short_series, len(found.frame)) == (3, 1, 50)


def test_a_file_name_that_is_no_text_is_told(score: Score, three_files: Path) -> None:
    (three_files / "2.parquet").rename(three_files / os.fsdecode(b"\xff.parquet"))
    with pytest.raises(DataError, match="its name is not UTF-8; rename it"):
        score(three_files)


def test_hidden_files_are_no_data(score: Score, three_files: Path) -> None:
    (three_files / ".scores.parquet.parts").mkdir()
    (three_files / ".scores.parquet.parts" / "0.parquet").write_text("half written")
    (three_files / "._1.parquet").write_text("what a Mac leaves behind")
    assert len(score(three_files).frame) == 105


def test_files_at_a_url_are_one_series(score: Score, three_files: Path) -> None:
    with pytest.raises(DataError, match="series_per_file=True takes local files only"):
        score(f"file://{three_files}/*.parquet", series_per_file=True)


def test_an_output_among_the_input_is_refused(score: Score, three_files: Path) -> None:
    with pytest.raises(OutputError, match="is also the input"):
        score(three_files / "1.parquet", output=three_files / "sub" / ".." / "1.parquet")
    with pytest.raises(OutputError, match="is also the input"):
        score(f"{three_files}/*.parquet", output=three_files / "1.parquet")
    with pytest.raises(OutputError, match="is in the input folder"):
        score(three_files, output=three_files / "sub" / "scores.parquet")
    assert files(three_files) == {"1.parquet", "2.parquet", "sub"}


@pytest.mark.parametrize("cells", [1, 4 * 30, 4 * 50, 4 * 77, 1 << 22])
@pytest.mark.slow
def test_a_series_may_end_exactly_where_a_chunk_does(score: Score, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = rows(150, s=["a"] * 50 + ["b"] * 50 + ["c"] * 50)
    monkeypatch.setattr(stream_module, "CHUNK_CELLS", cells)
    found = score(frame, series_column="s", threshold=-1.0)
    parts = [score(frame[i : i + 50]).score for i in (0, 50, 100)]
    np.testing.assert_allclose(found.score, np.concatenate(parts), atol=1e-6)
    assert (found.summary.series, found.summary.segments) == (3, 3)
