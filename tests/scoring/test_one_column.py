"""A model of a single column, as training makes it: its patterns count alike in files, pieces, tables and streams."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import Detector, ScoreOptions, Scorer, StreamScorer, score_file
from at_infer.cluster.run import score_on_workers
from at_infer.engines import open_engine
from at_infer.models.criterion import view_statistics
from tests.in_process import Opener, read_splits
from tests.once import Once

pytestmark = pytest.mark.slow

FAULT = slice(520, 580)


def rows(count: int, seed: int) -> np.ndarray:
    t = np.arange(count)
    noise = 0.1 * np.random.default_rng(seed).normal(size=count)
    return (np.sin(t / 8) + 0.4 * np.sin(t / 3) + noise).astype(np.float32)


@pytest.fixture(scope="module")
def model(once: Once) -> Path:
    def make(folder: Path) -> None:
        detector = Detector(window=20, width=8, heads=2, layers=1, max_steps=6, device="cpu")
        detector.fit(pl.DataFrame({"v": rows(1500, seed=0)})).export(folder, engine="none")

    return once("one_column", make) / "model.onnx"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One stretch runs backwards."""
    values = rows(900, seed=1)
    values[FAULT] = values[FAULT][::-1]
    pl.DataFrame({"v": values}).write_parquet(tmp_path / "data.parquet")
    return tmp_path / "data.parquet"


@pytest.mark.parametrize("align", ["window", "last"])
def test_files_tables_and_streams_have_the_same_scores(model: Path, data: Path, tmp_path: Path, align: Any) -> None:
    with open_engine(model) as engine:
        assert engine.metadata is not None
        assert view_statistics(engine.metadata).patterns
    options = ScoreOptions(align=align)
    score_file(data, model, tmp_path / "scores.parquet", options)
    expected = pl.read_parquet(tmp_path / "scores.parquet")["score"].fill_null(np.nan).to_numpy()
    with Scorer(model, options) as scorer:
        np.testing.assert_array_equal(scorer.score(pl.read_parquet(data)).score, expected)
    if align == "last":
        values = pl.read_parquet(data).to_numpy()
        state = tmp_path / "state"
        with StreamScorer(model) as stream:
            found = [
                stream.push_many(values[:400]).score,
                *(stream.push_many(row[None]).score for row in values[400:450]),
            ]
            stream.save(state)
        with StreamScorer(model) as stream:
            stream.load(state)
            found += [stream.push_many(values[i : i + 7]).score for i in range(450, 900, 7)]
        np.testing.assert_array_equal(np.concatenate(found), expected)


def test_a_stretch_that_never_looked_like_this_is_found(model: Path, data: Path, tmp_path: Path) -> None:
    score_file(data, model, tmp_path / "scores.parquet")
    score = pl.read_parquet(tmp_path / "scores.parquet")["score"].to_numpy()
    assert score[FAULT].mean() > 1.5 * np.median(score)
    assert FAULT.start - 75 < score.argmax() < FAULT.stop + 75


@pytest.mark.parametrize("align", ["window", "last"])
def test_splits_have_the_same_scores(model: Path, data: Path, tmp_path: Path, align: Any) -> None:
    options = ScoreOptions(align=align)
    score_file(data, model, tmp_path / "scores.parquet", options)
    score_on_workers(data, model, tmp_path / "apart", options, open_workers=Opener(), split_rows=200)
    expected = pl.read_parquet(tmp_path / "scores.parquet")
    assert read_splits(tmp_path / "apart").equals(expected, null_equal=True)
