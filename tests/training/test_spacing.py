"""The usual time from row to row: learnt where rows come regularly, and windows of training never cross a gap."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer.errors import ConfigError, DataError
from at_infer.models.spacing import Grid, Spacing
from tests.checkpoints import checkpoint
from tests.conftest import WriteParquet
from training.checkpoint import Checkpoint
from training.data import DataConfig, TrainingData, load

START = datetime(2024, 1, 1)


def loaded(path: Path, *, window: int = 5, stride: int | None = 1, **options: Any) -> TrainingData:
    return load(DataConfig(source=str(path), time_column="t", **options), window=window, stride=stride)


def rows(seconds: list[float] | np.ndarray) -> pl.DataFrame:
    noise = np.random.default_rng(0).normal(size=(len(seconds), 2))
    times = [START + timedelta(seconds=float(one)) for one in seconds]
    return pl.DataFrame({"a": noise[:, 0], "b": noise[:, 1], "t": times})


def test_the_median_step_is_learnt_in_seconds_or_in_the_units_of_a_number(write_parquet: WriteParquet) -> None:
    steps = np.cumsum([30.0] * 50 + [31, 29] * 20 + [3600.0] + [30.0] * 50)
    data = loaded(write_parquet("x.parquet", rows(steps)))
    assert data.spacing == Spacing(step=30.0, clock="date", max_gap=3)
    numbers = rows(steps).with_columns(t=pl.Series(steps * 1000).cast(pl.Int64))
    data = loaded(write_parquet("x.parquet", numbers))
    assert data.spacing == Spacing(step=30_000.0, clock="number", max_gap=3)
    assert data.season is None
    texts = rows(steps).with_columns(t=pl.col("t").dt.strftime("%Y-%m-%d %H:%M:%S"))
    assert loaded(write_parquet("x.parquet", texts)).spacing is None
    assert load(DataConfig(source=str(write_parquet("x.parquet", texts))), window=5).spacing is None


def test_windows_of_training_and_validation_do_not_cross_gaps(write_parquet: WriteParquet) -> None:
    seconds = np.arange(300.0) + 100 * (np.arange(300) >= 77) + 100 * (np.arange(300) >= 263)
    data = loaded(write_parquet("x.parquet", rows(seconds)))
    cuts = [0, 77, 240, 263, 300]
    for part in (data.train, data.validation):
        for start in part.starts:
            assert any(first <= start and start + 5 <= end for first, end in pairwise(cuts))
    assert (data.train.series_rows, data.validation.series_rows) == ([77, 163], [23, 37])
    assert data.notes == ["1 gap of more than 3 steps in time (of 1 s) in the training part: no window spans one"]
    bridged = loaded(write_parquet("x.parquet", rows(seconds)), max_gap=0)
    assert (bridged.train.series_rows, bridged.validation.series_rows) == ([240], [60])
    assert bridged.spacing == Spacing(step=1.0, clock="date", max_gap=0)
    assert bridged.notes == []


def test_missing_values_do_not_repeat_those_before_a_gap(write_parquet: WriteParquet) -> None:
    seconds = np.arange(100.0) + 100 * (np.arange(100) >= 50)
    frame = rows(seconds).with_columns(a=pl.when(pl.int_range(pl.len()).is_between(50, 52)).then(None).otherwise("a"))
    data = loaded(write_parquet("x.parquet", frame), fill="forward")
    assert (data.train.values[50:53, 0] == 0).all()


def test_rows_that_come_irregularly_by_nature_are_not_shredded(write_parquet: WriteParquet) -> None:
    seconds = np.cumsum(np.random.default_rng(0).exponential(10.0, size=1000))
    data = loaded(write_parquet("x.parquet", rows(seconds)))
    assert data.spacing is not None
    assert data.spacing.max_gap == 0
    assert data.train.series_rows == [800]
    assert "of the time steps exceed 3 median steps" in data.notes[0]
    asked = loaded(write_parquet("x.parquet", rows(seconds)), max_gap=20)
    assert asked.spacing == replace(data.spacing, max_gap=20)


def test_a_machine_that_runs_by_day_is_regular(write_parquet: WriteParquet) -> None:
    seconds = np.concatenate([86_400 * day + 60.0 * np.arange(60) for day in range(20)])
    data = loaded(write_parquet("x.parquet", rows(seconds)))
    assert data.spacing == Spacing(step=60.0, clock="date", max_gap=3)
    assert data.train.series_rows == [60] * 16


def test_too_few_rows_between_gaps_are_told_with_the_way_out(write_parquet: WriteParquet) -> None:
    seconds = np.arange(400.0) + 100 * (np.arange(400) // 50)
    with pytest.raises(DataError, match=r"longest training part between gaps in time has 50 rows.*larger `max_gap`"):
        loaded(write_parquet("x.parquet", rows(seconds)), window=60)
    with pytest.raises(ConfigError, match="max_gap: -2 is too small"):
        loaded(write_parquet("x.parquet", rows(seconds)), max_gap=-2)


def test_a_checkpoint_keeps_the_spacing_and_one_without_it_can_be_read(tmp_path: Path) -> None:
    spacing = Spacing(step=0.1, clock="date", max_gap=5)
    replace(checkpoint(), spacing=spacing).save(tmp_path / "new.pt")
    assert Checkpoint.load(tmp_path / "new.pt").spacing == spacing
    import torch

    content = torch.load(tmp_path / "new.pt", weights_only=True)
    del content["spacing"]
    torch.save(content, tmp_path / "old.pt")
    assert Checkpoint.load(tmp_path / "old.pt").spacing is None


def test_training_rows_are_put_on_a_grid_which_is_kept(write_parquet: WriteParquet, tmp_path: Path) -> None:
    seconds = np.arange(0, 600.0, 2.5)
    path = write_parquet("x.parquet", rows(seconds))
    grid = Grid(interval_s=10.0)
    data = loaded(path, grid=grid)
    assert data.train.rows + data.validation.rows == 60
    means = rows(seconds).select("a", "b").to_numpy().reshape(60, 4, 2).mean(axis=1)
    np.testing.assert_allclose(
        data.train.values[:48] * data.scaler.scale + data.scaler.mean, means[:48], rtol=1e-4, atol=1e-5
    )
    assert data.spacing == Spacing(step=10.0, clock="date", max_gap=3)
    assert data.notes == ["240 rows are put on a grid of 10s (mean): 60 rows"]
    kept = replace(checkpoint(), spacing=data.spacing, grid=data.grid)
    kept.save(tmp_path / "x.pt")
    assert Checkpoint.load(tmp_path / "x.pt").grid == grid
    with pytest.raises(DataError, match=r"most rows are more than 3 intervals of 0.5s \(mean\) apart"):
        loaded(path, grid=Grid(interval_s=0.5))
    with pytest.raises(ConfigError, match="interval: rows without a time"):
        DataConfig(source=str(path), grid=grid)
    with pytest.raises(ConfigError, match="max_gap: rows on a grid need a limit"):
        loaded(path, grid=grid, max_gap=0)
