"""Validation scores of last rows of windows: what a live system will see, so that its threshold means what it says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from at_infer import ScoreOptions, Scorer, StreamScorer
from at_infer.config import PRESETS, SCORE_MODES, WINDOW_MODES, DiscrepancyConfig, ModelConfig, ScoreConfig
from at_infer.errors import ConfigError, EngineError
from at_infer.models.metadata import Metadata
from at_infer.models.statistics import ValidationRecord
from at_infer.models.views import AHEAD
from at_infer.thresholds.quantiles import quantiles
from at_infer.thresholds.ratio import quantile_threshold
from export.config import ExportConfig
from export.pipeline import export_model
from tests import oracle
from tests.checkpoints import PLAIN, SCALER, WINDOW, checkpoint
from tests.conftest import Answer, MakeData
from tests.exported import metadata
from tests.scored import Edit, Score, rows
from training.checkpoint import Checkpoint
from training.data import DataConfig, load
from training.discrepancy import association_discrepancy
from training.linear import fit_linear, last_rows
from training.loop import fit
from training.model import AnomalyTransformer
from training.task import TrainingTask
from training.validation import measure_validation
from training.validation_rows import (
    CoveredRows,
    Scored,
    ScoredNetwork,
    Span,
    last_windows,
    live_spans,
    most_live_rows,
    spans,
)
from training.view_statistics import learn_views
from training.window_scores import measure_normal, window_parts, window_scores


def live_of(source: Checkpoint) -> ValidationRecord:
    record = source.validation_of("last")
    assert record.align == "last"
    return record


@pytest.mark.parametrize("smooth", [1, 4])
def test_every_row_is_scored_as_the_last_of_its_window_within_its_series(smooth: int) -> None:
    torch.manual_seed(0)
    network = AnomalyTransformer(ModelConfig(features=2, window=6, width=8, heads=2, layers=1, feed_forward=8)).eval()
    values, discrepancy = torch.randn(40, 2), DiscrepancyConfig()
    starts, series_rows = np.array([3, 9, 12, 20, 26, 32]), [15, 18]  # rows 3 to 17 and 20 to 37
    scored = ScoredNetwork(network, discrepancy, ScoreConfig(mode="reconstruction", smooth=smooth))
    measured = measure_validation(scored, CoveredRows(values, starts, series_rows), ratio=0.1)
    found, normal = measured.records[1], measured.normal
    expected: dict[str, list[float]] = {}
    for first, end in ((3, 18), (20, 38)):
        for last in range(first + 5, end):
            ends = [at for at in range(last - smooth + 1, last + 1) if at >= first + 5]
            parts = window_parts(network, values, torch.tensor(ends) - 5, discrepancy, normal, 32)
            for mode in WINDOW_MODES:
                scores = window_scores(parts, ScoreConfig(mode=mode), discrepancy, normal, 1)
                expected.setdefault(mode, []).append(float(scores[:, -1].mean()))
    assert found.threshold.validation_rows == 10 + 13
    for mode, of_rows in expected.items():
        # Scores near 0 are what the temperature of mode published has made of rounding.
        wanted = quantiles(np.array(of_rows, np.float32))
        np.testing.assert_allclose(found.quantiles[mode], wanted, rtol=1e-5, atol=1e-12)


def test_live_rows_are_all_there_are_or_the_last_of_each_series() -> None:
    series = spans(np.array([*range(0, 1000, 10), *range(1000, 1500, 10)]), [1000, 500], 10)
    assert series == [(0, 1000), (1000, 500)]
    assert live_spans(series, 10, 5000) == [(9, 991), (1009, 491)]
    assert live_spans(series, 10, 200) == [(900, 100), (1400, 100)]
    assert live_spans(series, 10, 5000, [500, 4]) == [(0, 1000), (1005, 495)]
    assert [most_live_rows(count) for count in (0, 40_000, 10**9)] == [2_000, 10_000, 20_000]


def test_live_rows_have_a_threshold_for_each_delay_from_as_many_rows() -> None:
    source = checkpoint()
    records = [record for record in source.validation if record.align == "last"]
    assert [record.delay for record in records] == [0, 1, 5]  # less than half a window
    assert {record.threshold.validation_rows for record in records} == {40 * WINDOW - WINDOW + 1}
    assert set(records[0].quantiles) == set(SCORE_MODES)
    assert all(set(record.quantiles) == {"fusion"} for record in records[1:])


def test_the_recorded_scores_are_those_of_score_with_align_last(models: Path) -> None:
    torch.manual_seed(0)
    source = checkpoint()
    torch.manual_seed(0)
    AnomalyTransformer(source.model)  # as `checkpoint` draws its rows, behind the weights
    scaled = torch.randn(40 * WINDOW, source.model.features).numpy()
    raw = np.asarray(SCALER.mean) + np.asarray(SCALER.scale) * scaled
    with Scorer(models / "model.onnx", ScoreOptions(align="last")) as scorer:
        found = scorer.score(raw.astype(np.float32))
        assert scorer.threshold == live_of(source).threshold.value
        assert scorer.notes == []
    known = found.score[~np.isnan(found.score)]
    np.testing.assert_allclose(quantiles(known), live_of(source).quantiles[source.score.mode], atol=1e-5)
    above = found.is_anomaly.sum() - int(0.05 * len(known))
    assert above in (0, 1)  # the score of one row is the threshold, and the graph may round it up


@pytest.mark.slow
def test_align_last_takes_ratio_mode_and_gap_from_the_scores_of_last_rows(
    plain_score: Score, plain_edited: Edit
) -> None:
    frame, source = rows(100), checkpoint(score=PLAIN)
    live = live_of(source)
    levels, of_mode = source.quantile_levels, live.quantiles
    ratio = plain_score(frame, align="last", ratio=0.25).summary.threshold
    assert ratio == quantile_threshold(levels, of_mode[source.score.mode], 0.25)
    assert ratio != plain_score(frame, ratio=0.25).summary.threshold
    assert plain_score(frame, align="last", mode="paper").summary.threshold == quantile_threshold(
        levels, of_mode["paper"], 0.05
    )
    two = [1e-6] * 200 + [10.0] * (len(levels) - 200)
    record = live.to_dict() | {"quantiles": {source.score.mode: two}}
    clusters = plain_edited(validation=[source.validation_of().to_dict(), record])
    assert 1e-6 < plain_score(frame, engine=clusters, align="last", threshold="auto").summary.threshold < 10
    with pytest.raises(ConfigError, match="has no validation scores of mode paper with align last; give"):
        plain_score(frame, engine=clusters, align="last", mode="paper")


@pytest.mark.slow
def test_a_model_of_an_earlier_version_says_what_is_missing(
    run_cli: Callable[..., Answer], edited: Edit, models: Path, tmp_path: Path
) -> None:
    old = edited(validation=[checkpoint().validation_of().to_dict()])
    rows(60).write_parquet(tmp_path / "data.parquet")
    command = ["score", tmp_path / "data.parquet", "-o", tmp_path / "scores.parquet", "--overwrite", "--engine"]
    note = "has no threshold for last rows of windows, and that of whole windows flags more of them than it should"
    for words, said in (([old, "--align", "last"], 1), ([old], 0), ([old, "--align", "last", "--threshold", 1], 0)):
        answer = run_cli(*command, *words)
        assert answer.code == 0
        assert answer.err.count(note) == said, answer.err
    with StreamScorer(old) as stream:
        assert stream.threshold == checkpoint().validation_of().threshold.value
        assert len(stream.scorer.notes) == 1
    with StreamScorer(models / "model.onnx") as stream:
        assert stream.threshold == live_of(checkpoint()).threshold.value


def test_metadata_of_format_1_are_read_and_damaged_ones_refused() -> None:
    (whole,) = metadata().validation
    live = replace(whole, align="last", threshold=replace(whole.threshold, value=0.5))
    now = metadata(validation=[whole, live]).to_dict()
    old = {name: value for name, value in now.items() if name != "validation"} | {
        "format": 1,
        "threshold": whole.threshold.to_dict(),
        "quantiles": whole.quantiles,
    }
    assert Metadata.from_dict(old, "model.onnx") == metadata()
    causal = {"threshold": live.threshold.to_dict(), "quantiles": live.quantiles}
    assert Metadata.from_dict(old | {"causal": causal}, "model.onnx") == Metadata.from_dict(now, "model.onnx")
    incomplete = {"threshold": {"value": 1.0}, "quantiles": {}}
    damaged = [old | {"causal": of} for of in ({}, incomplete, [1], "none")]
    damaged += [now | {"validation": of} for of in ([], [live.to_dict()], [incomplete], 1)]
    for values in damaged:
        with pytest.raises(EngineError, match=r"model.onnx: its metadata are damaged .*; export the model again"):
            Metadata.from_dict(values, "model.onnx")


@pytest.mark.slow
def test_a_trained_model_flags_the_share_of_normal_rows_that_its_threshold_was_made_for(
    make_data: MakeData, tmp_path: Path, plain_score: Score
) -> None:
    t = np.arange(12_000)
    noise = np.random.default_rng(0).normal(scale=0.1, size=(2, len(t)))
    frame = pl.DataFrame({"a": np.sin(t / 4) + noise[0], "b": 5 + 2 * np.cos(t / 6) + noise[1]})
    shape = {"features": 2, "window": 20, "width": 16, "heads": 2, "layers": 1, "feed_forward": 16}
    model = ModelConfig(**shape, padding="circular")  # for which the last row of a window is the hardest
    data = make_data(frame.head(8_000), window=20)
    train = replace(PRESETS["paper"].train, epochs=6, learning_rate=3e-3)
    trained = fit(TrainingTask(data=data, model=model, train=train), PLAIN, ratio=0.05)
    export_model(trained, "0" * 64, tmp_path, ExportConfig(engine="none"))
    engine, normal = tmp_path / "model.onnx", frame.tail(4_000)
    causal = plain_score(normal, engine=engine, align="last", delay=0)
    whole = plain_score(normal, engine=engine)
    assert 0.025 < whole.summary.anomalies / 4_000 < 0.1
    assert 0.025 < causal.summary.anomalies / 4_000 < 0.1
    wrong = (causal.score > np.float32(whole.summary.threshold)).mean()
    assert wrong > 2 * causal.summary.anomalies / 4_000  # what the threshold of whole windows would flag


def test_what_is_usual_equals_a_computation_window_by_window() -> None:
    torch.manual_seed(0)
    network = AnomalyTransformer(ModelConfig(features=2, window=9, width=8, heads=2, layers=2, feed_forward=8)).eval()
    values, starts = torch.randn(60, 2), torch.tensor([0, 9, 18, 27, 36, 45, 51])
    found = measure_normal(network, values, starts, DiscrepancyConfig(), 3)
    squares: dict[str, list[np.ndarray]] = {"error": [], "centred": []}
    by_rule: dict[str, list[np.ndarray]] = {"paper": [], "published": []}
    for start in starts.tolist():
        x = values[start : start + 9]
        with torch.inference_mode():
            x_hat, associations = network(x[None])
        difference = (x_hat[0] - x).double().numpy()
        squares["error"].append(difference**2)
        squares["centred"].append(oracle.centred(difference) ** 2)
        for rule, kept in by_rule.items():
            kept.append(association_discrepancy(associations, DiscrepancyConfig(head_rule=rule)).numpy())  # type: ignore[arg-type]
    np.testing.assert_allclose(found.error, np.mean(squares["error"], axis=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(found.centred_error, np.mean(squares["centred"], axis=(0, 1)), rtol=1e-5)
    for rule, kept in by_rule.items():
        np.testing.assert_allclose(found.discrepancy[rule], [np.mean(kept), np.std(kept)], rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stride": 6}, 1),
        ({"stride": 6, "threshold": 1.0}, 0),
        ({"stride": WINDOW}, 0),
        ({}, 0),
        ({"align": "last"}, 0),
    ],
)
def test_overlapping_windows_say_that_the_threshold_is_of_single_ones(
    models: Path, options: dict[str, Any], said: int
) -> None:
    with Scorer(models / "model.onnx", ScoreOptions(**options)) as scorer:
        assert ["flags fewer rows than it should" in note for note in scorer.notes] == [True] * said


@pytest.mark.parametrize(("columns", "weighed"), [(3, True), (1, False)])
def test_units_of_linear_views_rest_on_the_training_rows_too_where_they_weigh_features(
    tmp_path: Path, columns: int, weighed: bool
) -> None:
    """A tenfold noise in the training part alone is seen there, and by the network, in the last 500 rows."""
    noise = np.random.default_rng(0).normal(size=(600, columns)).astype(np.float32)
    noise[:480] *= 10
    pl.DataFrame(noise, schema=[f"f{i}" for i in range(columns)]).write_parquet(tmp_path / "rows.parquet")
    data = load(DataConfig(source=str(tmp_path / "rows.parquet")), window=20)
    model = ModelConfig(features=columns, window=20, width=8, heads=2, layers=1, feed_forward=8)
    task = TrainingTask(data=data, model=model, train=replace(PRESETS["default"].train, max_steps=2))
    normal = fit(task, ScoreConfig()).normal
    assert normal is not None
    assert normal.views is not None
    for scale in (normal.views.whole, normal.views.live):
        for view in ("next", "ahead", "shape", "level"):
            low, high = (0.5, 2) if weighed else (0.02, 0.25)  # in standard deviations, which are those of the noise
            assert all(low < spread < high for spread in scale.spread[view]), (view, scale.spread[view])


def test_of_very_many_series_some_are_learnt_from_and_each_by_enough_rows() -> None:
    """A few rows of each would be fewer than a prediction looks back, and than activity is measured over."""
    t = np.arange(400)[:, None]
    rng = np.random.default_rng(0)
    series = [
        np.sin(t / 5 + k).astype(np.float32) + 0.1 * rng.normal(size=(400, 2)).astype(np.float32) for k in range(3000)
    ]
    taken = last_rows(series)
    assert len(taken) == 166
    assert {len(one) for one in taken} == {302}
    assert (np.abs(fit_linear(series, AHEAD)[:, :-1]).sum(axis=1) > 0.5).all()
    parts = [Scored(one, one, one, {}) for one in series[:10]]
    few, many = (learn_views(learnt, parts, parts) for learnt in (series[:10], series))
    for scale, other in ((few.whole, many.whole), (few.live, many.live)):
        for view in ("activity next", "activity ahead", "next", "ahead"):
            np.testing.assert_allclose(scale.spread[view], other.spread[view], rtol=0.25)


def test_so_few_live_rows_that_they_say_nothing_have_the_units_of_whole_windows() -> None:
    rng = np.random.default_rng(0)
    whole, live = (Scored(*rng.normal(size=(3, rows, 2)).astype(np.float32), {}) for rows in (300, 3))
    found = learn_views([whole.x], [whole], [live])
    assert found.live.spread["level"] == found.whole.spread["level"]
    assert learn_views([whole.x], [whole], [whole, live]).live.spread["level"] != found.whole.spread["level"]


@pytest.mark.parametrize("own_file", [False, True])
def test_live_rows_of_a_short_validation_part_have_their_windows_from_the_training_part(
    tmp_path: Path, own_file: bool
) -> None:
    """The last 100 of 500 rows are a window: one live row, without rows before them."""
    rows = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32)
    paths = [str(tmp_path / name) for name in ("train.parquet", "validation.parquet")]
    for path, part in zip(paths, (rows, rows[-100:]), strict=True):
        pl.DataFrame(part, schema=["a", "b"]).write_parquet(path)
    data = load(DataConfig(source=paths[0], validation=paths[1] if own_file else 0.2), window=100)
    model = ModelConfig(features=2, window=100, width=8, heads=2, layers=1, feed_forward=8)
    task = TrainingTask(data=data, model=model, train=replace(PRESETS["default"].train, max_steps=2))
    assert live_of(fit(task, ScoreConfig())).threshold.validation_rows == (1 if own_file else 100)


def test_rows_before_the_validation_part_are_the_last_of_each_series() -> None:
    values, device = np.zeros((1000, 2), np.float32), torch.device("cpu")
    series = [Span(0, 400), Span(500, 30), Span(600, 400)]
    found = last_windows(values, series, 20, 150, device)
    assert found.series_rows == [50, 30, 50]
    assert found.starts.tolist() == [350, 370, 380, 500, 510, 950, 970, 980]
    assert spans(found.starts, found.series_rows, 20) == [(350, 50), (500, 30), (950, 50)]
    assert last_windows(values, series, 20, 3, device).series_rows == [20]
    many = [Span(20 * k, 20) for k in range(50)]
    assert last_windows(values, many, 20, 95, device).starts.tolist() == [0, 200, 400, 600, 800]
