"""When training finds a season, and which."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from at_infer.errors import DataError
from at_infer.models.season import DAY_S, WEEK_S
from tests.conftest import WriteParquet
from training.data import DataConfig, TrainingData, load
from training.season import Chosen, NoSeasonError, find_season, free_days, week_of

START_S = 1_700_000_000.0


def clock(rows: int, spacing_s: float) -> np.ndarray:
    return START_S + spacing_s * np.arange(rows)


def cycle(times: np.ndarray) -> np.ndarray:
    phase = 2 * np.pi * (times % DAY_S) / DAY_S
    return 50 + 10 * np.sin(phase) + 4 * np.cos(2 * phase)


def noisy(values: np.ndarray, features: int = 1, scale: float = 1.0) -> np.ndarray:
    noise = np.random.default_rng(0).normal(scale=scale, size=(len(values), features))
    return (values[:, None] + noise).astype(np.float32)


@pytest.mark.parametrize("spacing_s", [60.0, 300.0, 420.0, 900.0, 3600.0])
def test_a_daily_cycle_is_found_at_any_spacing_and_taken_out(spacing_s: float) -> None:
    times = clock(int(6 * DAY_S / spacing_s), spacing_s)
    season = find_season(noisy(cycle(times)), times, [(0, len(times))])
    assert season is not None
    assert season.bins <= 288
    other = times[: len(times) // 2] + 100 * DAY_S
    left = cycle(other) - 50 - season.at(other)[:, 0]
    assert np.abs(left).mean() < 0.6
    assert abs(np.mean(season.profile[0])) < 1e-9


def test_a_profile_is_the_median_over_days_then_a_circular_mean_over_a_quarter_of_an_hour() -> None:
    times = (np.arange(5 * 288) * 300.0) + 19_000 * DAY_S
    values = noisy(cycle(times), 2)
    values[3 * 288 : 3 * 288 + 40] += 1000  # one bad night
    season = find_season(values, times, [(0, len(times))])
    assert season is not None
    usual = np.median(values.astype(np.float64).reshape(5, 288, 2), axis=0)
    expected = (np.roll(usual, 1, axis=0) + usual + np.roll(usual, -1, axis=0)) / 3
    np.testing.assert_allclose(np.array(season.profile).T, expected - expected.mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("rho", [1.0, 0.999, 0.99, 0.0])
@pytest.mark.parametrize("days", [4, 11])
def test_random_walks_have_no_season(rho: float, days: int) -> None:
    steps = np.random.default_rng(days).normal(size=(days * 288, 40))
    walk = np.zeros_like(steps)
    for i in range(1, len(steps)):
        walk[i] = rho * walk[i - 1] + steps[i]
    times = clock(len(walk), 300.0)
    assert find_season(walk.astype(np.float32), times, [(0, len(walk))]) is None


def test_only_columns_with_a_cycle_have_a_season() -> None:
    times = clock(5 * 288, 300.0)
    steady = np.full(len(times), 7.0)
    noise = np.random.default_rng(0).normal(size=len(times))
    one_day = np.where(times < START_S + DAY_S, cycle(times), 50)
    values = np.column_stack([cycle(times), steady, noise, one_day]).astype(np.float32)
    season = find_season(values, times, [(0, len(times))])
    assert season is not None
    assert season.features == [0]


def test_gaps_in_rows_and_values_do_not_hide_a_season() -> None:
    rng = np.random.default_rng(0)
    times = clock(8 * 288, 300.0)
    times = times[(rng.random(len(times)) > 0.1) & ((times < times[600]) | (times > times[900]))]
    values = noisy(cycle(times), 2)
    values[rng.random(values.shape) < 0.05] = np.nan
    values[: 5 * 288, 1] = np.nan  # too little is known of the second
    season = find_season(values, times, [(0, len(times))])
    assert season is not None
    assert season.features == [0]
    assert np.isfinite(season.profile[0]).all()


def test_series_are_pooled_and_short_ones_do_not_count() -> None:
    parts = [clock(288 * days, 300.0) for days in (5, 4, 1)]
    times = np.concatenate(parts)
    values = noisy(cycle(times))
    values[-288:] = -1000
    spans = [(0, 1440), (1440, 1440 + 1152), (1440 + 1152, len(times))]
    season = find_season(values, times, spans)
    assert season is not None
    assert np.abs(season.profile[0]).max() < 20


@pytest.mark.parametrize(("rows", "spacing_s", "why"), [(800, 300.0, "3 full days"), (100, 43_200.0, "12 h apart")])
def test_too_few_rows_say_why_there_is_no_season(rows: int, spacing_s: float, why: str) -> None:
    times = clock(rows, spacing_s)
    with pytest.raises(NoSeasonError, match=why):
        find_season(noisy(cycle(times)), times, [(0, rows)])


def working_week(times: np.ndarray, shift_h: float = 0.0, free: int = 2) -> np.ndarray:
    """The cycle on five or six days, flat and low on the others."""
    day = (times - shift_h * 3600) // DAY_S % 7  # 1970 began on a Thursday: 2 and 3 are the weekend
    return np.where((day >= 4 - free) & (day < 4), 45.0, cycle(times))


@pytest.mark.parametrize(("free", "shift_h"), [(2, 0.0), (1, 0.0), (2, 8.0)])
def test_days_of_the_week_that_differ_have_a_profile_of_their_own_in_any_zone(free: int, shift_h: float) -> None:
    times = clock(int(15 * DAY_S / 900), 900.0)
    values = np.column_stack([noisy(working_week(times, shift_h, free)), noisy(cycle(times)), noisy(times * 0)])
    season = find_season(values, times, [(0, len(times))])
    assert season is not None
    assert (season.features, season.weekly, season.period_s) == ([0, 1], [0], WEEK_S)
    assert [len(values) for values in season.profile] == [7 * 96, 96, 0]
    later = times + 100 * WEEK_S
    left = working_week(later, shift_h, free) - season.at(later)[:, 0]
    assert np.std(left) < 1
    assert np.quantile(np.abs(left - np.median(left)), 0.95) < 1.5


def test_a_profile_by_week_is_the_median_over_days_of_either_kind() -> None:
    weeks = np.random.default_rng(0).normal(size=(3, 7 * 24))
    weeks[1, 30:40] = np.nan
    weeks[:, 60:108] += 5
    free = np.zeros(7 * 24, np.bool_)
    free[60:108] = True
    np.testing.assert_array_equal(free_days(np.nanmedian(weeks, axis=0).reshape(7, 24)).ravel(), free)
    hour = np.arange(7 * 24) % 24
    expected = [np.nanmedian(weeks[:, (hour == hour[i]) & (free == free[i])]) for i in range(7 * 24)]
    np.testing.assert_allclose(week_of(weeks, 1), expected)


@pytest.mark.slow
def test_a_daily_cycle_or_a_single_week_has_no_weekly_season() -> None:
    times = clock(int(22 * DAY_S / 900), 900.0)
    season = find_season(noisy(cycle(times), 20, 3.0), times, [(0, len(times))])
    assert season is not None
    assert (season.period_s, season.weekly, season.bins) == (DAY_S, [], 96)
    short = times[: 13 * 96]
    season = find_season(noisy(working_week(short)), short, [(0, len(short))])
    assert season is None or not season.weekly
    with pytest.raises(NoSeasonError, match="2 full weeks"):
        find_season(noisy(cycle(short)), short, [(0, len(short))], Chosen((), (0,)))


def read(write_parquet: WriteParquet, days: int = 5, *, number: bool = False, **options: object) -> TrainingData:
    times = clock(days * 288, 300.0)
    start = datetime(1970, 1, 1)
    ts = times.astype(int) if number else [start + timedelta(seconds=t) for t in times]
    path = write_parquet("data.parquet", pl.DataFrame({"ts": ts, "a": cycle(times), "b": noisy(times * 0)[:, 0]}))
    return load(DataConfig(source=str(path), **{"time_column": "ts"} | options), window=10)  # type: ignore[arg-type]


def test_training_rows_come_without_their_season(write_parquet: WriteParquet) -> None:
    data = read(write_parquet)
    assert data.season is not None
    assert data.season_found == "24 h profile of 1 of 2 columns"
    assert data.scaler.scale[0] < 1 < 10 < read(write_parquet, season="none").scaler.scale[0] * 2
    assert abs(data.scaler.mean[0] - 50) < 1


def test_training_says_why_there_is_no_season(write_parquet: WriteParquet) -> None:
    assert "no time column" in read(write_parquet, time_column=None, columns=["a", "b"]).season_found
    assert "no time column with dates and times" in read(write_parquet, number=True).season_found
    assert "3 full days" in read(write_parquet, days=3).season_found
    assert "no column" in read(write_parquet, columns=["b"]).season_found
    assert "as requested" in read(write_parquet, season="none").season_found


def test_a_season_that_is_asked_for_is_that_of_every_column_or_an_error(write_parquet: WriteParquet) -> None:
    season = read(write_parquet, season="1d").season
    assert season is not None
    assert season.features == [0, 1]
    with pytest.raises(DataError, match="no time column with dates and times; a season needs `time_column`"):
        read(write_parquet, number=True, season="1d")
    with pytest.raises(DataError, match="3 full days"):
        read(write_parquet, days=3, season="1d")
    data = read(write_parquet, days=18, season="1w")
    assert data.season is not None
    assert data.season.weekly == [0, 1]
    assert data.season_found == "24 h profile of 2 of 2 columns, 2 of them by day of the week"
    with pytest.raises(DataError, match="2 full weeks of training rows; or pass season='none'"):
        read(write_parquet, season="1w")


def test_weights_to_start_from_keep_their_columns_and_lend_their_profile(write_parquet: WriteParquet) -> None:
    known = read(write_parquet, season="1d").season
    again = read(write_parquet, known_season=known).season
    assert again is not None
    assert again.features == [0, 1]
    assert read(write_parquet, days=2, known_season=known).season == known
    weekly = read(write_parquet, days=18, season="1w").season
    again = read(write_parquet, days=20, known_season=weekly).season
    assert again is not None
    assert again.weekly == [0, 1]
    assert read(write_parquet, days=5, known_season=weekly).season == weekly
