"""A model with a season: the same scores whoever reads the rows, and errors that say what is missing."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from at_infer import ScoreOptions, Scorer, StreamScorer
from at_infer.errors import ConfigError, DataError
from at_infer.models.season import Season
from at_infer.scoring.real_windows import real_windows
from tests.checkpoints import WINDOW
from tests.scored import COLUMNS, Edit, Score, rows, values

SEASON = Season(
    offset_s=30.0,
    profile=[np.random.default_rng(k).normal(scale=s, size=96).tolist() if s else [] for k, s in enumerate((2, 0, 50))],
)
START = datetime(2024, 2, 27, 23, 50)


def timed(count: int = 400) -> pl.DataFrame:
    """Rows of the model without season, 7 minutes apart, over a leap day."""
    return rows(count, ts=[START + timedelta(minutes=7 * i) for i in range(count)])


def seasonal(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows with the season on top."""
    seconds = frame["ts"].dt.replace_time_zone("UTC").dt.epoch("us").to_numpy() / 1e6
    found = values(frame) + SEASON.at(seconds)
    return frame.with_columns(pl.Series(name, found[:, j]) for j, name in enumerate(COLUMNS))


@pytest.fixture
def model(edited: Edit) -> Path:
    return edited(season=SEASON.to_dict(), time_column="ts", fill="forward")


def test_a_season_is_taken_out_before_windows_are_cut(score: Score, model: Path) -> None:
    plain = score(timed().drop("ts"))
    with_season = score(seasonal(timed()), engine=model)
    np.testing.assert_allclose(with_season.score, plain.score, rtol=2e-3, atol=1e-3)


def test_time_zones_and_texts_change_nothing(score: Score, model: Path) -> None:
    frame = seasonal(timed())
    expected = score(frame, engine=model).score
    aware = frame.with_columns(pl.col("ts").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"))
    np.testing.assert_array_equal(score(aware, engine=model).score, expected)
    texts = frame.with_columns(pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%S"))
    np.testing.assert_array_equal(score(texts, engine=model).score, expected)


def test_chunks_of_any_size_give_the_same_scores(score: Score, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = seasonal(timed())
    expected = score(frame, engine=model).score
    monkeypatch.setattr("at_infer.tables.row_stream.CHUNK_CELLS", 4 * 7)
    np.testing.assert_array_equal(score(frame, engine=model).score, expected)


def test_rows_in_memory_and_a_stream_score_as_a_file(score: Score, model: Path, tmp_path: Path) -> None:
    frame = seasonal(timed(120)).with_columns(
        f00=pl.when(pl.int_range(120) % 9 == 5).then(None).otherwise(pl.col("f00"))
    )
    expected = score(frame, engine=model, align="last").score
    times = frame["ts"].to_list()
    table = frame.select(COLUMNS).to_numpy()
    with Scorer(model, ScoreOptions(align="last")) as scorer:
        np.testing.assert_allclose(scorer.score(table, times).score, expected, rtol=1e-6)
    with StreamScorer(model) as stream, StreamScorer(model) as later:
        zones = [time.replace(tzinfo=UTC).isoformat() for time in times]
        first = stream.push_many(table[:50], times=zones[:50])
        stream.save(tmp_path / "state")
        later.load(tmp_path / "state")
        second = later.push_many(table[50:], times=zones[50:])
    found = np.concatenate([first.score, second.score])
    np.testing.assert_allclose(found, expected, rtol=1e-5, equal_nan=True)


def test_a_row_without_a_time_of_day_is_refused(model: Path) -> None:
    row = values(timed(1))[0]
    with StreamScorer(model) as stream:
        with pytest.raises(DataError, match="has no time; the model subtracts a season"):
            stream.push(row)
        with pytest.raises(DataError, match="is a number; the model subtracts a season"):
            stream.push(row, time=1_700_000_000)
        stream.push(row, time="2024-01-01T00:00:00")
    with Scorer(model) as scorer:
        with pytest.raises(DataError, match="give the time of every row"):
            scorer.score(values(timed(WINDOW)))
        with pytest.raises(DataError, match="there are 3 of 20 rows"):
            scorer.score(values(timed(WINDOW)), timed(3)["ts"].to_list())


def test_a_file_without_a_time_of_day_is_refused(score: Score, model: Path) -> None:
    frame = timed(50)
    with pytest.raises(ConfigError, match="leave `no_time` out"):
        score(frame, engine=model, no_time=True)
    with pytest.raises(DataError, match="column 'ts' is Int64; the model subtracts a season"):
        score(frame.with_columns(ts=pl.int_range(50)), engine=model)
    with pytest.raises(DataError, match="Invalid isoformat"):
        score(frame.with_columns(ts=pl.format("row {}", pl.int_range(50).cast(pl.String).str.zfill(3))), engine=model)


def test_real_windows_come_without_their_season(model: Path, tmp_path: Path) -> None:
    seasonal(timed(3 * WINDOW)).write_parquet(tmp_path / "real.parquet")
    with Scorer(model) as scorer:
        found = real_windows(str(tmp_path / "real.parquet"), scorer.metadata)
    np.testing.assert_allclose(found.reshape(-1, len(COLUMNS)), values(timed(3 * WINDOW)), atol=1e-4)
