"""A real `at-infer watch` that puts rows on a grid: the lines are the rows of `score` on the same grid."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import ScoreOptions, StreamScorer
from at_infer.errors import DataError
from at_infer.live.grid import LiveGrid
from at_infer.live.rows import Row
from at_infer.live.tally import Tally
from at_infer.models.spacing import Grid
from at_infer.tables.resample import OnGrid, Resampler
from tests.first_column import FirstColumn
from tests.live.test_watch_clock import watched
from tests.scored import COLUMNS, Edit, Score
from tests.scoring.test_interval import MINUTE, irregular

pytestmark = pytest.mark.slow


def as_lines(frame: pl.DataFrame, **more: Any) -> list[str]:
    return [
        json.dumps({name: row[name] for name in COLUMNS} | {"t": row["t"].isoformat(" ")} | more)
        for row in frame.iter_rows(named=True)
    ]


def test_watch_scores_the_steps_of_a_file_through_restarts(score: Score, edited: Edit, tmp_path: Path) -> None:
    model, frame = edited(**MINUTE), irregular()[:900]
    expected = score(frame, engine=model, align="last", batch_size=1)
    assert expected.summary.gaps == 0
    lines = as_lines(frame)
    parts = [lines[:333], lines[333:340], lines[340:]]
    found = []
    for part in parts:
        answers, said = watched(model, part, "--state", tmp_path / "state")
        assert "0 bad lines" in said
        assert "rows are put on a grid of 1m (mean) as in training" in said
        found += answers
    *steps, last = expected.frame.iter_rows(named=True)  # with a state, the last step waits for rows
    assert [one["t"] for one in found] == [step["t"].isoformat() for step in steps]
    scores = np.array([np.nan if one["score"] is None else one["score"] for one in found], np.float32)
    np.testing.assert_array_equal(scores, expected.score[:-1])
    whole, _ = watched(model, lines)
    assert [one["t"] for one in whole[-2:]] == [steps[-1]["t"].isoformat(), last["t"].isoformat()]
    assert whole[-1]["score"] == pytest.approx(last["score"])


def test_an_interval_is_asked_for_and_bad_times_are_named_or_dropped(score: Score, edited: Edit) -> None:
    model, frame = edited(**MINUTE | {"grid": None}), irregular()[:400]
    expected = score(frame, engine=model, align="last", interval="2m", resample="last", batch_size=1)
    lines = as_lines(frame)
    lines.insert(100, lines[50])
    words = ["--interval", "2m", "--resample", "last"]
    found, said = watched(model, lines, *words)
    assert "stdin: line 101: time '2024-01-01 00:" in said
    assert "1 bad line;" in said
    assert [one["t"] for one in found] == [time.isoformat() for time in expected.frame["t"]]
    again, said = watched(model, lines, *words, "--on-bad-time", "drop")
    assert again == found
    assert "0 bad lines, 1 row dropped whose time does not increase" in said
    _, said = watched(model, [json.dumps(json.loads(lines[0]) | {"t": 5})], *words)
    assert "line 1: time 5 is not a date and time, which resampling to a grid needs; the line is skipped" in said


def test_what_a_step_holds_is_kept_to_the_last_bit() -> None:
    how = OnGrid(grid=Grid(interval_s=60.0), max_gap=3, carry=False)
    one = Resampler(how, 2)
    list(one.add(np.array([0.0, 61.0, 62.0]), np.array([[1, np.nan], [0.1, 2], [0.7, np.inf]], np.float32)))
    other = Resampler(how, 2)
    other.recall(json.loads(json.dumps(one.remember())))
    rows = np.array([[0.3, 1.0]], np.float32)
    for mine, theirs in zip(one.add(np.array([200.0]), rows), other.add(np.array([200.0]), rows), strict=True):
        np.testing.assert_array_equal(mine.values, theirs.values)
        assert mine.microseconds.tolist() == theirs.microseconds.tolist()


def test_times_at_the_ends_of_all_dates_are_bad_lines() -> None:
    """The step of such a time begins, or is told in UTC, where there is no date: an OverflowError ended the process."""
    grid = LiveGrid(StreamScorer(FirstColumn(), ScoreOptions(interval="1m"), on_grid=True), Tally())
    for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"):
        with pytest.raises(DataError, match="is not between the years 3 and 9997"):
            grid.add(Row([0.0] * 3, "a", time))
    assert grid.end() == []
