"""A program of somebody else that uses every public name; mypy checks it, nobody runs it."""

from pathlib import Path
from typing import assert_type

import numpy as np
import polars as pl
from numpy.typing import NDArray

import at_infer
from at_infer import (
    AtInferError,
    Detector,
    EngineOptions,
    Incident,
    IncidentOptions,
    InputOptions,
    Plot,
    Result,
    ScoreOptions,
    Scorer,
    StreamScorer,
    Summary,
    open_engine,
    score_file,
)


def use_a_detector(frame: pl.DataFrame, rows: NDArray[np.float64]) -> None:
    """Train, score and write."""
    detector = Detector(window=20, options=ScoreOptions(explain="top", incidents=IncidentOptions(min_rows=3)))
    assert_type(detector.fit(frame, time="ts", series="machine", from_="ckpt.pt"), Detector)
    assert_type(detector.fit(rows).score(rows), Result)
    assert_type(detector.score_samples(frame), NDArray[np.float64])
    assert_type(detector.decision_function(frame), NDArray[np.float64])
    assert_type(detector.predict(frame), NDArray[np.int64])
    assert_type(detector.fit_predict(frame), NDArray[np.int64])
    assert_type(detector.threshold_, float)
    assert_type(detector.offset_, float)
    assert_type(detector.n_features_in_, int)
    assert_type(detector.scorer, Scorer)
    detector.save("ckpt.pt", overwrite=True)
    assert_type(Detector.load("ckpt.pt"), Detector)
    assert_type(detector.export("out", engine="none"), list[Path])


def use_a_scorer(frame: pl.DataFrame, rows: list[list[float]]) -> None:
    """Score tables and arrays."""
    with Scorer("model.onnx", ScoreOptions(ratio=0.01), EngineOptions(threads=1), verbose=True) as scorer:
        result = scorer.score(frame)
        assert_type(scorer.score(rows), Result)
        for part in scorer.stream(frame.iter_slices(10)):
            assert_type(part, Result)
        assert_type(scorer.threshold, float)
        assert_type(scorer.metadata.columns, list[str])
    score, is_anomaly = result
    assert_type(score, NDArray[np.float32])
    assert_type(is_anomaly, NDArray[np.bool_])
    assert_type(result.threshold, float)
    assert_type(result.incidents, list[Incident])
    plot = result.plot(width=300)
    assert_type(plot, Plot)
    assert_type(plot.svg, str)
    plot.save("plot.svg")
    for incident in result.incidents:
        assert_type(incident.series, str)
        assert_type(incident.rows, int)
        assert_type(incident.peak_score, float)
        assert_type(incident.duration_s, float | None)
        assert_type([cause.feature for cause in incident.causes], list[str])


def use_files() -> None:
    """Score files, windows and streams."""
    try:
        summary = score_file("data.parquet", "model.onnx", "s.parquet", input_options=InputOptions(no_time=True))
        assert_type(summary, Summary)
        assert_type(summary.anomalies, int)
        assert_type(summary.missing_features, dict[str, int])
    except AtInferError as error:
        print(error)
    with open_engine("model.onnx", threads=1) as engine:
        windows = np.zeros((1, 100, 3), np.float32)
        assert_type(engine.score(windows), NDArray[np.float32])
        assert_type(engine.run(windows), dict[str, NDArray[np.float32]])
    with StreamScorer("model.onnx", delay=5) as stream:
        last = stream.push([1.0, 2.0, 3.0], series="pump 7")
        assert_type(last.score, float | None)
        assert_type(last.is_anomaly, bool)
    assert_type(at_infer.__version__, str)
