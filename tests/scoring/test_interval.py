"""Rows that are put on a grid before they are scored: the scores are those of rows that lie on it."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import ScoreOptions, StreamScorer, score_file
from at_infer.cluster.run import score_on_workers
from at_infer.errors import ConfigError, EngineError
from at_infer.models.spacing import Grid, Spacing
from at_infer.scoring.scorer import Scorer as FileScorer
from at_infer.tables import read_metadata
from tests.conftest import Answer
from tests.scored import COLUMNS, Edit, Score, rows

START = datetime(2024, 1, 1)
MINUTE: dict[str, Any] = {
    "spacing": Spacing(step=60.0, clock="date").to_dict(),
    "grid": Grid(interval_s=60.0).to_dict(),
    "time_column": "t",
}


def irregular(seed: int = 0) -> pl.DataFrame:
    """Some rows a minute; minutes 50 and 51 are empty, and minutes 200 to 209."""
    random = np.random.default_rng(seed)
    seconds = np.unique(np.sort(random.integers(0, 400 * 60, 2000)))
    minute = seconds // 60
    seconds = seconds[~np.isin(minute, [50, 51, *range(200, 210)])]
    return rows(len(seconds), t=[START + timedelta(seconds=int(second)) for second in seconds])


def on_grid(frame: pl.DataFrame) -> pl.DataFrame:
    """Means of the minutes there are, by polars; an empty one in between repeats the one before it."""
    means = frame.group_by_dynamic("t", every="1m").agg(pl.col(COLUMNS).cast(pl.Float64).mean().cast(pl.Float32))
    filled = means.upsample("t", every="1m").fill_null(strategy="forward")
    empty = pl.col("t").is_between(START + timedelta(minutes=200), START + timedelta(minutes=209))
    return filled.filter(~empty).select(*COLUMNS, "t")


@pytest.mark.slow
def test_scores_of_a_grid_are_those_of_rows_that_lie_on_it(score: Score, edited: Edit, small_parts: None) -> None:
    model, frame = edited(**MINUTE), irregular()
    expected = score(on_grid(frame), engine=model, interval="none", batch_size=1)
    found = score(frame, engine=model, batch_size=1)
    assert found.frame.equals(expected.frame)
    assert found.frame.height == 390
    assert (found.summary.rows, found.summary.input_rows, found.summary.interval_s) == (390, frame.height, 60.0)
    assert found.summary.gaps == expected.summary.gaps == 1
    assert expected.summary.interval_s is None
    assert read_metadata(found.path).properties["at_infer.grid"] == '{"interval_s": 60.0, "resample": "mean"}'


@pytest.mark.slow
def test_an_interval_is_asked_for_and_gaps_then_count_its_steps(score: Score, edited: Edit) -> None:
    of_seconds = edited(spacing=Spacing(step=1.0, clock="date").to_dict(), time_column="t")
    frame = irregular()
    found = score(frame, engine=of_seconds, interval="1m", batch_size=1)
    assert found.summary.gaps == 1
    assert found.frame.equals(score(on_grid(frame), engine=edited(**MINUTE), interval="none", batch_size=1).frame)
    last = score(frame, engine=of_seconds, interval="1m", resample="last", batch_size=1)
    assert last.frame["t"].equals(found.frame["t"])
    assert not last.frame["score"].equals(found.frame["score"])
    wide = score(frame, engine=of_seconds, interval="1m", max_gap=11, batch_size=1)
    assert (wide.summary.gaps, wide.summary.rows) == (0, 400)


@pytest.mark.slow
def test_a_run_on_a_grid_that_stopped_goes_on_with_the_same_scores(
    score: Score, edited: Edit, small_parts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"engine": edited(**MINUTE), "batch_size": 1}
    whole = score(irregular(), **options)
    run, calls = FileScorer.score_windows, iter(range(1000))

    def fail(scorer: FileScorer, windows: np.ndarray) -> np.ndarray:
        if next(calls) == 12:
            raise EngineError("gone")
        return run(scorer, windows)

    again = {"output": tmp_path / "again.parquet", "overwrite": False, **options}
    with monkeypatch.context() as patch:
        patch.setattr(FileScorer, "score_windows", fail)
        with pytest.raises(EngineError, match="are kept"):
            score(tmp_path / "given.parquet", **again)
    found = score(tmp_path / "given.parquet", resume=True, **again)
    assert found.summary.resumed_rows > 0
    assert found.frame.equals(whole.frame)


def test_an_empty_step_is_filled_by_the_policy_of_the_model(plain_score: Score, plain_edited: Edit) -> None:
    frame = irregular()
    by_mean = plain_score(frame, engine=plain_edited(**MINUTE, fill="mean"), batch_size=1)
    forward = plain_score(frame, engine=plain_edited(**MINUTE, fill="forward"), batch_size=1)
    repeated = plain_score(frame, engine=plain_edited(**MINUTE), batch_size=1)
    assert forward.frame.equals(repeated.frame)
    assert by_mean.frame["t"].equals(repeated.frame["t"])
    assert not by_mean.frame["score"].equals(repeated.frame["score"])


def test_the_command_says_that_the_output_has_other_rows(edited: Edit, run_cli: Any, tmp_path: Path) -> None:
    irregular().write_parquet(tmp_path / "x.parquet")
    words = ["score", tmp_path / "x.parquet", "--engine", edited(**MINUTE), "-o", tmp_path / "y.parquet"]
    answer: Answer = run_cli(*words)
    assert "note: rows are put on a grid of 1m (mean) as in training, the output has one row per step" in answer.err
    assert "input rows, put on a grid: one row every 60 s" in answer.out
    answer = run_cli(*words, "--overwrite", "--interval", "2m")
    assert (
        "grid of 2m (mean), the model was trained on rows on a grid of 1m (mean): its threshold may not" in answer.err
    )
    answer = run_cli(*words, "--overwrite", "--interval", "60")
    assert (answer.code, answer.err) == (1, "error: --interval: '60' is not a time like 30s, 5m or 1h\n")


def test_what_cannot_put_rows_on_a_grid_says_so(score: Score, edited: Edit, tmp_path: Path) -> None:
    model, frame = edited(**MINUTE), irregular()
    with pytest.raises(ConfigError, match=r"interval: rows of a stream are not resampled \(1m \(mean\)\)"):
        StreamScorer(model)
    StreamScorer(model, ScoreOptions(interval="none")).close()
    with pytest.raises(ConfigError, match="interval: a cluster cannot resample rows to a grid"):
        score_on_workers(tmp_path, model, tmp_path / "scores", open_workers=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="interval: rows without a time cannot be resampled to a grid"):
        score(frame, engine=model, no_time=True)
    with pytest.raises(ConfigError, match="max_gap: rows on a grid need a limit"):
        score(frame, engine=model, max_gap=0)
    with pytest.raises(ConfigError, match="resample: "):
        score_file(tmp_path, edited(), tmp_path / "y.parquet", ScoreOptions(resample="last"))
