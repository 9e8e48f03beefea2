"""From Parquet to windows: fill, split, scale, and what the user is told."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from at_infer.config import Fill
from at_infer.errors import ConfigError, DataError
from benchmarks.reproduce import paper
from tests.conftest import WriteParquet
from training import data as data_module
from training import scaling
from training.data import DataConfig, TrainingData, load

Floats = NDArray[np.float64]
NAN = float("nan")

float32s = st.floats(-1e3, 1e3, width=32, allow_subnormal=False)


def loaded(path: Path, *, window: int = 2, stride: int | None = None, **options: Any) -> TrainingData:
    return load(DataConfig(source=str(path), **options), window=window, stride=stride)


def unscaled(data: TrainingData) -> Floats:
    return data.train.values.astype(np.float64) * data.scaler.scale + data.scaler.mean


def brute_force(columns: list[list[float]], series: list[int], train_rows: list[bool], fill: Fill) -> list[list[float]]:
    """What the rows should be, cell by cell; what cannot be repeated gets the mean of the training rows."""
    filled = []
    for column in columns:
        out = list(column)
        if fill == "forward":
            for row in range(1, len(out)):
                if np.isnan(out[row]) and series[row] == series[row - 1]:
                    out[row] = out[row - 1]
        known = [value for value, is_train in zip(out, train_rows, strict=True) if is_train and not np.isnan(value)]
        mean = sum(known) / len(known) if known else NAN
        filled.append([mean if np.isnan(value) else value for value in out])
    return filled


@st.composite
def gappy_series(draw: st.DrawFn) -> tuple[list[int], list[list[float]]]:
    """Lengths of series and two columns with gaps."""
    lengths = draw(st.lists(st.integers(4, 9), min_size=1, max_size=4))
    values = st.one_of(st.just(NAN), float32s)
    column = st.lists(values, min_size=sum(lengths), max_size=sum(lengths))
    return lengths, [draw(column), draw(column)]


@pytest.mark.parametrize("fill", ["forward", "mean"])
@settings(max_examples=40)
@given(gappy=gappy_series(), block_cells=st.sampled_from([1, 3, 1 << 20]))
@pytest.mark.slow
def test_filling_equals_a_loop_over_cells(
    fill: Fill, gappy: tuple[list[int], list[list[float]]], block_cells: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lengths, columns = gappy
    series = [i for i, length in enumerate(lengths) for _ in range(length)]
    is_train = [row < length // 2 for length in lengths for row in range(length)]
    path = tmp_path_factory.mktemp("gaps") / "x.parquet"
    pl.DataFrame({"s": series, "a": columns[0], "b": columns[1]}).write_parquet(path)
    expected = brute_force(columns, series, is_train, fill)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "BLOCK_CELLS", block_cells)
        if np.isnan(expected).any():
            with pytest.raises(DataError, match=r"has no value (in the training part|at all)"):
                loaded(path, series_column="s", validation=0.5, fill=fill)
            return
        data = loaded(path, series_column="s", validation=0.5, fill=fill)
    np.testing.assert_allclose(unscaled(data), np.array(expected).T, atol=1e-3, rtol=1e-5)


def test_a_gap_that_cannot_be_filled_forward_becomes_exactly_the_recorded_mean(write_parquet: WriteParquet) -> None:
    path = write_parquet("x.parquet", x=[None, 1.0, 2.0, 3.3, NAN, 7.0, None, 1.0])
    for fill in ("forward", "mean"):
        data = loaded(path, validation=0.25, fill=fill)
        assert data.train.values[0, 0] == 0.0
    # What is repeated counts; what stays missing does not.
    assert loaded(path, validation=0.25, fill="forward").scaler.mean == pytest.approx([np.mean([1, 2, 3.3, 3.3, 7])])
    assert loaded(path, validation=0.25, fill="mean").scaler.mean == pytest.approx([np.mean([1, 2, 3.3, 7])])
    assert loaded(path, validation=0.25, fill="mean").scaler.scale == pytest.approx([np.std([1, 2, 3.3, 7])])


def test_a_validation_file_is_filled_from_itself_and_from_the_training_mean(write_parquet: WriteParquet) -> None:
    train = write_parquet("train.parquet", x=[1.0, 3.0, 1.0, 3.0, 2.0])
    other = write_parquet("other.parquet", x=[None, 9.0, None, 11.0])
    forward = loaded(train, validation=str(other), fill="forward")
    mean = loaded(train, validation=str(other), fill="mean")
    scale = np.std([1, 3, 1, 3, 2])
    np.testing.assert_allclose(forward.validation.values[:, 0], np.array([0, 7, 7, 9]) / scale, rtol=1e-6)
    np.testing.assert_allclose(mean.validation.values[:, 0], np.array([0, 7, 0, 9]) / scale, rtol=1e-6)
    with pytest.raises(DataError, match=r"other.parquet: missing values in x \(2\); pass fill"):
        loaded(train, validation=str(other))


def test_missing_values_are_refused_with_columns_and_counts(write_parquet: WriteParquet) -> None:
    path = write_parquet("x.parquet", a=[1.0, None, NAN, 4.0], b=[1.0, 2.0, 3.0, 4.0], c=[None, 2, 3, 4])
    with pytest.raises(DataError) as error:
        loaded(path)
    assert str(error.value) == (
        f"{path}: missing values in a (2), c (1); pass fill='forward' or fill='mean', or drop them"
    )
    many = write_parquet("many.parquet", **{f"c{i}": [None, 1.0, 2.0] for i in range(11)})
    with pytest.raises(DataError, match=r"c7 \(1\) and 3 more columns"):
        loaded(many)


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    window=st.integers(2, 8),
    stride=st.one_of(st.none(), st.integers(1, 10)),
    share=st.floats(0.05, 0.95),
)
@pytest.mark.slow
def test_windows_never_cross_a_change_of_series_nor_the_split(
    lengths: list[int], window: int, stride: int | None, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    series = [i for i, length in enumerate(lengths) for _ in range(length)]
    path = tmp_path_factory.mktemp("series") / "x.parquet"
    pl.DataFrame({"s": series, "x": np.arange(float(len(series)))}).write_parquet(path)
    kept = [int(round(n * (1 - share), 6)) for n in lengths]
    kept = [
        n - min(2 * window, n // 2) if n - cut < window <= n // 2 else cut for n, cut in zip(lengths, kept, strict=True)
    ]
    is_train = [row < cut for length, cut in zip(lengths, kept, strict=True) for row in range(length)]
    longest = [max(kept), max(n - cut for n, cut in zip(lengths, kept, strict=True))]
    if min(longest) < window:
        with pytest.raises(DataError, match="fewer than a window"):
            loaded(path, window=window, stride=stride, series_column="s", validation=share)
        return
    data = loaded(path, window=window, stride=stride, series_column="s", validation=share)
    seen = np.zeros(len(series), bool)
    for part, wanted in ((data.train, True), (data.validation, False)):
        assert part.rows == is_train.count(wanted)
        for start in part.starts:
            rows = range(start, start + window)
            assert {(series[row], is_train[row]) for row in rows} == {(series[start], wanted)}
            seen[rows] |= not wanted
    for i, length in enumerate(lengths):  # validation windows cover each validation part that can hold one
        rows = [row for row in range(len(series)) if series[row] == i and not is_train[row]]
        assert seen[rows].all() == (len(rows) >= window or not rows), length


def test_the_scaler_is_that_of_the_training_part_only(write_parquet: WriteParquet) -> None:
    rng = np.random.default_rng(1)
    columns = {"small": rng.normal(size=1000) * 1e-3, "large": 1e6 + rng.normal(size=1000), "late": np.zeros(1000)}
    columns["late"][800:] = 1e9
    path = write_parquet("x.parquet", **columns)
    data = loaded(path, window=10)
    rows = np.stack(list(columns.values()), axis=1).astype(np.float32).astype(np.float64)[:800]
    np.testing.assert_allclose(data.scaler.mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(data.scaler.scale[:2], rows.std(axis=0)[:2], rtol=1e-9)
    assert data.scaler.scale[2] == 1.0
    assert data.validation.values[800, 2] == np.float32(1e9)


def test_the_scaler_does_not_depend_on_how_the_rows_are_cut_into_blocks(
    write_parquet: WriteParquet, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet("x.parquet", s=[0] * 13 + [1] * 20, x=np.random.default_rng(0).normal(size=33))
    whole = loaded(path, series_column="s").scaler
    monkeypatch.setattr(scaling, "BLOCK_CELLS", 3)
    cut = loaded(path, series_column="s").scaler
    np.testing.assert_allclose([cut.mean, cut.scale], [whole.mean, whole.scale], rtol=1e-14)


def test_a_constant_column_keeps_its_unit(write_parquet: WriteParquet) -> None:
    data = loaded(write_parquet("x.parquet", c=[0.1] * 10, x=range(10)))
    assert data.scaler.scale[0] == 1.0
    assert data.scaler.mean[0] == np.float32(0.1)
    assert (data.train.values[:, 0] == 0.0).all()


def test_rows_are_scaled_in_float32_and_held_once(write_parquet: WriteParquet) -> None:
    data = loaded(write_parquet("x.parquet", x=np.arange(100.0)), window=10, stride=1)
    assert data.train.values is data.validation.values
    assert data.train.values.dtype == np.float32
    assert data.train.values.nbytes == 400
    assert data.train.starts.tolist() == list(range(71))


@pytest.mark.parametrize(("train", "validation"), paper.ROWS.values(), ids=paper.ROWS)
def test_the_split_has_the_row_counts_of_the_paper(train: int, validation: int) -> None:
    (first,), (last,), _ = data_module._split([(0, train + validation)], 0.2, 100)
    assert (first, last) == ((0, train), (train, train + validation))


@pytest.mark.parametrize("percent", range(1, 100))
def test_a_share_in_whole_rows_is_not_off_by_rounding(percent: int) -> None:
    (first,), _, _ = data_module._split([(7, 1007)], percent / 100, 1)
    assert first == (7, 1007 - 10 * percent)


def test_validation_is_the_last_share_of_each_series(write_parquet: WriteParquet) -> None:
    path = write_parquet("x.parquet", s=["a"] * 50 + ["b"] * 25, x=np.arange(75.0))
    data = loaded(path, window=5, series_column="s")
    assert (data.train.rows, data.validation.rows) == (60, 15)
    assert data.validation.starts.tolist() == [40, 45, 70]
    data = loaded(path, window=5, series_column="s", validation=0.5)
    assert data.validation.starts.tolist() == [25, 30, 35, 40, 45, 62, 67, 70]


def test_validation_may_be_another_file_with_more_columns_in_another_order(write_parquet: WriteParquet) -> None:
    train = write_parquet("train.parquet", a=[1.0, 3.0], b=[10.0, 30.0], word=["x", "y"], skip=[1, 2])
    other = write_parquet("other.parquet", extra=[0, 0, 0], b=[20.0, 20.0, 30.0], a=[2.0, 2.0, 5.0])
    data = loaded(train, validation=str(other), exclude=("skip",))
    assert data.columns == ["a", "b"]
    assert (data.train.rows, data.validation.rows) == (2, 3)
    np.testing.assert_allclose(data.validation.values, [[0, 0], [0, 0], [3, 1]])


def test_a_validation_file_that_lacks_something_is_named(write_parquet: WriteParquet) -> None:
    train = write_parquet("train.parquet", t=[1, 2, 3], s=[1, 1, 1], a=[1.0, 3.0, 2.0], b=[1.0, 3.0, 2.0])
    for missing in ("a", "t", "s"):
        columns = {"t": [1, 2, 3], "s": [1, 1, 1], "a": [1.0, 3.0, 2.0], "b": [1.0, 3.0, 2.0]}
        del columns[missing]
        other = write_parquet("other.parquet", **columns)
        with pytest.raises(DataError, match=f"other.parquet: column '{missing}' is missing"):
            loaded(train, validation=str(other), time_column="t", series_column="s")
    short = write_parquet("short.parquet", t=[1], s=[1], a=[1.0], b=[1.0])
    with pytest.raises(DataError, match=r"short.parquet: the longest validation part has 1 rows, fewer than a window"):
        loaded(train, validation=str(short))


def test_a_share_shorter_than_a_window_is_made_longer_and_said(write_parquet: WriteParquet) -> None:
    path = write_parquet("x.parquet", s=[1] * 43 + [2] * 22 + [3] * 19 + [4] * 100, x=np.arange(184.0) % 7)
    data = loaded(path, window=10, series_column="s", validation=0.2)
    assert data.train.series_rows == [23, 11, 15, 80]
    assert data.validation.series_rows == [20, 11, 20]
    assert (
        "a share of 0.2 of 2 of 4 series is shorter than a window of 10: the last 11 to 20 rows are used for "
        "validation instead" in " ".join(data.notes)
    )


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 20.0, NAN, float("inf")])
def test_a_share_outside_of_0_to_1_is_refused_before_anything_is_read(share: float) -> None:
    with pytest.raises(ConfigError, match=r"validation: .* is not a fraction between 0 and 1"):
        DataConfig(source="does not exist", validation=share)


def test_infinities_and_values_beyond_float32_are_refused_with_their_row(
    write_parquet: WriteParquet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "BLOCK_CELLS", 4)
    for value in (float("inf"), -float("inf"), 1e39):
        path = write_parquet("x.parquet", a=[1.0] * 9, b=[*[1.0] * 7, value, 1.0])
        with pytest.raises(DataError, match="column 'b' is infinite, or too large for float32, in row 7"):
            loaded(path)


def test_a_column_without_values_is_refused_with_the_way_out(write_parquet: WriteParquet) -> None:
    frame = pl.DataFrame({"x": range(10), "void": [None] * 10}, schema={"x": pl.Int64, "void": pl.Float64})
    with pytest.raises(DataError, match="column 'void' has no value at all; leave it out with exclude='void'"):
        loaded(write_parquet("x.parquet", frame), fill="mean")
    with pytest.raises(DataError, match="column 'late' has no value in the training part"):
        loaded(write_parquet("x.parquet", x=range(10), late=[None] * 8 + [1.0, 2.0]), fill="forward")


def test_values_that_overflow_when_scaled_are_refused(write_parquet: WriteParquet) -> None:
    path = write_parquet("x.parquet", x=[*[3e38] * 6, -3e38, 3e38, 3e38, 3e38])
    with pytest.raises(DataError, match="column 'x' is too large or too small to be scaled in float32; multiply it"):
        loaded(path)


def test_notes_tell_what_was_left_out_and_what_looks_wrong(write_parquet: WriteParquet) -> None:
    noise = np.random.default_rng(0).normal(size=60)
    path = write_parquet(
        "x.parquet", s=["a"] * 51 + ["b"] * 9, epoch=1_700_000_000 + 3600 * np.arange(60), word=["w"] * 60, x=noise
    )
    assert loaded(path, window=5, series_column="s").notes == [
        "not numeric, ignored: word",
        "1 of 2 series have a validation part shorter than a window: not used",
        "epoch rises steadily like a clock or row number and is left out; name it as `time_column` to use its times, "
        "or among `columns` to learn it as a feature",
    ]
    assert loaded(path, window=5, columns=["x"]).notes == []


def test_a_clock_is_a_feature_only_if_it_is_named_or_has_no_name(write_parquet: WriteParquet) -> None:
    noise = np.random.default_rng(0).normal(size=60)
    path = write_parquet("x.parquet", epoch=1_700_000_000 + 3600 * np.arange(60), x=noise)
    assert loaded(path, window=5).columns == ["x"]
    assert loaded(path, window=5, exclude=("epoch",)).notes == []
    for options in ({"columns": ["epoch", "x"]}, {"learn_clocks": True}, {"exclude": ("x",)}):
        data = loaded(path, window=5, **options)
        assert data.columns == (["epoch"] if "exclude" in options else ["epoch", "x"])
        assert data.notes == [
            "epoch rises steadily like a clock or row number and is learnt as a feature; "
            "if that is not meant, pass `time_column` or `exclude`"
        ]


def test_the_fingerprint_tells_data_apart(write_parquet: WriteParquet) -> None:
    values = np.random.default_rng(0).normal(size=50)
    path = write_parquet("x.parquet", x=values)
    same = loaded(path).fingerprint()
    assert loaded(path).fingerprint() == same
    assert loaded(path, window=3).fingerprint() != same
    assert loaded(path, validation=0.3).fingerprint() != same
    values[49] += 1  # a validation row
    assert loaded(write_parquet("y.parquet", x=values)).fingerprint() != same


@pytest.mark.slow
def test_loading_and_training_take_about_the_float32_size_of_the_data(tmp_path: Path) -> None:
    """Neither float64 copies nor overlapping windows: 2 million rows at stride 1 would be 6.4 GB of windows."""
    rows, features = 2_000_000, 8
    rng = np.random.default_rng(0)
    columns = {f"f{j}": rng.standard_normal(rows) for j in range(features)}
    frame = pl.DataFrame({"row": np.arange(rows), **columns})  # a row number, without which the rows are read again
    frame.write_parquet(tmp_path / "big.parquet", compression="uncompressed")
    frame[:20_000].write_parquet(tmp_path / "small.parquet")
    del frame
    program = """
import json
from at_infer.memory import own_memory
own_memory()  # as commands do
from benchmarks.peak_memory import peak_mb
from training.data import DataConfig, load
from training.loop import fit
from training.task import TrainingTask
from at_infer.config import ModelConfig, ScoreConfig, TrainConfig

def run(name, share):
    load(DataConfig(source=name), window=100)
    loaded = peak_mb()
    data = load(DataConfig(source=name, validation=share), window=100, stride=1)
    model = ModelConfig(features=8, window=100, width=8, heads=2, layers=1, feed_forward=8)
    fit(TrainingTask(data=data, model=model, train=TrainConfig(max_steps=1)), ScoreConfig())
    return loaded, peak_mb()

run("small.parquet", 0.1)
before = peak_mb()
loaded, trained = run("big.parquet", 0.001)
print(json.dumps({"load": loaded - before, "train": trained - before}))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    used = json.loads(done.stdout)
    float32_mb = 4 * rows * features / 2**20
    assert used["load"] < 2.0 * float32_mb, used
    assert used["train"] < 2.8 * float32_mb, used  # a copy in float64 would be 2 more; what allocators keep varies
