"""Training, scoring and export from Python, and the conventions of scikit-learn."""

import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from at_infer import Detector, ScoreOptions, Scorer, score_file
from at_infer.errors import AtInferError, ConfigError, DataError, OutputError
from at_infer.installed import install_extra
from tests.conftest import Answer

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {"window": 10, "width": 8, "heads": 2, "layers": 1, "max_steps": 6, "device": "cpu"}


def pumps(rows: int = 200) -> pl.DataFrame:
    """Two machines with two features, a time and a label."""
    rng = np.random.default_rng(0)
    t = np.arange(rows)
    times = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=int(i)) for i in t]
    parts = [
        pl.DataFrame(
            {
                "machine": [name] * rows,
                "ts": times,
                "flow": np.sin(t / 4) + rng.normal(scale=0.1, size=rows),
                "heat": 5 + 2 * np.cos(t / 6) + rng.normal(scale=0.1, size=rows),
            }
        )
        for name in ("a", "b")
    ]
    return pl.concat(parts)


@pytest.fixture(scope="module")
def fitted() -> Detector:
    return Detector(**SMALL).fit(pumps(), time="ts", series="machine")


@pytest.fixture(scope="module")
def array_fitted() -> Detector:
    return Detector(**SMALL).fit(pumps().select("flow", "heat").to_numpy())


def test_a_detector_is_trained_as_by_the_command(fitted: Detector, run_cli: Any, tmp_path: Path) -> None:
    pumps().write_parquet(tmp_path / "data.parquet")
    words = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", value)]
    data, keys = tmp_path / "data.parquet", ("--time-column", "ts", "--series-column", "machine")
    answer: Answer = run_cli("train", data, "-o", tmp_path / "ckpt.pt", *keys, *words)
    assert answer.code == 0, answer.err
    fitted.save(tmp_path / "own.pt")
    theirs, own = (torch.load(tmp_path / name, weights_only=True) for name in ("ckpt.pt", "own.pt"))
    assert own["columns"] == theirs["columns"] == ["flow", "heat"]
    assert (own["time_column"], own["series_column"]) == ("ts", "machine")
    for name, tensor in theirs["state_dict"].items():
        torch.testing.assert_close(own["state_dict"][name], tensor)
    assert own["validation"] == theirs["validation"]


def test_a_detector_scores_and_exports_what_scores_alike(fitted: Detector, tmp_path: Path) -> None:
    frame = pumps().with_columns(flow=pl.when(pl.col("ts").dt.second() == 30).then(99.0).otherwise("flow"))
    result = fitted.score(frame.select(reversed(frame.columns)))
    assert result.table.columns[4:7] == ["score", "is_anomaly", "top_feature"]
    assert result.incidents[0].causes[0].feature == "flow"
    files = fitted.export(tmp_path / "out", engine="none")
    assert [file.name for file in files] == ["model.onnx", "model.associations.onnx"]
    frame.write_parquet(tmp_path / "data.parquet")
    score_file(tmp_path / "data.parquet", files[0], tmp_path / "scores.parquet")
    written = pl.read_parquet(tmp_path / "scores.parquet")
    np.testing.assert_array_equal(result.score, written["score"])
    with Scorer(files[0]) as scorer:
        again = scorer.score(frame)
        np.testing.assert_array_equal(again.score, result.score)
        assert again.incidents == result.incidents  # with their causes, without being asked
    with Scorer(files[0], ScoreOptions(explain="none")) as scorer:
        plain = scorer.score(frame)
        assert list(plain.columns) == ["score", "is_anomaly"]
        assert plain.incidents[0].causes == ()
    with pytest.raises(OutputError, match="overwrite=True"):
        fitted.export(tmp_path / "out", engine="none")


