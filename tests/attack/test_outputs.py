"""Outputs: what a command may replace, and what is planted beside them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from tests.scored import Score, rows


def test_scores_never_replace_a_pipe_the_model_or_its_sidecar(
    models: Path, tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    model, data, pipe = tmp_path / "model.onnx", tmp_path / "data.parquet", tmp_path / "pipe"
    model.write_bytes((models / "model.onnx").read_bytes())
    rows(60).write_parquet(data)
    os.mkfifo(pipe)
    for output in (pipe, model, data):
        answer = run_cli("score", data, "--engine", model, "-o", output, "--overwrite")
        assert answer.code == 1
        assert "choose another output" in answer.err
    assert pipe.is_fifo()
    assert model.read_bytes() == (models / "model.onnx").read_bytes()
    assert pl.read_parquet(data).height == 60


def test_a_state_of_watch_never_replaces_the_model(models: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes((models / "model.onnx").read_bytes())
    answer = run_cli("watch", "--engine", model, "--state", model, "--no-time")
    assert answer.code == 1
    assert "is also the input" in answer.err


def test_a_checkpoint_never_replaces_the_data(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    data = tmp_path / "data.parquet"
    rows(60).write_parquet(data)
    answer = run_cli("train", data, "-o", data, "--overwrite")
    assert answer.code == 1
    assert "is also the input" in answer.err
    assert pl.read_parquet(data).height == 60


def test_scores_keep_the_mode_of_what_they_replace(score: Score, tmp_path: Path) -> None:
    (tmp_path / "scores.parquet").touch(mode=0o600)
    score(rows(60))
    assert (tmp_path / "scores.parquet").stat().st_mode & 0o777 == 0o600
