"""Times that stand still or go back: named with their row, left out, or taken as they come; and no time at all."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import ScoreOptions, StreamScorer
from at_infer.cluster.run import score_on_workers
from at_infer.errors import ConfigError, DataError
from at_infer.models.spacing import Spacing
from at_infer.scoring.options import InputOptions
from tests.first_column import FirstColumn, N, rows_of
from tests.in_process import Opener
from tests.scored import Edit, Score, rows

BAD = [30, 31, 90, 149]


def times(count: int = 150) -> list[int]:
    """They stand still, go back for two rows, and go back at the end."""
    found = list(range(1000, 1000 + count))
    found[30], found[31], found[90], found[149] = 1029, 1028, 900, 1100
    return found


def test_a_bad_time_is_named_with_the_ways_on(score: Score) -> None:
    with pytest.raises(DataError, match=r"row 30: t 1029 is there twice; .*on_bad_time='drop' or on_bad_time='ignore'"):
        score(rows(150, t=times()), time_column="t")


@pytest.mark.parametrize("chunk_rows", [1, 7, 30, 31, 1000])
@pytest.mark.slow
def test_dropped_rows_are_as_if_they_had_not_been_there(
    score: Score, monkeypatch: pytest.MonkeyPatch, chunk_rows: int
) -> None:
    frame = rows(300, t=times() + times(), s=["a"] * 150 + ["b"] * 150)
    keys = {"time_column": "t", "series_column": "s"}
    good = frame.filter(~(pl.int_range(pl.len()) % 150).is_in(BAD))
    expected = score(good, **keys)
    monkeypatch.setattr("at_infer.tables.row_stream.CHUNK_CELLS", 5 * chunk_rows)
    found = score(frame, on_bad_time="drop", **keys)
    assert found.frame.equals(expected.frame)
    assert (found.summary.rows, found.summary.dropped_rows, found.summary.series) == (292, 8, 2)


def test_times_that_are_ignored_change_nothing_about_scores(score: Score) -> None:
    frame = rows(150, t=times())
    found = score(frame, time_column="t", on_bad_time="ignore")
    np.testing.assert_array_equal(found.score, score(frame).score)
    assert found.frame["t"].to_list() == times()


def test_a_clock_that_was_set_back_far_begins_the_series_anew(score: Score, edited: Edit) -> None:
    model = edited(spacing=Spacing(step=1.0, clock="number").to_dict(), time_column="t")
    frame = rows(150, t=[*range(1000, 1090), *range(500, 560)])
    found = score(frame, engine=model, on_bad_time="ignore")
    assert found.summary.gaps == 1


def test_a_cluster_drops_no_rows(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="on_bad_time: on a cluster rows keep their numbers"):
        score_on_workers(
            "x", tmp_path, tmp_path, input_options=InputOptions(on_bad_time="drop"), open_workers=Opener(1)
        )


@pytest.mark.parametrize(("policy", "taken"), [("error", N - 1), ("drop", N - 1), ("ignore", N + 1)])
def test_a_stream_leaves_bad_times_out_or_takes_them(policy: Any, taken: int) -> None:
    stream = StreamScorer(FirstColumn(), ScoreOptions(threshold=100.0), on_bad_time=policy)
    at = datetime(2024, 1, 1, tzinfo=UTC)
    seconds = [*range(N - 1), N - 2, 0]
    found = stream.push_many(rows_of(range(N + 1)), times=[at + timedelta(seconds=one) for one in seconds])
    assert stream.series[""].state.stretch.rows == taken
    assert len(found.refused) == (2 if policy == "error" else 0)
    assert found.dropped_rows == (2 if policy == "drop" else 0)


def test_a_file_without_the_time_of_the_training_data_can_be_scored(
    run_cli: Callable[..., Any], edited: Edit, tmp_path: Path
) -> None:
    model = edited(spacing=Spacing(step=1.0, clock="number").to_dict(), time_column="t")
    rows(60).write_parquet(tmp_path / "in.parquet")
    words = ["score", tmp_path / "in.parquet", "--engine", model, "-o", tmp_path / "out.parquet"]
    assert "column 't' is missing" in run_cli(*words).err
    assert run_cli(*words, "--no-time").code == 0
    assert pl.read_parquet(tmp_path / "out.parquet").columns == ["row", "score", "is_anomaly"]