def test_a_detector_survives_its_process(fitted: Detector, tmp_path: Path) -> None:
    expected = fitted.score(pumps()).score
    again: Detector = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.score(pumps()).score, expected)
    fitted.save(tmp_path / "ckpt.pt")
    loaded = Detector.load(tmp_path / "ckpt.pt")
    np.testing.assert_array_equal(loaded.score(pumps()).score, expected)
    with pytest.raises(OutputError, match="exists already; pass overwrite=True"):
        fitted.save(tmp_path / "ckpt.pt")


def test_a_pickled_detector_scores_without_torch(fitted: Detector, tmp_path: Path) -> None:
    (tmp_path / "detector.pkl").write_bytes(pickle.dumps(fitted))
    pumps().write_parquet(tmp_path / "data.parquet")
    program = """
import pickle, sys
for name in ("torch", "onnx", "training", "export"): sys.modules[name] = None
import polars, at_infer
detector = pickle.load(open("detector.pkl", "rb"))
print(detector.score(polars.read_parquet("data.parquet")))
try:
    at_infer.Detector().fit([[1.0]])
except at_infer.AtInferError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        repr(fitted.score(pumps())),
        f"detector: needs onnx, which is not installed; {install_extra('export')}",
    ], done.stderr


def test_the_conventions_of_scikit_learn_hold(array_fitted: Detector) -> None:
    rows = pumps().select("flow", "heat").to_numpy().copy()
    rows[105] = 50
    score = array_fitted.score(rows).score
    np.testing.assert_array_equal(array_fitted.score_samples(rows), -score)
    decision = array_fitted.decision_function(rows)
    np.testing.assert_array_equal(decision, array_fitted.score_samples(rows) - array_fitted.offset_)
    np.testing.assert_array_equal(decision < 0, array_fitted.predict(rows) == -1)
    verdict = array_fitted.predict(rows)
    assert set(verdict) == {-1, 1}
    assert verdict[105] == -1
    np.testing.assert_array_equal(verdict == -1, score > np.float32(array_fitted.threshold_))
    assert array_fitted.feature_names_in_.tolist() == ["x0", "x1"]
    assert array_fitted.n_features_in_ == 2


def test_parameters_are_told_and_set_by_name() -> None:
    detector = Detector(window=20)
    assert repr(detector) == "Detector(window=20)"
    assert detector.set_params(window=30, seed=1) is detector
    assert (detector.get_params()["window"], detector.get_params()["seed"]) == (30, 1)
    with pytest.raises(ConfigError, match="detector: has no parameter windows; there are preset, window"):
        detector.set_params(windows=3)


def test_errors_of_training_speak_of_parameters(fitted: Detector) -> None:
    with pytest.raises(AtInferError, match="detector: is not fitted; call fit"):
        Detector().score(pumps())
    assert not hasattr(Detector(), "n_features_in_")
    cases: list[tuple[dict[str, Any], pl.DataFrame | list[float], str]] = [
        ({}, pumps().drop("flow", "heat").with_columns(n=pl.lit("x")), "table: has no numeric column"),
        ({}, pumps(5), "table: the longest training part has 4 rows, .* or a smaller `window`"),
        ({}, pumps().with_columns(heat=pl.lit(None, pl.Float64)), "table: column 'heat' has no value at all"),
        ({"columns": ["flow", "cold"]}, pumps(), "table: column 'cold' is missing"),
        ({"preset": "huge"}, pumps(), "`preset`: 'huge' is not one of default, paper"),
        ({"score_mode": "fusion", "smooth": 3}, pumps(), "^smooth: mode fusion smooths"),
        ({"score_mode": "best"}, pumps(), "^score_mode: 'best' is not one of fusion"),
        ({}, [1.0, 2.0], r"table: has shape \[2\]; give rows and columns"),
    ]
    for more, rows, says in cases:
        with pytest.raises((DataError, ConfigError), match=says) as caught:
            Detector(**SMALL, **more).fit(rows, time="ts" if isinstance(rows, pl.DataFrame) else None, series="machine")
        assert "--" not in str(caught.value)
    with pytest.raises(ConfigError, match="export: there is no parameter precission; there are name, precision"):
        fitted.export("out", precission="fp16")
