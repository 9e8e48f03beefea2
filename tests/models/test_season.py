"""The season of a model, and the times it is looked up by."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest

from at_infer.errors import ConfigError, DataError
from at_infer.live.times import moment, seconds
from at_infer.models.season import DAY_S, WEEK_S, Season
from at_infer.tables.clock import column_seconds, seconds_of, times_to_seconds

HOUR_S = 3600.0


def hourly(offset_s: float = 0.0) -> Season:
    """Two features, the second without a season."""
    return Season(offset_s=offset_s, profile=[np.random.default_rng(0).normal(size=24).tolist(), []])


def looked_up(season: Season, time_s: float) -> float:
    """The first feature at one time, by hand."""
    values, width = season.profile[0], season.period_s / season.bins
    place = ((time_s - season.offset_s) % season.period_s) / width
    below, share = int(place), place - int(place)
    return values[below % len(values)] * (1 - share) + values[(below + 1) % len(values)] * share


@pytest.mark.parametrize("offset_s", [0.0, 1800.0, 77.0])
def test_a_season_is_its_profile_linear_between_its_values(offset_s: float) -> None:
    season = hourly(offset_s)
    times = np.random.default_rng(1).uniform(-1e9, 2e9, 500)
    found = season.at(times)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:, 0], [looked_up(season, t) for t in times], rtol=1e-5, atol=1e-6)
    assert (found[:, 1] == 0).all()
    on_the_hour = season.at(offset_s + HOUR_S * np.arange(48))
    np.testing.assert_array_equal(on_the_hour[:, 0], np.tile(np.float32(season.profile[0]), 2))


def test_a_season_is_the_same_row_by_row_and_all_at_once() -> None:
    times = np.random.default_rng(1).uniform(0, 2e9, 100)
    np.testing.assert_array_equal(
        hourly().at(times), np.concatenate([hourly().at(times[i : i + 1]) for i in range(100)])
    )


def test_a_gap_stays_a_gap_and_rows_without_time_are_refused() -> None:
    rows = np.array([[np.nan, 2.0], [3.0, np.nan]], np.float32)
    hourly().subtract(rows, np.array([0.0, HOUR_S]))
    assert np.isnan(rows[0, 0])
    assert np.isnan(rows[1, 1])
    assert rows[0, 1] == 2.0
    assert rows[1, 0] == np.float32(3.0) - np.float32(hourly().profile[0][1])
    with pytest.raises(DataError, match="time of every row"):
        hourly().subtract(rows, None)


def test_in_a_week_a_daily_profile_repeats_every_day() -> None:
    day, week = hourly().profile[0], np.random.default_rng(2).normal(size=7 * 24).tolist()
    season = Season(period_s=WEEK_S, offset_s=0.0, profile=[day, [], week])
    assert (season.features, season.weekly, hourly().weekly) == ([0, 2], [2], [])
    times = np.random.default_rng(1).uniform(-1e9, 2e9, 500)
    np.testing.assert_allclose(season.at(times)[:, 0], hourly().at(times)[:, 0], atol=1e-6)
    np.testing.assert_array_equal(season.at(HOUR_S * np.arange(7 * 24))[:, 2], np.float32(week))


def test_a_season_survives_json_and_needs_lengths_that_fit() -> None:
    assert Season.from_dict(hourly().to_dict()) == hourly()
    assert hourly().features == [0]
    for profile in ([[], []], [[1.0, 2.0, 3.0], [1.0, 2.0]]):
        with pytest.raises(ConfigError, match="profile"):
            Season(offset_s=0, profile=profile)


def test_a_leap_day_shifts_nothing() -> None:
    noons = times_to_seconds([datetime(2024, 2, 28, 12), datetime(2024, 2, 29, 12), datetime(2024, 3, 1, 12)])
    assert (noons % DAY_S == 12 * HOUR_S).all()
    assert len({float(v) for v in hourly().at(noons)[:, 0]}) == 1


INSTANT = 1_709_208_000.25  # 2024-02-29T12:00:00.25Z
UTC_TIME = datetime(2024, 2, 29, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "time",
    [
        UTC_TIME,
        UTC_TIME.replace(tzinfo=None),
        UTC_TIME.astimezone(timezone(timedelta(hours=5, minutes=30))),
        "2024-02-29T12:00:00.250000123Z",
        "2024-02-29T17:30:00.25+05:30",
        "2024-02-29 12:00:00.25",
    ],
)
def test_a_time_is_the_same_number_in_a_file_in_memory_and_in_a_stream(time: datetime | str) -> None:
    assert times_to_seconds([time]).tolist() == [INSTANT]
    assert seconds(moment(time), time) == INSTANT
    if isinstance(time, datetime):
        assert seconds_of(time) == INSTANT
        for unit in ("ms", "us", "ns"):
            column = pl.Series([time]).cast(pl.Datetime(unit, None if time.tzinfo is None else "UTC"))
            assert column_seconds(column, "x").tolist() == [INSTANT]
            if time.tzinfo is not None:
                assert column_seconds(column.dt.convert_time_zone("Asia/Tokyo"), "x").tolist() == [INSTANT]


def test_dates_and_numpy_times_are_times_and_numbers_are_none() -> None:
    assert times_to_seconds([date(1970, 1, 3)]).tolist() == [2 * DAY_S]
    assert times_to_seconds(np.array(["1970-01-02T00:00:01"], "datetime64[s]")).tolist() == [DAY_S + 1]
    assert times_to_seconds([datetime(1969, 12, 31, 23, 59, 59, 500_000)]).tolist() == [-0.5]
    for numbers in ([1, 2], [1.5], np.arange(3)):
        with pytest.raises(DataError, match="dates and times"):
            times_to_seconds(numbers)
    for odd in (["yesterday"], [datetime(2024, 1, 1), None], [object()]):
        with pytest.raises(DataError, match="dates and times"):
            times_to_seconds(odd)
    with pytest.raises(DataError, match="is a number"):
        seconds(moment("1709208000"), "1709208000")
