"""A file with a daily cycle, from training to scores."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import StreamScorer
from at_infer.cluster.run import score_on_workers
from tests.in_process import Opener, read_splits

Cli = Callable[..., Any]

MINUTES = 15
TRAIN = ("--time-column", "ts", "--window", 20, "--max-steps", 25, "--threads", 1)


def days(count: int, seed: int, faults: tuple[int, ...] = ()) -> tuple[pl.DataFrame, np.ndarray]:
    """Two columns that follow the day and one that does not; a fault lifts the first to what other hours have."""
    rng = np.random.default_rng(seed)
    rows = count * 1440 // MINUTES
    angle = 2 * np.pi * np.arange(rows) * MINUTES / 1440
    values = np.column_stack([20 + 5 * np.sin(angle), 100 + 30 * np.maximum(0, np.cos(angle)), 0 * angle])
    values += rng.normal(scale=(0.5, 3, 1), size=values.shape)
    labels = np.zeros(rows, np.bool_)
    for first in faults:
        labels[first : first + 12] = True
    values[labels, 0] += 4
    start = datetime(2024, 2, 20 + seed)
    times = [start + timedelta(minutes=MINUTES * i) for i in range(rows)]
    return pl.DataFrame(values.astype(np.float32), schema=["a", "b", "c"]).with_columns(ts=pl.Series(times)), labels


def rank_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    known = ~np.isnan(scores)
    scores, labels = scores[known], labels[known]
    return float(np.mean(scores[labels][:, None] > scores[~labels][None]))


@pytest.mark.slow
def test_a_season_that_training_finds_is_used_by_all_and_finds_more(run_cli: Cli, tmp_path: Path) -> None:
    days(10, 0)[0].write_parquet(tmp_path / "train.parquet")
    frame, labels = days(8, 1, (150, 290, 437, 600, 700))
    frame.write_parquet(tmp_path / "test.parquet")
    found: dict[str, np.ndarray] = {}
    for season in ("auto", "none"):
        trained = run_cli(
            "train", tmp_path / "train.parquet", "-o", tmp_path / f"{season}.pt", *TRAIN, "--season", season
        )
        assert trained.code == 0, trained.err
        assert ("season: 24 h profile of 2 of 3 columns" in trained.err) == (season == "auto")
        folder = tmp_path / season
        real = tmp_path / "test.parquet"
        exported = run_cli("export", tmp_path / f"{season}.pt", "-o", folder, "--engine", "none", "--check-data", real)
        assert exported.code == 0, exported.err
        for align in ("window", "last"):
            output = tmp_path / f"{season}.{align}.parquet"
            answer = run_cli("score", real, "--engine", folder / "model.onnx", "-o", output, "--align", align)
            assert answer.code == 0, answer.err
            found[f"{season} {align}"] = pl.read_parquet(output)["score"].to_numpy()
    for align in ("window", "last"):
        assert rank_auc(found[f"auto {align}"], labels) > rank_auc(found[f"none {align}"], labels) + 0.02

    engine = tmp_path / "auto" / "model.onnx"
    score_on_workers(tmp_path / "test.parquet", engine, tmp_path / "apart", open_workers=Opener(2), split_rows=200)
    np.testing.assert_allclose(read_splits(tmp_path / "apart")["score"].to_numpy(), found["auto window"], rtol=1e-4)

    with StreamScorer(engine) as stream:
        texts = frame["ts"].dt.strftime("%Y-%m-%dT%H:%M:%SZ").to_list()
        live = stream.push_many(frame.select("a", "b", "c").to_numpy(), times=texts).score
    np.testing.assert_allclose(live, found["auto last"], rtol=1e-4)

    scored = tmp_path / "auto.window.parquet"
    report = run_cli(
        "report",
        scored,
        "--data",
        tmp_path / "test.parquet",
        "--engine",
        tmp_path / "auto" / "model.associations.onnx",
        "-o",
        tmp_path / "page.html",
    )
    assert report.code == 0, report.err
