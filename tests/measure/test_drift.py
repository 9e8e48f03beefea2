"""`at-infer drift`: what has left the validation range, since when, and what has not."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer.measure.drift import DriftOptions, find_drift
from at_infer.measure.drift_blocks import Blocks
from at_infer.scoring.options import InputOptions
from tests.checkpoints import SCALER
from tests.conftest import Answer
from tests.scored import Edit, Score, rows

RunCli = Callable[..., Answer]
COUNT, START = 12_000, 7_000
"""Rows of a file, and the row at which something changes; blocks have 1000 rows."""


def changed(feature: str, change: Callable[[np.ndarray], Any], frame: pl.DataFrame | None = None) -> pl.DataFrame:
    """Rows whose feature changes at row START."""
    frame = rows(COUNT, seed=1) if frame is None else frame
    values = frame[feature].to_numpy().copy()
    values[START:] = change(values[START:])
    return frame.with_columns(pl.Series(feature, values))


def without(feature: str) -> pl.DataFrame:
    late = pl.int_range(pl.len()) >= START
    return rows(COUNT).with_columns(pl.when(late).then(None).otherwise(pl.col(feature)).alias(feature))


@pytest.fixture
def drift(run_cli: RunCli, models: Path, tmp_path: Path) -> Callable[..., Any]:
    """Run the command on the rows of a frame; its JSON, after a look at the exit code."""

    def run(frame: pl.DataFrame, *options: object, model: Path = models / "model.onnx") -> Any:
        frame.write_parquet(tmp_path / "recent.parquet")
        answer = run_cli("drift", model, tmp_path / "recent.parquet", "--json", "--threads", 1, *options)
        if answer.code == 1:
            assert answer.err.count("\n") == 1, answer.err
            return answer.err
        document = json.loads(answer.out)
        assert answer.code == (3 if document["drift"] else 0), answer.err
        return document

    return run


def found(document: Any) -> dict[tuple[str | None, str], Any]:
    return {(one["feature"], one["kind"]): one for one in document["findings"]}


@pytest.mark.slow
def test_rows_like_those_of_the_training_have_not_drifted(drift: Any) -> None:
    for seed in range(3):
        document = drift(rows(COUNT, seed=seed))
        assert not document["drift"]
        assert (document["rows"], document["series"], document["block_rows"]) == (COUNT, 1, 1000)


def test_a_level_that_moves_is_found_with_its_start(drift: Any) -> None:
    findings = found(drift(changed("f01", lambda x: x + 5 * SCALER.scale[1])))
    level = findings["f01", "level"]
    assert (level["since_row"], level["blocks"]) == (START, 5)
    assert level["size"] == pytest.approx(5, abs=0.2)
    assert level["value"] == pytest.approx(SCALER.mean[1] + 5 * SCALER.scale[1], rel=0.1)
    assert level["normal"] == pytest.approx(SCALER.mean[1])
    assert {feature for feature, kind in findings if kind in ("level", "spread", "activity")} == {"f01"}


def test_a_spread_that_grows_is_found(drift: Any) -> None:
    findings = found(drift(changed("f02", lambda x: SCALER.mean[2] + 6 * (x - SCALER.mean[2]))))
    assert findings["f02", "spread"]["since_row"] == START
    assert findings["f02", "spread"]["size"] == pytest.approx(6, rel=0.1)
    assert findings["f02", "activity"]["size"] == pytest.approx(6, rel=0.2)
    assert findings[None, "flagged"]["value"] > 0.5
    assert {feature for feature, kind in findings if kind != "error"} == {"f02", None}


def test_a_stuck_sensor_is_found_though_its_value_is_normal(drift: Any) -> None:
    findings = found(drift(changed("f00", lambda x: np.full_like(x, SCALER.mean[0]))))
    assert findings["f00", "activity"]["since_row"] == START
    assert findings["f00", "activity"]["size"] < 0.1
    assert ("f00", "level") not in findings


@pytest.mark.parametrize("fill", ["error", "forward"])
def test_a_sensor_without_values_is_missing_and_nothing_else(drift: Any, edited: Edit, fill: str) -> None:
    findings = found(drift(without("f00"), model=edited(fill=fill)))
    assert findings["f00", "missing"]["since_row"] == START
    assert findings["f00", "missing"]["value"] == 1
    assert ("f00", "activity") not in findings


def test_a_few_gaps_and_infinite_values_are_no_drift(drift: Any) -> None:
    frame = rows(COUNT, seed=1)
    values = frame["f00"].to_numpy().copy()
    values[::997], values[5] = np.nan, np.inf
    assert not drift(frame.with_columns(f00=pl.Series(values)))["drift"]


def test_what_has_come_back_is_an_incident(drift: Any) -> None:
    def there_and_back(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x[:2000] + 50, x[2000:]])

    assert not drift(changed("f00", there_and_back))["drift"]


def test_a_feature_that_was_constant_may_not_move(drift: Any, edited: Edit, models: Path) -> None:
    from at_infer.thresholds.recorded import read_model_metadata

    known = read_model_metadata(models / "model.onnx").to_dict()
    for scale in ("whole", "live"):
        known["normal"]["views"][scale]["centre"]["activity next"][0] = float(np.log(1e-4))
    model = edited(normal=known["normal"])
    constant = rows(COUNT).with_columns(f00=pl.lit(SCALER.mean[0], pl.Float32))
    assert ("f00", "level") not in found(drift(constant, model=model))
    level = found(drift(changed("f00", lambda x: x + 0.1, constant), model=model))["f00", "level"]
    assert level["constant"]
    assert (level["since_row"], level["value"]) == (START, pytest.approx(SCALER.mean[0] + 0.1))


def test_the_limit_is_an_option(drift: Any) -> None:
    frame = changed("f01", lambda x: x + 2 * SCALER.scale[1])
    assert ("f01", "level") not in found(drift(frame))
    assert ("f01", "level") in found(drift(frame, "--limit", 1.5))
    assert "--limit: 1 is not a number above 1" in drift(frame, "--limit", 1)


# Time and series


def test_the_start_is_told_as_a_time(drift: Any, run_cli: RunCli, models: Path, tmp_path: Path) -> None:
    begin = datetime(2024, 3, 1)
    times = [begin + timedelta(minutes=i) for i in range(COUNT)]
    frame = changed("f01", lambda x: x + 5).with_columns(time=pl.Series(times))
    level = found(drift(frame, "--time-column", "time"))["f01", "level"]
    assert level["since_time"] == (begin + timedelta(minutes=START)).isoformat()
    said = run_cli("drift", models / "model.onnx", tmp_path / "recent.parquet", "--time-column", "time")
    assert said.code == 3
    assert f"since {level['since_time']} (row {START})" in said.out
    assert said.out.endswith("at-infer train new.parquet --from ckpt.pt\n")


def test_each_series_is_compared_by_itself(drift: Any) -> None:
    parts = [rows(5000), changed("f01", lambda x: x + 5).tail(6000), rows(300), rows(5000, seed=2)]
    frame = pl.concat([part.with_columns(name=pl.lit(f"s{i}")) for i, part in enumerate(parts)])
    document = drift(frame, "--series-column", "name")
    assert (document["series"], document["short_series"]) == (4, 1)
    assert {one["series"] for one in document["findings"]} == {"s1"}
    assert found(document)["f01", "level"]["since_row"] - 5000 - (START - 6000) < document["block_rows"]
    assert any("1 of 4 series have fewer than 2 blocks" in note for note in document["notes"])


def test_a_short_file_has_shorter_blocks_and_one_that_is_too_short_is_refused(drift: Any) -> None:
    assert drift(rows(400))["block_rows"] == 100
    late = rows(400).with_columns(f00=pl.col("f00") + pl.when(pl.int_range(pl.len()) >= 200).then(9).otherwise(0))
    assert found(drift(late))["f00", "level"]["since_row"] == 200
    assert "has at most 25 rows in a series, too few for 2 blocks of 20" in drift(rows(25))
    assert "or a smaller --block-rows" in drift(rows(400), "--block-rows", 300)


# Scores of a file


def test_scores_of_a_file_are_as_good_as_those_formed_here(drift: Any, score: Score) -> None:
    frame = changed("f02", lambda x: SCALER.mean[2] + 6 * (x - SCALER.mean[2]))
    scored = score(frame)
    own, written = drift(frame), drift(frame, "--scores", scored.path)
    assert any("errors of features" in note for note in written["notes"])
    without_errors = [one for one in own["findings"] if one["kind"] != "error"]
    assert [one["kind"] for one in written["findings"]] == [one["kind"] for one in without_errors]
    for a, b in zip(written["findings"], without_errors, strict=True):
        assert a["value"] == pytest.approx(b["value"], rel=1e-4)


def test_live_scores_are_compared_with_live_statistics(drift: Any, score: Score) -> None:
    frame = rows(4000, seed=3)
    scored = score(frame, align="last")
    assert not drift(frame, "--scores", scored.path)["drift"]


def test_scores_of_other_rows_or_another_model_are_refused(drift: Any, score: Score, edited: Edit) -> None:
    frame = rows(COUNT)
    other = score(rows(400)).path
    assert "has 400 rows" in drift(frame, "--scores", other)
    assert "has scores of another model" in drift(
        rows(400), "--scores", other, model=edited(checkpoint_sha256="f" * 64)
    )


# What models lack


def test_other_score_modes_and_older_models_do(drift: Any, edited: Edit) -> None:
    frame = changed("f01", lambda x: x + 5)
    old = edited(normal={"views": None}, score={"mode": "reconstruction"})
    document = drift(frame, model=old)
    assert ("f01", "level") in found(document)
    assert ("f01", "error") in found(document)
    assert any("stuck sensors are not found" in note for note in document["notes"])


def test_bad_input_is_one_line(drift: Any, tmp_path: Path) -> None:
    assert "column 'f01' is missing" in drift(rows(400).drop("f01"))
    assert "no such file" in drift(rows(400), "--scores", tmp_path / "nothing.parquet")
    assert "--block-rows: 5 is too small" in drift(rows(400), "--block-rows", 5)
    assert "excludes" in drift(rows(400), "--one-series", "--series-per-file")


@pytest.mark.slow
def test_the_size_of_chunks_does_not_matter(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "recent.parquet"
    changed("f01", lambda x: x + 5).write_parquet(path)
    whole = find_drift(models / "model.onnx", path, DriftOptions(block_rows=700), InputOptions())
    monkeypatch.setattr("at_infer.tables.row_stream.CHUNK_CELLS", 333)
    monkeypatch.setattr("at_infer.measure.drift.STEP_ROWS", 50)
    assert find_drift(models / "model.onnx", path, DriftOptions(block_rows=700)) == whole


def test_what_is_left_over_is_a_block_if_it_is_half_as_long() -> None:
    for count, blocks in ((24, 2), (25, 3), (30, 3)):
        cut = Blocks(10, lambda part: part.mean(axis=0))
        for row in np.arange(count, dtype=np.float32):
            cut.add(np.array([[row]], np.float32))
        assert len(cut.end()) == blocks
