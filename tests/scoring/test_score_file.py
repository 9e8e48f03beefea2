"""score_file: what comes out, and that it is the same whatever the circumstances."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from at_infer import __version__, open_engine
from at_infer.engines.ort import OnnxEngine
from at_infer.errors import AtInferError, DataError, EngineError, OutputError
from at_infer.scoring.windows import ALIGNMENT
from at_infer.tables import row_stream as stream_module
from tests.checkpoints import PLAIN, WINDOW, checkpoint
from tests.scored import Score, by_hand, files, rows, values, windows
from training.window_scores import window_parts, window_scores

# What comes out


def test_there_is_one_row_per_input_row_in_the_same_order(score: Score) -> None:
    found = score(rows(205))
    assert found.frame.schema == {"row": pl.Int64, "score": pl.Float32, "is_anomaly": pl.Boolean}
    assert found.frame["row"].to_list() == list(range(205))
    assert found.frame.null_count().sum_horizontal().item() == 0


@pytest.mark.parametrize("mode", ["reconstruction", "centred", "calibrated", "paper", "discrepancy", "addition"])
def test_scores_are_those_of_a_plain_computation_in_pytorch(plain_score: Score, mode: Any) -> None:
    source, frame = checkpoint(score=PLAIN), rows(205)
    scaled = (torch.from_numpy(values(frame)) - torch.tensor(source.scaler.mean)) / torch.tensor(source.scaler.scale)
    starts = torch.tensor([*range(0, 200, WINDOW), 185])
    assert source.normal is not None
    parts = window_parts(source.network(), scaled, starts, source.discrepancy, source.normal, 4)
    config = replace(source.score, mode=mode)
    of_windows = window_scores(parts, config, source.discrepancy, source.normal, source.model.layers)
    expected = np.concatenate([of_windows[:-1].ravel(), of_windows[-1, -5:]])
    np.testing.assert_allclose(
        plain_score(frame, mode=mode, smooth=1, threshold=1.0).score, expected, rtol=1e-4, atol=1e-6
    )


def test_the_tail_is_scored_by_a_window_that_ends_with_it(plain_score: Score, plain_models: Path) -> None:
    frame = rows(2 * WINDOW + 7)
    tail = by_hand(plain_models, windows(frame, [WINDOW + 7]))[0]
    np.testing.assert_allclose(plain_score(frame).score[2 * WINDOW :], tail[-7:], atol=1e-6)


def test_overlapping_windows_are_averaged(plain_score: Score, plain_models: Path) -> None:
    frame = rows(75)
    starts = [*range(0, 75 - WINDOW, 7), 55]
    of_windows = by_hand(plain_models, windows(frame, starts))
    sums, counts = np.zeros(75), np.zeros(75)
    for start, one in zip(starts, of_windows, strict=True):
        sums[start : start + WINDOW] += one
        counts[start : start + WINDOW] += 1
    found = plain_score(frame, stride=7)
    np.testing.assert_allclose(found.score, sums / counts, atol=1e-6)
    assert found.summary.windows == len(starts)


def test_align_last_scores_a_row_by_the_window_that_ends_with_it(plain_score: Score, plain_models: Path) -> None:
    frame = rows(70, s=["a"] * 40 + ["b"] * 30)
    found = plain_score(frame, align="last", series_column="s")
    warm_up = WINDOW - 1
    assert found.unscored == [*range(warm_up), *range(40, 40 + warm_up)]
    assert found.frame["is_anomaly"].is_null().arg_true().to_list() == found.unscored
    starts = [*range(40 - warm_up), *range(40, 70 - warm_up)]
    expected = by_hand(plain_models, windows(frame, starts))[:, -1]
    np.testing.assert_allclose(found.frame["score"].drop_nulls().to_numpy(), expected, atol=1e-6)
    assert found.summary.unscored_rows == 2 * warm_up


@pytest.mark.slow
def test_the_file_tells_how_it_came_about(plain_score: Score, plain_models: Path) -> None:
    found = plain_score(rows(100), stride=5, threshold=0.5, smooth=3)
    told = {
        name.removeprefix("at_infer."): json.loads(text)
        for name, text in pl.read_parquet_metadata(found.path).items()
        if name.startswith("at_infer.")
    }
    with open_engine(plain_models / "model.onnx") as engine:
        assert told["engine"] == engine.describe()
        assert told["columns"] == engine.metadata.columns  # type: ignore[union-attr]
    assert told["version"] == __version__
    assert told["engine_file"] == "model.onnx"
    assert told["threshold"] == 0.5
    assert told["score"] == checkpoint(score=PLAIN).score.to_dict() | {"smooth": 3}
    assert "start every 5 rows" in told["alignment"]
    assert told["options"]["stride"] == 5
    again = plain_score(rows(100))
    assert json.loads(pl.read_parquet_metadata(again.path)["at_infer.alignment"]) == ALIGNMENT


def test_the_output_is_compressed_in_row_groups_and_nothing_else_is_left(
    score: Score, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    found = score(rows(100), output=tmp_path / "out" / "scores.parquet")
    assert files(tmp_path / "out") == {"scores.parquet"}
    assert found.path.read_bytes().count(b"PAR1") == 2


def test_the_summary_counts(score: Score) -> None:
    bad = rows(205, s=["a"] * 65 + ["b"] * 10 + ["c"] * 130)
    bad = bad.with_columns(f00=pl.when(pl.int_range(pl.len()) == 80).then(float("inf")).otherwise("f00"))
    found = score(bad, series_column="s", short_series="skip", on_bad_rows="null", threshold=0.0, batch_size=3)
    summary = found.summary
    assert (summary.rows, summary.series, summary.short_series, summary.resumed_rows) == (205, 3, 1, 0)
    assert (summary.windows, summary.bad_windows) == (4 + 7, 1)
    assert found.unscored == list(range(65, 95))
    assert (summary.unscored_rows, summary.anomalies, summary.segments) == (30, 175, 2)
    assert (summary.score_mode, summary.threshold, summary.batch_size) == (checkpoint().score.mode, 0.0, 3)
    assert summary.output == str(found.path)
    assert "ONNX Runtime" in summary.engine
    assert min(summary.seconds, summary.rows_per_s, summary.read_s, summary.engine_s, summary.write_s) > 0


@pytest.mark.parametrize("name", ["s", "^s.*$", "*", "sco re"])
def test_a_segment_ends_with_its_series(score: Score, name: str) -> None:
    frame = rows(120).with_columns(pl.Series(["a"] * 40 + ["b"] * 40 + ["c"] * 40).alias(name))
    assert score(frame, series_column=name, threshold=-1.0).summary.segments == 3
    assert score(frame, threshold=-1.0).summary.segments == 1


def test_a_row_without_a_score_ends_a_segment(score: Score) -> None:
    frame = rows(60).with_columns(f00=pl.when(pl.int_range(pl.len()) == 25).then(None).otherwise("f00"))
    found = score(frame, threshold=-1.0, on_bad_rows="null")
    assert (found.summary.anomalies, found.summary.segments) == (40, 2)


def test_progress_is_told(score: Score) -> None:
    told: list[tuple[int, int]] = []
    score(rows(3000), observe=lambda done, of: told.append((done, of)), batch_size=1)
    assert told == sorted(told)
    assert told[-1] == (3000, 3000)
    assert len(told) > 2


# The same whatever the circumstances


@pytest.mark.slow
def test_batches_chunks_and_threads_do_not_change_a_score(plain_score: Score, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = rows(1003, s=["a"] * 500 + ["b"] * 503)
    options = {"series_column": "s", "stride": 6, "smooth": 7, "threshold": 1.0, "explain": "all"}
    expected = plain_score(frame, **options)
    for cells, batch_size, threads in ((1 << 22, 1, 1), (50, 3, 2), (4000, 64, None), (404, 7, 1)):
        monkeypatch.setattr(stream_module, "CHUNK_CELLS", cells)
        found = plain_score(frame, **options, batch_size=batch_size, threads=threads)
        np.testing.assert_allclose(found.score, expected.score, rtol=0, atol=1e-6)
        assert found.summary.windows == expected.summary.windows


def failing(calls: int, error: Exception) -> Callable[..., dict[str, np.ndarray]]:
    """An engine that fails after so many calls."""
    real, left = OnnxEngine.run, [calls]

    def run(self: OnnxEngine, of_windows: np.ndarray) -> dict[str, np.ndarray]:
        left[0] -= 1
        if left[0] < 0:
            raise error
        return real(self, of_windows)

    return run


OUT_OF_MEMORY = EngineError("model.onnx: out of memory")


@pytest.mark.parametrize("options", [{}, {"stride": 6, "smooth": 7, "threshold": 1.0}, {"align": "last"}])
@pytest.mark.parametrize("calls", [1, 5])
@pytest.mark.slow
def test_a_failed_run_keeps_its_finished_rows_and_goes_on_to_the_same_file(
    plain_score: Score, tmp_path: Path, options: dict[str, Any], calls: int, small_parts: None, monkeypatch: Any
) -> None:
    options |= {"series_column": "s", "explain": "all", "batch_size": 3}
    frame = rows(1010, s=["a"] * 700 + ["b"] * 310)
    whole = plain_score(frame, **options, output=tmp_path / "whole.parquet")
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(OnnxEngine, "run", failing(calls, OUT_OF_MEMORY))
            with pytest.raises(
                EngineError, match=r"^rows \d+ to \d+: model.onnx: out of memory; \d+ rows are kept"
            ) as e:
                plain_score(tmp_path / "given.parquet", **options, resume=True)
    assert not (tmp_path / "scores.parquet").exists()
    kept = int(str(e.value).split("; ")[1].split()[0])
    found = plain_score(tmp_path / "given.parquet", **options, resume=True)
    assert found.frame.equals(whole.frame)
    assert found.summary.resumed_rows == kept
    for name in ("rows", "series", "windows", "anomalies", "segments", "unscored_rows"):
        assert getattr(found.summary, name) == getattr(whole.summary, name)
    assert not (tmp_path / ".scores.parquet.parts").exists()


def test_rows_that_are_final_are_kept_although_their_part_is_not_full(plain_score: Score, monkeypatch: Any) -> None:
    monkeypatch.setattr(OnnxEngine, "run", failing(2, OUT_OF_MEMORY))
    with pytest.raises(EngineError, match="; 160 rows are kept, the same run with `resume` continues from there"):
        plain_score(rows(1010), batch_size=4)


def test_a_run_that_stopped_at_a_bad_row_goes_on_once_such_rows_are_allowed(plain_score: Score, tmp_path: Path) -> None:
    frame = rows(460, s=["a"] * 400 + ["b"] * 10 + ["c"] * 50)
    frame = frame.with_columns(f00=pl.when(pl.int_range(pl.len()) == 450).then(None).otherwise("f00"))
    options = {"series_column": "s", "batch_size": 1}
    allowed = options | {"short_series": "skip", "on_bad_rows": "null"}
    whole = plain_score(frame, **allowed, output=tmp_path / "whole.parquet")
    given = tmp_path / "given.parquet"
    with pytest.raises(DataError, match=r"series 'b'.*; 400 rows are kept"):
        plain_score(given, **options)
    with pytest.raises(DataError, match=r"in row 450.*; 4\d\d rows are kept"):
        plain_score(given, **options, short_series="skip", resume=True)
    with pytest.raises(OutputError, match="the unfinished run had another engine, other options or other input"):
        plain_score(given, **options, short_series="pad", on_bad_rows="null", resume=True)
    found = plain_score(given, **allowed, resume=True)
    assert found.frame.equals(whole.frame)
    assert found.summary.bad_windows == whole.summary.bad_windows == 1


def test_an_error_before_the_first_score_leaves_nothing(score: Score, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        score(rows(5), output=tmp_path / "o.parquet")
    assert files(tmp_path) == {"given.parquet"}


def test_a_bug_keeps_the_finished_rows_too(
    plain_score: Score, tmp_path: Path, small_parts: None, monkeypatch: Any
) -> None:
    monkeypatch.setattr(OnnxEngine, "run", failing(3, ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        plain_score(rows(200), batch_size=1)
    monkeypatch.undo()
    assert plain_score(tmp_path / "given.parquet", batch_size=1, resume=True).summary.resumed_rows == 60


def test_an_output_folder_that_vanishes_is_one_clear_error(score: Score, tmp_path: Path, small_parts: None) -> None:
    for at in (100, 200):  # in the middle, and when all is scored
        (tmp_path / "out").mkdir()

        def vanish(done: int, _: int, at: int = at) -> None:
            if done >= at:
                shutil.rmtree(tmp_path / "out", ignore_errors=True)

        parts = re.escape(str(tmp_path / "out" / ".scores.parquet.parts"))
        with pytest.raises(AtInferError, match=rf"{parts}\S*: (could not be written|cannot be read)"):
            score(rows(200), output=tmp_path / "out" / "scores.parquet", observe=vanish, batch_size=1)
        assert not (tmp_path / "out").exists()


def test_rows_beyond_those_of_an_earlier_run_come_from_the_same_batches(score: Score, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnnxEngine, "run", failing(2, OUT_OF_MEMORY))
        with pytest.raises(EngineError):
            score(rows(500), batch_size=5)
    with pytest.raises(OutputError, match="the unfinished run had batch_size=5"):
        score(tmp_path / "given.parquet", resume=True, batch_size=4)
    assert score(tmp_path / "given.parquet", resume=True).summary.batch_size == 5
