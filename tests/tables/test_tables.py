"""Reading Parquet: which rows, which columns, where a series ends, whether time rises."""

import datetime as dt
import random
from decimal import Decimal
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from at_infer.errors import DataError, OutputError
from at_infer.tables import Table, files, read_table, rising_columns, source_files, write_table
from tests.conftest import WriteParquet

THREE = [1.0, 2.0, 3.0]


def refused(source: object, **options: Any) -> str:
    """The message a table is refused with."""
    with pytest.raises(DataError) as error:
        read_table(str(source), **options)
    return str(error.value)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table needs several chunks and several passes."""
    monkeypatch.setattr(files, "CHUNK_CELLS", 4)


# Which files


def test_a_file_a_folder_and_a_glob_name_files_in_name_order(write_parquet: WriteParquet, tmp_path: Path) -> None:
    b, a, deep = (write_parquet(name, x=THREE) for name in ("b.parquet", "a.parquet", "sub/c.parquet"))
    (tmp_path / "notes.txt").write_text("not a table")
    assert source_files(str(b)) == [b]
    assert source_files(str(tmp_path)) == [a, b, deep]
    assert source_files(f"{tmp_path}/*.parquet") == [a, b]
    assert source_files(f"{tmp_path}/**/*.parquet") == [a, b, deep]


def test_rows_of_a_folder_follow_each_other(write_parquet: WriteParquet, tmp_path: Path, small_chunks: None) -> None:
    write_parquet("2.parquet", x=[4.0, 5.0], y=[1, 1])
    write_parquet("1.parquet", x=THREE, y=[1, 1, 1])
    assert read_table(str(tmp_path)).values[:, 0].tolist() == [1, 2, 3, 4, 5]


def test_a_folder_that_is_named_like_a_parquet_file_is_read_once(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("spark.parquet/part-0.parquet", x=THREE)
    assert len(read_table(str(tmp_path)).values) == 3
    assert "no file matches" in refused(tmp_path / "*")


@pytest.mark.parametrize("name", ["run[1].parquet", "all*.parquet", "müll 数据.parquet", "what?.parquet"])
def test_a_file_name_is_never_taken_for_a_pattern(name: str, write_parquet: WriteParquet) -> None:
    write_parquet("all1.parquet", x=THREE)
    path = write_parquet(name, x=THREE)
    assert len(read_table(str(path)).values) == 3


def test_sources_without_files_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path}: no *.parquet file in this folder"
    assert refused(tmp_path / "*.parquet") == f"{tmp_path}/*.parquet: no file matches this pattern"
    assert refused(tmp_path / "x.parquet") == f"{tmp_path}/x.parquet: no such file"
    assert refused("") == "'': no such file"
    assert "cannot be read" in refused("x" * 300)


def test_files_without_rows_are_skipped_whatever_their_types(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("0.parquet", pl.DataFrame(schema={"x": pl.String, "other": pl.Int64}))
    write_parquet("1.parquet", x=THREE, s=["a", "a", "b"])
    write_parquet("2.parquet", pl.DataFrame(schema={"x": pl.Float64, "s": pl.String}))
    write_parquet("3.parquet", x=THREE, s=["b", "c", "c"])
    table = read_table(str(tmp_path), series_column="s")
    assert table.series == [("a", 2), ("b", 2), ("c", 2)]
    assert refused(tmp_path / "0.parquet") == f"{tmp_path}/0.parquet: has no rows"


def test_files_may_store_the_same_column_in_different_numeric_types(
    write_parquet: WriteParquet, tmp_path: Path
) -> None:
    for i, dtype in enumerate([pl.Float64, pl.Int8, pl.Null, pl.Decimal(10, 2)]):
        values = [None] * 2 if dtype == pl.Null else [1, 2]
        write_parquet(f"{i}.parquet", pl.DataFrame({"x": values}, schema={"x": dtype}))
    np.testing.assert_array_equal(read_table(str(tmp_path)).values[:, 0], [1, 2, 1, 2, np.nan, np.nan, 1, 2])


def test_files_that_disagree_about_columns_are_refused_by_name(write_parquet: WriteParquet, tmp_path: Path) -> None:
    first = write_parquet("1.parquet", x=THREE, t=[1, 2, 3])
    second = write_parquet("2.parquet", t=[4, 5, 6])
    assert refused(tmp_path) == f"{second}: column 'x' is missing; the file has t"
    write_parquet("2.parquet", x=["a", "b", "c"], t=[4, 5, 6])
    assert refused(tmp_path) == f"{second}: column 'x' is String, not numeric; leave it out"
    write_parquet("2.parquet", x=THREE, y=THREE, t=[4, 5, 6])
    assert refused(tmp_path).startswith(f"{second}: column 'y' is numeric here but not in {first}")
    assert read_table(str(tmp_path), columns=["x"]).columns == ["x"]
    assert read_table(str(tmp_path), exclude=["y"]).columns == ["x", "t"]
    write_parquet("2.parquet", x=THREE, t=["4", "5", "6"])
    assert refused(tmp_path, time_column="t").startswith(f"{second}: column 't' is String but in {first} it is Int64")


# Which columns


def test_every_numeric_column_is_a_feature_unless_told_otherwise(write_parquet: WriteParquet) -> None:
    path = write_parquet("x.parquet", t=[1, 2, 3], s=["a"] * 3, f=THREE, i=[1, 2, 3], flag=[True] * 3, word=["w"] * 3)
    table = read_table(str(path), time_column="t", series_column="s")
    assert table.columns == ["f", "i"]
    assert table.ignored == ["flag", "word"]
    assert read_table(str(path), exclude=["f", "word"]).columns == ["t", "i"]
    assert read_table(str(path), columns=["i", "f"]).columns == ["i", "f"]
    assert read_table(str(path), columns=["i", "f"], exclude=["i"]).columns == ["f"]


def test_features_come_in_the_order_they_are_named_in(write_parquet: WriteParquet, small_chunks: None) -> None:
    path = write_parquet("x.parquet", a=[1, 2, 3], b=[4, 5, 6], c=[7, 8, 9])
    assert read_table(str(path), columns=["c", "a", "b"]).values.tolist() == [[7, 1, 4], [8, 2, 5], [9, 3, 6]]


@pytest.mark.parametrize("name", ["key:t", "key:x", "t ", "^a.*$", "*", "", "with,comma", "größe/µ", "a.b", "len"])
def test_column_names_have_no_special_meaning(name: str, write_parquet: WriteParquet) -> None:
    path = write_parquet("x.parquet", pl.DataFrame({"t": [1, 2, 3], name: [1.0, None, 3.0], "ab": THREE}))
    table = read_table(str(path), time_column="t")
    assert table.columns == [name, "ab"]
    np.testing.assert_array_equal(table.values, [[1, 1], [np.nan, 2], [3, 3]])
    write_parquet("x.parquet", pl.DataFrame({"x": THREE, name: ["a", "a", "b"]}))
    assert read_table(str(path), series_column=name).series == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (pl.UInt64, [2**64 - 1, 0, None], [2.0**64, 0, np.nan]),
        (pl.Int128, [2**100, -1, None], [2.0**100, -1, np.nan]),
        (pl.Decimal(20, 4), [Decimal("1.5"), Decimal(-2), None], [1.5, -2, np.nan]),
        (pl.Boolean, [True, False, None], [1, 0, np.nan]),
        (pl.Float64, [1e300, float("nan"), None], [np.inf, np.nan, np.nan]),
        (pl.Null, [None, None, None], [np.nan] * 3),
    ],
)
def test_numbers_of_every_type_become_float32_and_gaps_nan(
    dtype: pl.DataType, values: list[Any], expected: list[float], write_parquet: WriteParquet
) -> None:
    path = write_parquet("x.parquet", pl.DataFrame({"x": pl.Series(values, dtype=dtype)}))
    table = read_table(str(path), columns=["x"])
    assert table.values.dtype == np.float32
    np.testing.assert_array_equal(table.values[:, 0], expected)


def test_columns_that_cannot_be_used_are_refused(write_parquet: WriteParquet) -> None:
    path = write_parquet("x.parquet", t=[1, 2, 3], word=["w"] * 3, day=[dt.date(2020, 1, 1)] * 3, lists=[[1.0]] * 3)
    assert refused(path, columns=["nope"]) == f"{path}: column 'nope' is missing; the file has t, word, day, lists"
    assert "column 'nope' is missing" in refused(path, exclude=["nope"])
    assert "column 'nope' is missing" in refused(path, time_column="nope")
    assert "column 'nope' is missing" in refused(path, series_column="nope")
    assert refused(path, columns=["word"]) == f"{path}: column 'word' is String, not numeric; leave it out"
    assert "'day' is Date, not numeric" in refused(path, columns=["day"])
    assert "'t' is named twice" in refused(path, columns=["t", "t"])
    assert "'t' cannot be a feature and the time" in refused(path, columns=["t"], time_column="t")
    assert "'t' cannot be the time and the series" in refused(path, time_column="t", series_column="t")
    assert "leave no feature" in refused(path, columns=["t"], exclude=["t"])
    assert "leave no feature" in refused(path, columns=[])
    assert "no numeric column" in refused(path, time_column="t")
    assert "a time or series column holds plain values" in refused(path, columns=["t"], series_column="lists")


# Series and time


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=6),
    cuts=st.sets(st.integers(1, 40), max_size=2),
    chunk_cells=st.integers(1, 20),
)
@pytest.mark.slow
def test_series_are_found_across_the_borders_of_chunks_and_files(
    lengths: list[int], cuts: set[int], chunk_cells: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("series")
    names = [f"s{i}" for i, length in enumerate(lengths) for _ in range(length)]
    times = [t for length in lengths for t in range(length)]
    frame = pl.DataFrame({"s": names, "t": times, "x": np.arange(len(names), dtype=float)})
    borders = [0, *sorted(c for c in cuts if c < len(names)), len(names)]
    for i, (first, end) in enumerate(pairwise(borders)):
        frame[first:end].write_parquet(folder / f"{i}.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_CELLS", chunk_cells)
        table = read_table(str(folder), series_column="s", time_column="t")
    assert table.series == [(name, len(list(run))) for name, run in groupby(names)]
    assert table.values[:, 0].tolist() == frame["x"].to_list()


@pytest.mark.parametrize(
    "names",
    [
        pl.Series([7, 7, 8]),
        pl.Series(["b", "b", "a"]),
        pl.Series(["b", "b", "a"], dtype=pl.Categorical),
        pl.Series(["b", "b", "a"], dtype=pl.Enum(["a", "b"])),
        pl.Series([True, True, False]),
        pl.Series([dt.date(2020, 1, 2)] * 2 + [dt.date(2020, 1, 1)]),
    ],
    ids=lambda names: str(names.dtype),
)
def test_a_series_column_may_have_any_plain_type(
    names: pl.Series, write_parquet: WriteParquet, small_chunks: None
) -> None:
    path = write_parquet("x.parquet", pl.DataFrame({"s": names, "x": THREE}))
    assert read_table(str(path), series_column="s").series == [(str(names[0]), 2), (str(names[2]), 1)]


def test_a_series_that_starts_again_is_refused(write_parquet: WriteParquet, tmp_path: Path, small_chunks: None) -> None:
    write_parquet("1.parquet", s=["a", "b"], x=[1, 2])
    second = write_parquet("2.parquet", s=["b", "b", "a"], x=[1, 2, 3])
    message = refused(tmp_path, series_column="s")
    assert message == f"{second}: row 2: series 'a' starts again; sort the rows by s and time"


@pytest.mark.parametrize(
    "times",
    [
        [1, 2, 10],
        [0.5, 0.75, 1e9],
        ["2020-01-01", "2020-01-02", "2020-02-01"],
        [dt.date(2020, 1, 1), dt.date(2020, 1, 2), dt.date(2021, 1, 1)],
        [dt.datetime(2020, 1, 1, h, tzinfo=dt.UTC) for h in (1, 2, 23)],
        [dt.time(1), dt.time(2), dt.time(3)],
        [dt.timedelta(1), dt.timedelta(2), dt.timedelta(30)],
    ],
    ids=lambda times: type(times[0]).__name__,
)
def test_time_of_any_type_must_rise(times: list[Any], write_parquet: WriteParquet, small_chunks: None) -> None:
    def written(order: list[int]) -> Path:
        return write_parquet("x.parquet", t=[times[i] for i in order], x=THREE)

    assert read_table(str(written([0, 1, 2])), time_column="t").columns == ["x"]
    assert "row 2: t" in refused(written([0, 2, 1]), time_column="t")
    assert "is there twice" in refused(written([0, 1, 1]), time_column="t")


def test_time_is_checked_across_the_borders_of_chunks_and_files(
    write_parquet: WriteParquet, tmp_path: Path, small_chunks: None
) -> None:
    write_parquet("1.parquet", t=range(9), x=range(9))
    second = write_parquet("2.parquet", t=range(8, 20), x=range(12))
    message = refused(tmp_path, time_column="t")
    assert message == f"{second}: row 0: t 8 is there twice; sort the rows by time and drop duplicates"
    for fall in range(1, 9):
        path = write_parquet("1.parquet", t=[*range(fall), 0, *range(fall + 1, 9)], x=range(9))
        assert f"row {fall}: t 0" in refused(path, time_column="t")


def test_time_starts_anew_with_each_series(write_parquet: WriteParquet, small_chunks: None) -> None:
    path = write_parquet("x.parquet", t=[1, 2, 1, 2, 3], s=["a", "a", "b", "b", "b"], x=range(5))
    assert read_table(str(path), time_column="t", series_column="s").series == [("a", 2), ("b", 3)]
    assert "row 2: t 1 comes after 2" in refused(path, time_column="t")


def test_text_is_compared_as_text_and_the_message_says_so(write_parquet: WriteParquet) -> None:
    path = write_parquet("x.parquet", t=["9", "10"], x=[1, 2])
    assert "10 comes after 9, compared as text" in refused(path, time_column="t")


@pytest.mark.parametrize("gap", [None, float("nan")])
@pytest.mark.parametrize("row", [0, 1, 2, 3])
def test_time_and_series_without_a_value_are_refused(
    gap: float | None, row: int, write_parquet: WriteParquet, small_chunks: None
) -> None:
    keys: list[float | None] = [1.0, 2.0, 3.0, 4.0]
    keys[row] = gap
    path = write_parquet("x.parquet", k=keys, x=range(4))
    for role in ("time_column", "series_column"):
        assert refused(path, **{role: "k"}) == f"{path}: row {row}: column 'k' has no value; fill or drop that row"


# Damage


def test_files_that_are_not_parquet_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for content in (b"", b"a,b\n1,2\n" * 100, b"PAR1", b"PAR1" * 10, bytes(1000)):
        path.write_bytes(content)
        assert refused(path).startswith(f"{path}: cannot be read as Parquet; it is damaged or has another format")


def test_a_damaged_file_in_a_folder_is_named(write_parquet: WriteParquet, tmp_path: Path) -> None:
    good, bad = write_parquet("a.parquet", x=THREE), tmp_path / "b.parquet"
    bad.write_bytes(good.read_bytes()[:-20])
    assert refused(tmp_path).startswith(f"{bad}: cannot be read")


def test_a_file_cut_anywhere_is_refused(write_parquet: WriteParquet, tmp_path: Path) -> None:
    whole = write_parquet("x.parquet", x=np.arange(500.0), t=range(500)).read_bytes()
    path = tmp_path / "cut.parquet"
    for length in range(0, len(whole), 211):
        path.write_bytes(whole[:length])
        assert refused(path, time_column="t").startswith(f"{path}: ")


@pytest.mark.slow
def test_flipped_bytes_are_an_answer_or_an_error_but_never_a_crash(
    write_parquet: WriteParquet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = write_parquet("x.parquet", x=np.arange(500.0), t=range(500)).read_bytes()
    dice = random.Random(0)
    path = tmp_path / "flipped.parquet"
    outcomes = set()
    for _ in range(150):
        content = bytearray(whole)
        content[dice.randrange(len(whole) - 1000, len(whole))] = dice.randrange(256)
        path.write_bytes(content)
        try:
            outcomes.add(len(read_table(str(path), time_column="t").values))
        except DataError:
            outcomes.add(-1)
    assert outcomes == {-1, 500}


# Clocks


def table_of(series: list[tuple[str, int]] | None = None, **columns: Any) -> Table:
    values = np.stack([np.asarray(v, np.float32) for v in columns.values()], axis=1)
    return Table("x", list(columns), values, series or [("", len(values))], [])


def test_a_column_that_rises_steadily_is_recognised_even_where_float32_rounds_it() -> None:
    row = np.arange(5000)
    rng = np.random.default_rng(0)
    table = table_of(
        number=row,
        epoch_s=1_700_000_000 + row,
        epoch_ms=1_700_000_000_000 + 1000 * row,
        share=row / 5000,
        noise=rng.normal(size=5000),
        wandering=np.cumsum(rng.random(5000)),
        falling=-row,
        constant=np.full(5000, 7.0),
        large_and_nearly_constant=1e9 + rng.random(5000),
        square=row**2,
        gap=np.where(row == 0, np.nan, row),
    )
    assert rising_columns(table) == ["number", "epoch_s", "epoch_ms", "share"]


def test_a_clock_that_starts_anew_with_each_series_is_recognised() -> None:
    assert rising_columns(table_of([("a", 50), ("b", 70)], t=[*range(50), *range(70)])) == ["t"]
    assert rising_columns(table_of([("a", 2), ("b", 70)], t=range(72))) == []


# Writing


def test_a_written_table_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    columns = {"x": np.arange(5, dtype=np.float32), "flag": np.array([True, False, True, False, True])}
    write_table(path, columns)
    back = pl.read_parquet(path)
    assert back.schema == {"x": pl.Float32, "flag": pl.Boolean}
    assert back["x"].to_list() == columns["x"].tolist()
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


def test_a_table_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: pl.DataFrame, file: Path, **_: Any) -> None:
        file.write_bytes(b"half")
        raise pl.exceptions.ComputeError("underlying IO error: No space left on device (os error 28)")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(OutputError, match="No space left on device"):
        write_table(tmp_path / "x.parquet", {"x": np.arange(5)})
    assert list(tmp_path.iterdir()) == []
